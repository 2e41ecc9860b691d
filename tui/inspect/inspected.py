"""A file ready for the inspect screen: a memory snapshot, or a flight record."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from ...analyzers.level_history import LevelHistory, follow_samples, follow_trace
from ...analyzers.snapshot_summary import (
    DeviceSummary,
    FailedRequest,
    MemoryLevels,
    SnapshotSummary,
    StackGroup,
    map_segments,
)
from ...analyzers.snapshot_summary.cursor import TimeCursor
from ...analyzers.snapshot_summary.flight import DeviceShares, FlightSummary
from ...analyzers.snapshot_summary.settings_advice import advise_settings
from ...engine.files.base.input_file import show_name
from ...engine.files.flight_record import read_memory_file
from ...engine.model.memory_snapshot import OF_TEXT, FlightRecord, MemorySnapshot
from ...engine.model.sample import SegmentMap
from ...engine.text import make_printable
from ...engine.units import format_bytes
from ...exporters.inspect.text import (
    check_capacity,
    describe_advice,
    describe_failures,
    describe_flight_record,
    describe_summary,
    show_setting,
    summarize_devices,
    summarize_flight,
)
from ...exporters.stack_text import render_frames
from ..draw.numbers import moment_text

# Returns a text for a width in cells.
Describe = Callable[[int], str]
PartKind = Literal["live", "waiting", "cached", "releasable", "outside"]


@dataclass(frozen=True)
class BarPart:
    name: str
    value_bytes: int | None
    kind: PartKind


@dataclass(frozen=True)
class InspectedDevice:
    name: str
    # The summary, the most important first.
    sentences: tuple[str, ...]
    whole: BarPart
    parts: tuple[BarPart, ...]
    # Bytes at the end of the bar and at the top of the history.
    scale_bytes: int
    # Live blocks, the largest first.
    stacks: tuple[StackGroup, ...]
    stack_groups: int
    # One line for each request that failed, the newest first.
    failures: tuple[str, ...]
    # The same at length, for a width.
    describe_failures: Describe
    segment_map: SegmentMap
    history: LevelHistory | None
    # Moments of out-of-memory errors.
    failed_at: tuple[float, ...] = ()
    # Moments at which steps began, and their numbers.
    steps: tuple[tuple[float, int], ...] = ()
    # Answers what lived at any moment of the history; None where the file has no events.
    cursor: TimeCursor | None = None


@dataclass(frozen=True)
class InspectedAdvice:
    """The effect of other allocator settings on one device, as simulated."""

    # The largest saving first; without advice, the reason.
    sentences: tuple[str, ...]
    # The same as a section of the report; empty where the trace could not be replayed.
    describe: Describe = lambda _: ""
    # Whether the sentences are that reason.
    is_refused: bool = False


@dataclass(frozen=True)
class Inspected:
    file: str
    # In words.
    kind: str
    devices: tuple[InspectedDevice, ...]
    # Everything as text, for a width.
    describe: Describe
    settings: str = ""
    # Whether a device was modelled, so that nothing of it was measured.
    is_simulated: bool = False
    # Replays the trace of the device at a place; takes seconds. None where the file cannot hold a trace.
    advise: Callable[[int], InspectedAdvice] | None = None


def read_inspected(path: Path, device: int | None = None, *, capacity_bytes: int | None = None) -> Inspected:
    """Read a file for the screen, of one device or all (None); takes seconds where it is large.

    Args:
        capacity_bytes: What the allocator can reserve where settings are compared; None for what the trace
            shows.

    Raises:
        InputFileError: The file cannot be read or understood.
        UsageError: It does not have the device, or no trace to replay with the capacity.
    """
    content = read_memory_file(path)
    check_capacity(content, capacity_bytes)
    if isinstance(content, FlightRecord):
        return view_flight_record(content, show_name(path), device)
    return view_snapshot(content, show_name(path), device, capacity_bytes=capacity_bytes)


# In the list of the screen.
MOST_STACKS = 1000
MOST_STACKS_OF_REPORT = 20


def view_flight_record(record: FlightRecord, file: str, device: int | None = None) -> Inspected:
    """Return a flight record for the screen; with `device`, it must be of that device.

    Raises:
        UsageError: It is of another device.
    """
    summary = summarize_flight(record, top=MOST_STACKS, device=device)
    return Inspected(
        file=file,
        kind="out-of-memory text" if record.reason == OF_TEXT else "flight record",
        devices=(_view_device(record, summary),),
        describe=lambda width: describe_flight_record(record, width=width, top=MOST_STACKS_OF_REPORT),
        is_simulated=record.process.is_simulated,
    )


def _view_device(record: FlightRecord, summary: FlightSummary) -> InspectedDevice:
    history = follow_samples(record.samples)
    shares = summary.shares
    peak_bytes = 0 if history is None else history.peak_bytes
    rank = record.process.coordinates
    who = "" if rank is None else f"rank {rank.rank}: "

    def describe_failure(width: int) -> str:
        frames = render_frames(summary.request.frames, width, summary.request.headline)
        return "\n".join([*(frames or ["no stack was recorded"]), "", summary.message])

    return InspectedDevice(
        name=f"device {0 if record.device.index is None else record.device.index}",
        sentences=(f"{who}{summary.sentences[0]}", *summary.sentences[1:], *summary.advice),
        whole=BarPart("used", _sum_used(shares), "live"),
        parts=_split_used(shares),
        scale_bytes=shares.total_bytes or max(peak_bytes, shares.reserved_bytes or 0, 1),
        stacks=summary.stacks,
        stack_groups=len(summary.stacks),
        failures=(_describe_request(summary),),
        describe_failures=describe_failure,
        segment_map=SegmentMap(
            "", 0, record.device.uuid, record.written_s or 0.0, record.segments, record.truncated.segments
        ),
        history=history,
        # The record is written a moment after its newest sample.
        failed_at=() if history is None else (float(history.moments[-1]),),
        steps=tuple((step.start_s, step.index) for step in record.steps if step.start_s is not None),
    )


def _sum_used(shares: DeviceShares) -> int | None:
    if shares.total_bytes is not None and shares.free_bytes is not None:
        return shares.total_bytes - shares.free_bytes
    return shares.reserved_bytes


def _split_used(shares: DeviceShares) -> tuple[BarPart, ...]:
    """Return the parts of the used memory; empty ones are left out, unknown ones are not."""
    unallocated: tuple[BarPart, ...] = (
        BarPart("awaiting free", shares.awaiting_bytes, "waiting"),
        BarPart("stranded", shares.stranded_bytes, "cached"),
        BarPart("cached", shares.cached_bytes, "releasable"),
    )
    if shares.unallocated_bytes is not None:
        unallocated = (BarPart("no tensor", shares.unallocated_bytes, "releasable"),)
    parts = (
        BarPart("allocated", shares.allocated_bytes, "live"),
        *unallocated,
        BarPart("context and others", shares.other_bytes, "outside"),
    )
    return tuple(part for part in parts if part.value_bytes != 0)


def _describe_request(summary: FlightSummary) -> str:
    where = summary.request.headline
    at = "" if where is None else f" at {where.name} ({where.filename}:{where.line})"
    return f"{format_bytes(summary.size_bytes)} requested{at}"


def view_snapshot(
    snapshot: MemorySnapshot, file: str, device: int | None = None, *, capacity_bytes: int | None = None
) -> Inspected:
    """Return a snapshot for the screen, of one device or all (None).

    Args:
        capacity_bytes: What the allocator can reserve where settings are compared; None for what the trace
            shows.

    Raises:
        UsageError: It does not have the device.
    """
    summary = summarize_devices(snapshot, top=MOST_STACKS, device=device)
    return Inspected(
        file=file,
        kind="memory snapshot",
        devices=tuple(_view_snapshot_device(snapshot, each) for each in summary.devices),
        describe=lambda width: describe_summary(_shorten(summary), width=width),
        is_simulated=summary.simulated is not None,
        settings=", ".join(
            f"{key}={show_setting(value)}" for key, value in summary.settings if value not in {"", "False"}
        ),
        advise=lambda place: _advise(snapshot, summary.devices[place].device, capacity_bytes),
    )


def _advise(snapshot: MemorySnapshot, device: int, capacity_bytes: int | None) -> InspectedAdvice:
    advice = advise_settings(snapshot, device, capacity_bytes=capacity_bytes)

    def describe(width: int) -> str:
        return "\n".join((f"device {device}", *describe_advice(advice, width))) if advice.is_replayed else ""

    sentences = tuple(map(make_printable, advice.sentences))
    return InspectedAdvice(sentences, describe, is_refused=advice.reason is not None)


def _shorten(summary: SnapshotSummary) -> SnapshotSummary:
    """Return a summary with as many stacks as a report should have."""
    devices = tuple(
        msgspec.structs.replace(each, stacks=each.stacks[:MOST_STACKS_OF_REPORT]) for each in summary.devices
    )
    return msgspec.structs.replace(summary, devices=devices)


def _view_snapshot_device(snapshot: MemorySnapshot, summary: DeviceSummary) -> InspectedDevice:
    cursor = TimeCursor(snapshot, summary.device)
    timeline = cursor.timeline
    history = None if timeline is None or len(timeline) < 2 else follow_trace(timeline)
    rows = map_segments(snapshot, summary.device)
    levels = summary.levels
    return InspectedDevice(
        name=f"device {summary.device}",
        sentences=summary.sentences,
        whole=BarPart("reserved", levels.reserved_bytes, "live"),
        parts=_split_reserved(levels),
        scale_bytes=max(levels.reserved_bytes, history.peak_bytes if history else 0, 1),
        stacks=summary.stacks,
        stack_groups=summary.stack_groups,
        failures=tuple(map(_describe_failure, summary.failures)),
        describe_failures=lambda width: "\n".join(
            describe_failures(summary.failures, summary.failures_omitted, width)
        ),
        segment_map=SegmentMap("", 0, None, 0.0, tuple(row.segment for row in rows)),
        history=history,
        failed_at=tuple(each.time_s for each in summary.failures if each.time_s is not None),
        cursor=None if history is None else cursor,
    )


def _split_reserved(levels: MemoryLevels) -> tuple[BarPart, ...]:
    """Return the parts of the reserved memory; empty ones are left out."""
    parts = (
        BarPart("live", levels.allocated_bytes, "live"),
        BarPart("awaiting free", levels.active_bytes - levels.allocated_bytes, "waiting"),
        BarPart("stranded", levels.stranded_bytes, "cached"),
        BarPart("can be given back", levels.releasable_bytes, "releasable"),
    )
    return tuple(part for part in parts if part.value_bytes)


def _describe_failure(failure: FailedRequest) -> str:
    when = "" if failure.time_s is None else f"{moment_text(failure.time_s, 'wall')}  "
    where = failure.stack.headline
    at = "" if where is None else f" at {where.name} ({where.filename}:{where.line})"
    free = format_bytes(failure.device_free_bytes)
    live = format_bytes(failure.allocated_bytes)
    return (
        f"{when}{format_bytes(failure.size_bytes)} requested{at}: {free} free on the device, "
        f"{live} of {format_bytes(failure.reserved_bytes)} reserved were live"
    )
