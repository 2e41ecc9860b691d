"""A flight record summed up: what failed, who held the device, what was live, and what to do."""

from collections.abc import Iterator, Sequence

from ...engine.model.flight_record import FlightRecord
from ...engine.model.memory_snapshot import Frame
from ...engine.units import format_bytes
from ..snapshot_summary import StackGroup
from ..snapshot_summary.stack_groups import keep_python, make_group
from .advice import advise
from .model import DeviceShares, FlightSummary, FloorTrend
from .shares import share_device
from .trend import measure_trend


def summarize_flight_record(record: FlightRecord) -> FlightSummary:
    """Return what a flight record comes to."""
    shares = share_device(record)
    trend = measure_trend(record.steps)
    stacks = _group_live(record, shares)
    return FlightSummary(
        file=record.file,
        written_s=record.written_s,
        process=record.process,
        device=record.device,
        size_bytes=record.failure.size_bytes,
        message=record.failure.message,
        request=make_group(_read_frames(record.failure.stack), record.failure.size_bytes or 0, 1, 1.0),
        shares=shares,
        stacks=stacks,
        trend=trend,
        sentences=tuple(_word(record, shares, stacks, trend)),
        advice=tuple(advise(record, shares, trend)),
        truncated=record.truncated,
        notes=record.notes,
    )


def _read_frames(stack: tuple[tuple[str, int, str], ...]) -> tuple[Frame, ...]:
    return keep_python(tuple(Frame(filename, line, name) for filename, line, name in stack))


def _group_live(record: FlightRecord, shares: DeviceShares) -> tuple[StackGroup, ...]:
    """Return the live blocks by stack; stacks that differ only in frames of no interest are one."""
    sizes: dict[tuple[Frame, ...], int] = {}
    counts: dict[tuple[Frame, ...], int] = {}
    for each in record.live_stacks:
        frames = _read_frames(each.stack)
        sizes[frames] = sizes.get(frames, 0) + each.size_bytes
        counts[frames] = counts.get(frames, 0) + each.count
    total = shares.allocated_bytes or sum(sizes.values()) or 1
    ordered = sorted(sizes, key=lambda frames: -sizes[frames])
    return tuple(
        make_group(frames, sizes[frames], counts[frames], sizes[frames] / total) for frames in ordered
    )


def _word(
    record: FlightRecord, shares: DeviceShares, stacks: tuple[StackGroup, ...], trend: FloorTrend | None
) -> Iterator[str]:
    yield _word_failure(record, shares)
    missing = _find_missing(record, shares)
    if missing is not None:
        yield f"{format_bytes(missing)} more free on the device would have been enough"
    yield from _word_largest(stacks[:1])
    if trend is not None:
        yield _word_trend(trend)
    retries = record.stats.get("num_alloc_retries")
    if retries:
        times = "once" if retries == 1 else f"{retries:,.0f} times"
        yield f"the allocator had flushed its cache {times}: the job was at its limit before"


def _word_largest(stacks: Sequence[StackGroup]) -> Iterator[str]:
    for group in stacks:
        if group.headline is not None:
            place = f"{group.headline.name} at {group.headline.filename}:{group.headline.line}"
            size = format_bytes(group.size_bytes)
            yield f"{group.share:.0%} of the allocated bytes ({size}) come from {place}"


def _word_failure(record: FlightRecord, shares: DeviceShares) -> str:
    size = record.failure.size_bytes
    what = "a request of unknown size" if size is None else f"a request of {format_bytes(size)}"
    device = "" if shares.total_bytes is None else f" on a device of {format_bytes(shares.total_bytes)}"
    parts = [f"{what} failed{device}"]
    if shares.allocated_bytes is not None:
        parts.append(f"{format_bytes(shares.allocated_bytes)} were allocated")
    if shares.reserved_bytes is not None:
        parts.append(f"{format_bytes(shares.reserved_bytes)} reserved")
    if shares.free_bytes is not None:
        parts.append(f"{format_bytes(shares.free_bytes)} free on the device")
    return "; ".join((parts[0], ", ".join(parts[1:]))) if len(parts) > 1 else parts[0]


def _find_missing(record: FlightRecord, shares: DeviceShares) -> int | None:
    """Return what the driver lacked for the request; segments are rounded up to 2 MiB, which is left out."""
    size, free = record.failure.size_bytes, shares.free_bytes
    return size - free if size is not None and free is not None and free < size else None


def _word_trend(trend: FloorTrend) -> str:
    first, last = format_bytes(trend.first_bytes), format_bytes(trend.last_bytes)
    if trend.is_rising:
        growth = format_bytes(round(trend.growth_bytes_per_step))
        return (
            f"the least allocated of a step rose from {first} to {last} over {trend.steps} steps, "
            f"{growth} each"
        )
    if trend.first_bytes == trend.last_bytes:
        return f"the least allocated of a step stayed at {first} over {trend.steps} steps"
    return f"the least allocated of a step went from {first} to {last} over {trend.steps} steps, not steadily"
