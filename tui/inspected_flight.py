"""A flight record as the inspect screen shows it."""

from ..analyzers.flight_summary import DeviceShares, FlightSummary
from ..analyzers.level_history import follow_samples
from ..engine.model.flight_record import OF_TEXT, FlightRecord
from ..engine.model.segments import SegmentMap
from ..engine.units import format_bytes
from ..exporters.flight_text import describe_flight_record
from ..exporters.memory_file import summarize_flight
from ..exporters.stack_text import render_frames
from .inspected import REPORT_WIDTH, BarPart, Inspected, InspectedDevice

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
