"""A memory snapshot as the inspect screen shows it."""

import msgspec

from ...analyzers.fragmentation.advice import advise_settings
from ...analyzers.level_history import follow_trace
from ...analyzers.snapshot_summary import (
    DeviceSummary,
    FailedRequest,
    MemoryLevels,
    SnapshotSummary,
    map_segments,
    trace_levels,
)
from ...engine.model.memory_snapshot import MemorySnapshot
from ...engine.model.sample import SegmentMap
from ...engine.text import make_printable
from ...engine.units import format_bytes
from ...exporters.inspect import describe_advice, describe_failures, describe_summary, summarize_devices
from ..draw.numbers import moment_text
from .inspected import REPORT_WIDTH, BarPart, Inspected, InspectedAdvice, InspectedDevice

MOST_STACKS = 1000
"""Stacks that the screen lists."""
MOST_STACKS_OF_REPORT = 20


def view_snapshot(snapshot: MemorySnapshot, file: str, device: int | None = None) -> Inspected:
    """Return a snapshot as it is shown.

    Args:
        snapshot: What was read from the file.
        file: Name of the file.
        device: The only device to show; None for all.

    Raises:
        UsageError: It does not tell of the device.
    """
    summary = summarize_devices(snapshot, top=MOST_STACKS, device=device)
    return Inspected(
        file=file,
        kind="memory snapshot",
        devices=tuple(_view_device(snapshot, each) for each in summary.devices),
        report=describe_summary(_shorten(summary), width=REPORT_WIDTH),
        is_simulated=summary.simulated is not None,
        settings=", ".join(f"{key}={value}" for key, value in summary.settings if value not in {"", "False"}),
        advise=lambda place: _advise(snapshot, summary.devices[place].device),
    )


def _advise(snapshot: MemorySnapshot, device: int) -> InspectedAdvice:
    advice = advise_settings(snapshot, device)
    lines = [f"device {device}", *describe_advice(advice, REPORT_WIDTH)] if advice.is_replayed else []
    sentences = tuple(map(make_printable, advice.sentences))
    return InspectedAdvice(sentences, "\n".join(lines), is_refused=advice.reason is not None)


def _shorten(summary: SnapshotSummary) -> SnapshotSummary:
    """Return a summary with as many stacks as a person reads on."""
    devices = tuple(
        msgspec.structs.replace(each, stacks=each.stacks[:MOST_STACKS_OF_REPORT]) for each in summary.devices
    )
    return msgspec.structs.replace(summary, devices=devices)


def _view_device(snapshot: MemorySnapshot, summary: DeviceSummary) -> InspectedDevice:
    timeline = trace_levels(snapshot, summary.device)
    history = None if timeline is None or len(timeline) < 2 else follow_trace(timeline)
    rows = map_segments(snapshot, summary.device)
    levels = summary.levels
    failed = "\n".join(describe_failures(summary.failures, summary.failures_omitted, REPORT_WIDTH))
    return InspectedDevice(
        name=f"device {summary.device}",
        sentences=summary.sentences,
        whole=BarPart("reserved", levels.reserved_bytes, "live"),
        parts=_split(levels),
        scale_bytes=max(levels.reserved_bytes, history.peak_bytes if history else 0, 1),
        stacks=summary.stacks,
        stack_groups=summary.stack_groups,
        failures=tuple(map(_describe_failure, summary.failures)),
        failure_report=failed,
        segment_map=SegmentMap("", 0, None, 0.0, tuple(row.segment for row in rows)),
        history=history,
        failed_at=tuple(each.time_s for each in summary.failures if each.time_s is not None),
    )


def _split(levels: MemoryLevels) -> tuple[BarPart, ...]:
    """Return what is reserved in its parts; those that are not there are left out."""
    parts = (
        BarPart("live", levels.allocated_bytes, "live"),
        BarPart("freed, awaited", levels.active_bytes - levels.allocated_bytes, "waiting"),
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
        f"{when}{format_bytes(failure.size_bytes)} asked for{at}: {free} free on the device, "
        f"{live} of {format_bytes(failure.reserved_bytes)} reserved were live"
    )
