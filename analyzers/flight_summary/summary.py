"""A flight record summed up: what failed, who held the device, what was live, and what to do."""

from collections.abc import Iterator, Sequence

from ...engine.model.flight_record import FlightRecord
from ...engine.model.memory_snapshot import Frame
from ...engine.units import format_bytes
from ..snapshot_summary import StackGroup
from ..snapshot_summary.stack_groups import make_group
from ..stack_frames import keep_python
from .advice import advise
from .leak import find_kept
from .model import DeviceShares, FlightSummary, FloorTrend
from .request import count_earlier_retries, explain_request, word_failure
from .shares import share_device
from .trend import measure_peaks, measure_trend


def summarize_flight_record(record: FlightRecord) -> FlightSummary:
    """Return what a flight record comes to."""
    shares = share_device(record)
    trend = measure_trend(record.steps)
    stacks = _group_live(record, shares)
    kept = find_kept(record, trend, stacks)
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
        kept=kept,
        sentences=tuple(_word(record, shares, stacks, trend)),
        advice=tuple(advise(record, shares, kept)),
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
    yield word_failure(record, shares)
    yield from explain_request(record, shares)
    yield from _word_largest(stacks[:1])
    if trend is not None:
        yield _word_trend(trend)
        yield from _word_peaks(measure_peaks(record.steps), trend)
    retries = count_earlier_retries(record)
    if retries:
        times = "once" if retries == 1 else f"{retries:,} times"
        yield f"the allocator had flushed its cache {times} before: the job was at its limit already"


def _word_largest(stacks: Sequence[StackGroup]) -> Iterator[str]:
    for group in stacks:
        if group.headline is not None:
            place = f"{group.headline.name} at {group.headline.filename}:{group.headline.line}"
            size = format_bytes(group.size_bytes)
            yield f"{group.share:.0%} of the allocated bytes ({size}) come from {place}"


def _word_peaks(peaks: FloorTrend | None, floors: FloorTrend) -> Iterator[str]:
    """Say that each step asks for more, as growing batches do, where none leaves more behind."""
    if peaks is None or not peaks.is_rising or floors.is_rising:
        return
    first, last = format_bytes(peaks.first_bytes), format_bytes(peaks.last_bytes)
    if first != last:
        yield (
            f"the most allocated in a step rose from {first} to {last} over {peaks.steps} steps, though each "
            "left as little behind: batches or sequences that grow do that"
        )


def _word_trend(trend: FloorTrend) -> str:
    first, last = format_bytes(trend.first_bytes), format_bytes(trend.last_bytes)
    if trend.is_rising:
        growth = format_bytes(round(trend.growth_bytes_per_step))
        return (
            f"the least allocated of a step rose from {first} to {last} over {trend.steps} steps, "
            f"{growth} each"
        )
    if first == last:
        return f"the least allocated of a step stayed at {first} over {trend.steps} steps"
    return f"the least allocated of a step went from {first} to {last} over {trend.steps} steps, not steadily"
