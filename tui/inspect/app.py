"""`vramscope inspect` in a terminal: the file is read on a thread, and shown when it was."""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from ...analyzers.level_history import follow_samples
from ...analyzers.snapshot_summary.flight import DeviceShares, FlightSummary
from ...engine.files.base.input_file import show_name
from ...engine.files.memory_file import read_memory_file
from ...engine.model.memory_snapshot import OF_TEXT, FlightRecord
from ...engine.model.sample import SegmentMap
from ...engine.settings import Settings
from ...engine.units import format_bytes
from ...exporters.inspect import describe_flight_record, summarize_flight
from ...exporters.stack_text import render_frames
from ..frame import keys
from ..screens.file_view import FileView, show_file
from .inspected import REPORT_WIDTH, BarPart, Inspected, InspectedAdvice, InspectedDevice
from .inspected_snapshot import view_snapshot
from .screen import InspectScreen


def view_file(path: Path, read: Callable[[], Inspected]) -> FileView[InspectScreen, Inspected]:
    """Return the view of one file.

    Args:
        path: The file.
        read: Reads it; called on a thread of its own.
    """

    def wait(passed_s: float) -> str | None:
        with suppress(OSError):
            size = format_bytes(path.stat().st_size)
            return f"reading {show_name(path)}, {size}: {passed_s:.0f} s; q leaves"
        return None

    def begin_to_advise(found: Inspected) -> None:
        """Work out what other settings would have held."""
        if found.advise is not None and found.devices:
            threading.Thread(target=advise, args=(found,), name="adviser", daemon=True).start()

    def advise(found: Inspected) -> None:
        """Replay the traces on the thread, device by device; the application may end meanwhile."""
        for place in range(len(found.devices)):
            if view.is_left or found.advise is None:
                return
            try:
                advice = found.advise(place)
            except Exception as error:  # noqa: BLE001 - the file is shown all the same, and the screen says why
                advice = InspectedAdvice(
                    (f"no advice on allocator settings: {error!r}",), "", is_refused=True
                )
            view.hand_over(partial(view.screen.take_advice, place, advice))

    view = FileView(lambda app: InspectScreen(), read, wait, own_keys=keys.FILE, then=begin_to_advise)
    return view


def inspect_file(path: Path, *, settings: Settings, device: int | None = None) -> int:
    """Show a file until the user quits, and return the exit code.

    Args:
        path: The file.
        settings: What the user set.
        device: The only device to show; None for all.

    Raises:
        UsageError: Nothing can be drawn here, or the file does not tell of the device.
        InputFileError: The file cannot be read or understood.
    """
    try:
        return show_file(view_file(path, lambda: read_inspected(path, device)), settings)
    finally:
        _end_readers()


def _end_readers() -> None:
    """End the process that decodes, where the user left before it was done."""
    import psutil

    for child in psutil.Process().children():
        with suppress(psutil.Error):
            child.terminate()


def read_inspected(path: Path, device: int | None = None) -> Inspected:
    """Read a file and return it as it is shown; takes seconds where it is large.

    Args:
        path: The file.
        device: The only device to show; None for all.

    Raises:
        InputFileError: The file cannot be read or understood.
        UsageError: It does not tell of the device.
    """
    content = read_memory_file(path)
    if isinstance(content, FlightRecord):
        return view_flight_record(content, show_name(path), device)
    return view_snapshot(content, show_name(path), device)


MOST_STACKS = 1000
"""Stacks that the screen lists."""
MOST_STACKS_OF_REPORT = 20


def view_flight_record(record: FlightRecord, file: str, device: int | None = None) -> Inspected:
    """Return a flight record as it is shown.

    Args:
        record: What was read from the file.
        file: Name of the file.
        device: The device that it must be of; None for whichever it is.

    Raises:
        UsageError: It is of another device.
    """
    summary = summarize_flight(record, top=MOST_STACKS, device=device)
    return Inspected(
        file=file,
        kind="out-of-memory text" if record.reason == OF_TEXT else "flight record",
        devices=(_view_device(record, summary),),
        report=describe_flight_record(record, width=REPORT_WIDTH, top=MOST_STACKS_OF_REPORT),
        is_simulated=record.process.is_simulated,
    )


def _view_device(record: FlightRecord, summary: FlightSummary) -> InspectedDevice:
    history = follow_samples(record.samples)
    shares = summary.shares
    peak_bytes = 0 if history is None else history.peak_bytes
    rank = record.process.coordinates
    who = "" if rank is None else f"rank {rank.rank}: "
    return InspectedDevice(
        name=f"device {0 if record.device.index is None else record.device.index}",
        sentences=(f"{who}{summary.sentences[0]}", *summary.sentences[1:], *summary.advice),
        whole=BarPart("used", _sum_used(shares), "live"),
        parts=_split(shares),
        scale_bytes=shares.total_bytes or max(peak_bytes, shares.reserved_bytes or 0, 1),
        stacks=summary.stacks,
        stack_groups=len(summary.stacks),
        failures=(_describe_request(summary),),
        failure_report=_report_failure(summary),
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


def _split(shares: DeviceShares) -> tuple[BarPart, ...]:
    """Return what is used in its parts; those that are not there are left out, unknown ones are not."""
    unallocated: tuple[BarPart, ...] = (
        BarPart("freed, awaited", shares.awaiting_bytes, "waiting"),
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
    return f"{format_bytes(summary.size_bytes)} asked for{at}"


def _report_failure(summary: FlightSummary) -> str:
    frames = render_frames(summary.request.frames, REPORT_WIDTH, summary.request.headline)
    return "\n".join([*(frames or ["no stack was recorded"]), "", summary.message])
