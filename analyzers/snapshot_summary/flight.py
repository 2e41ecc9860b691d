"""A flight record summed up: what failed, who held the device, what was live, and what to do."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from ...engine.model.memory_snapshot import (
    FlightDevice,
    FlightProcess,
    FlightRecord,
    FlightSample,
    FlightStep,
    FlightTruncation,
    Frame,
)
from ...engine.model.sample import FREE
from ...engine.units import GIB, MIB, format_bytes, format_share
from ..allocator_model.settings import (
    SMALL_LIMIT_BYTES,
    AllocatorSettings,
    AllocatorSettingsError,
    choose_segment_size,
    round_request,
)
from ..segments import find_stranded, keep_python
from . import StackGroup
from .summary import make_group

# The summary of a flight record, as it is printed and as JSON.


class DeviceShares(msgspec.Struct, frozen=True):
    """Who held the device at the failure; what is measured adds up to the total."""

    total_bytes: int | None = None
    # Live tensors of this process.
    allocated_bytes: int | None = None
    # Freed, and another stream may still use it.
    awaiting_bytes: int | None = None
    # Reserved and free, but in segments with live blocks.
    stranded_bytes: int | None = None
    # Reserved, free and not stranded.
    cached_bytes: int | None = None
    # Reserved and not allocated, where it is unknown how much of it is awaiting, stranded or cached.
    unallocated_bytes: int | None = None
    # Used on the device beyond what is reserved: context and libraries, other processes.
    other_bytes: int | None = None
    # Free, according to the driver.
    free_bytes: int | None = None
    # Allocated, awaiting, stranded and cached together.
    reserved_bytes: int | None = None


class FloorTrend(msgspec.Struct, frozen=True):
    """How the least allocated bytes of a step went over the steps of the record."""

    steps: int
    # Least of the oldest sixth.
    first_bytes: int
    # Least of the newest sixth.
    last_bytes: int
    growth_bytes_per_step: float
    # No sixth is lower than the one before it, at least three are higher, and the growth does not slow.
    is_rising: bool


class KeptMemory(msgspec.Struct, frozen=True):
    """Memory kept from step to step, where the floors of the steps grow steadily."""

    size_bytes: int
    growth_bytes_per_step: float
    # The line that holds most of it; None where no stack of live blocks shows it.
    holder: StackGroup | None = None


class FlightSummary(msgspec.Struct, frozen=True, kw_only=True):
    schema: Literal["vramscope.flight_summary/1"] = "vramscope.flight_summary/1"
    file: str
    written_s: float | None
    process: FlightProcess
    device: FlightDevice
    # Size of the request.
    size_bytes: int | None
    message: str
    # Where it was made.
    request: StackGroup
    shares: DeviceShares
    # Live blocks by stack, the largest first; shares are of the allocated bytes.
    stacks: tuple[StackGroup, ...]
    trend: FloorTrend | None
    kept: KeptMemory | None
    # What happened, the most important first.
    sentences: tuple[str, ...]
    # Advice that follows from the numbers, the most promising first.
    advice: tuple[str, ...]
    truncated: FlightTruncation
    notes: tuple[str, ...]


def summarize_flight_record(record: FlightRecord) -> FlightSummary:
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
            yield f"{format_share(group.share)} of the allocated bytes ({size}) come from {place}"


def _word_peaks(peaks: FloorTrend | None, floors: FloorTrend) -> Iterator[str]:
    """Say that each step asks for more, as growing batches do, where none leaves more behind."""
    if peaks is None or not peaks.is_rising or floors.is_rising:
        return
    first = format_bytes(peaks.first_bytes)
    last = format_bytes(peaks.last_bytes)
    if first != last:
        yield (
            f"the peak of a step rose from {first} to {last} over {peaks.steps} steps, though the "
            "floor did not: growing batches or sequences do that"
        )


def _word_trend(trend: FloorTrend) -> str:
    first = format_bytes(trend.first_bytes)
    last = format_bytes(trend.last_bytes)
    if trend.is_rising:
        growth = format_bytes(round(trend.growth_bytes_per_step))
        return f"the floor of a step rose from {first} to {last} over {trend.steps} steps, {growth} each"
    if first == last:
        return f"the floor of a step stayed at {first} over {trend.steps} steps"
    return f"the floor of a step went from {first} to {last} over {trend.steps} steps, not steadily"


BLOCKS = 6
LEAST_STEPS = 2 * BLOCKS


def measure_trend(steps: Sequence[FlightStep]) -> FloorTrend | None:
    """Return how the floor went, None with fewer than twelve measured steps.

    Allocator floors repeat to the byte while a job is steady, so that any rise means something.
    """
    return _measure([step.floor_bytes for step in steps if step.floor_bytes is not None])


def measure_peaks(steps: Sequence[FlightStep]) -> FloorTrend | None:
    """Return how the least peak of each sixth of the steps went; it rises where every step asks for more."""
    return _measure([step.peak_bytes for step in steps if step.peak_bytes is not None])


def _measure(levels: Sequence[int]) -> FloorTrend | None:
    """Return how a level of the steps went.

    The steps are cut into six parts of equal length, each with its least floor. It rises if no part is lower
    than the one before, at least three are higher, and the last two rises together are at least half of the
    first two.
    """
    length = len(levels) // BLOCKS
    if len(levels) < LEAST_STEPS:
        return None
    # The first steps build optimizer state; what does not fill a part is left out there.
    used = levels[len(levels) - length * BLOCKS :]
    least = [min(used[length * block : length * (block + 1)]) for block in range(BLOCKS)]
    changes = [after - before for before, after in pairwise(least)]
    is_rising = (
        min(changes) >= 0
        and sum(change > 0 for change in changes) >= 3
        and sum(changes[-2:]) >= 0.5 * sum(changes[:2])
    )
    return FloorTrend(
        steps=len(used),
        first_bytes=least[0],
        last_bytes=least[-1],
        growth_bytes_per_step=(least[-1] - least[0]) / (length * (BLOCKS - 1)),
        is_rising=is_rising,
    )


def share_device(record: FlightRecord) -> DeviceShares:
    """Return who held the device, as far as the record shows."""
    allocated = _read(record, "allocated_bytes", lambda sample: sample.allocated_bytes)
    active = _read(record, "active_bytes", lambda sample: sample.active_bytes)
    reserved = _read(record, "reserved_bytes", lambda sample: sample.reserved_bytes)
    stranded = find_all_stranded(record)
    total = record.device.total_bytes
    free = record.failure.device_free_bytes
    used = record.failure.device_used_bytes
    if used is None:
        used = subtract(total, free)
    return DeviceShares(
        total_bytes=total,
        allocated_bytes=allocated,
        awaiting_bytes=subtract(active, allocated),
        stranded_bytes=stranded,
        cached_bytes=subtract(subtract(reserved, active), stranded),
        unallocated_bytes=subtract(reserved, allocated) if active is None and stranded is None else None,
        other_bytes=subtract(used, reserved),
        free_bytes=free,
        reserved_bytes=reserved,
    )


def subtract(whole: int | None, part: int | None) -> int | None:
    """Return a difference, None where a part of it is unknown or the numbers contradict each other."""
    return None if whole is None or part is None or part > whole else whole - part


def _read(record: FlightRecord, name: str, read: Callable[[FlightSample], int | None]) -> int | None:
    """Return a level at the failure: from the statistics, else from the newest sample that has it."""
    level = record.stats.get(f"{name}.all.current")
    if level is not None:
        return int(level)
    return next((value for sample in reversed(record.samples) if (value := read(sample)) is not None), None)


def find_all_stranded(record: FlightRecord) -> int | None:
    """Return the stranded bytes: of the segments where all are recorded, else of the statistics.

    The statistics do not count expandable segments.
    """
    if record.segments and not record.truncated.segments and not record.truncated.blocks:
        return sum(map(find_stranded, record.segments))
    if any(segment.is_expandable for segment in record.segments):
        return None
    return _read(record, "inactive_split_bytes", lambda sample: sample.inactive_split_bytes)


def find_needed(record: FlightRecord) -> int | None:
    """Return the device memory in bytes that the request needed, None where that is unknown.

    A request that no cached block can serve needs a whole segment (`choose_segment_size`). CUDA's hook
    reports
    the size of the segment and not of the request; a simulated device reports the request.
    """
    size = record.failure.size_bytes
    if size is None or size <= 0 or not record.process.is_simulated or _has_expandable(record):
        return size
    settings = _read_settings(record)
    rounded = round_request(size, settings.roundup_power2_divisions)
    return choose_segment_size(rounded, settings.large_segment_bytes)


def word_failure(record: FlightRecord, shares: DeviceShares) -> str:
    """Describe what failed, and why."""
    size = record.failure.size_bytes
    needed = find_needed(record)
    what = "a request of unknown size" if size is None else f"a request of {format_bytes(size)}"
    device = "" if shares.total_bytes is None else f" on a device of {format_bytes(shares.total_bytes)}"
    free = None if shares.free_bytes is None else format_bytes(shares.free_bytes)
    held = [
        f"{format_bytes(level)} {state}"
        for level, state in ((shares.allocated_bytes, "were allocated"), (shares.reserved_bytes, "reserved"))
        if level is not None
    ]
    if needed is not None and format_bytes(needed) != format_bytes(size):
        failed = f"{what} failed{device}: it needed a new segment of {format_bytes(needed)}"
        failed += "" if free is None else f", and {free} were free"
    else:
        failed = f"{what} failed{device}"
        held += [] if free is None else [f"{free} free on the device"]
    return "; ".join((failed, ", ".join(held))) if held else failed


def explain_request(record: FlightRecord, shares: DeviceShares) -> Iterator[str]:
    """Yield why nothing that was free served the request, and how much more would have."""
    if _has_expandable(record):
        yield "segments expand here, by whole pages: 2 MiB for requests up to 1 MiB, else 20 MiB"
    largest = _find_largest_free(record)
    if largest is not None:
        found = f"the largest free one has {format_bytes(largest)}" if largest else "none was free"
        yield f"no cached block was large enough: {found}"
    needed = find_needed(record)
    total = shares.total_bytes
    if needed is None or shares.free_bytes is None:
        return
    shortage = find_shortage(record, shares)
    if total is not None and needed > total:
        yield f"no device of {format_bytes(total)} can serve it, however much is free"
    elif shortage is not None:
        yield f"{format_bytes(shortage)} more free on the device would have been enough"
    elif not _has_expandable(record):
        yield (
            "that much was free on the device: the process may have its own limit "
            "(torch.cuda.set_per_process_memory_fraction)"
        )


def find_shortage(record: FlightRecord, shares: DeviceShares) -> int | None:
    """Return how much more should have been free on the device; None where that is unknown, or enough was."""
    needed = find_needed(record)
    free = shares.free_bytes
    return None if needed is None or free is None or free >= needed else needed - free


def count_earlier_retries(record: FlightRecord) -> int:
    """Return how often the cache was flushed before the request that failed, which flushed it once itself."""
    return max(0, int(record.stats.get("num_alloc_retries", 0)) - 1)


def _find_largest_free(record: FlightRecord) -> int | None:
    """Return the largest free block of the pool that serves the request, None where not all are known.

    A block as large as the request belongs to another stream; it explains nothing and counts as unknown.
    """
    size = record.failure.size_bytes
    if size is None or not record.segments or record.truncated.segments or record.truncated.blocks:
        return None
    # Without the request itself the hook's size shows the pool: segments of 2 MiB are of the small one.
    limit = SMALL_LIMIT_BYTES if record.process.is_simulated else 2 * SMALL_LIMIT_BYTES
    pool = "small" if size <= limit else "large"
    segments = [each for each in record.segments if each.pool == pool and not each.is_private]
    largest = max((size for each in segments for size, state in each.blocks if state == FREE), default=0)
    return largest if largest < size else None


def _has_expandable(record: FlightRecord) -> bool:
    return _read_settings(record).expandable_segments or any(each.is_expandable for each in record.segments)


def _read_settings(record: FlightRecord) -> AllocatorSettings:
    try:
        return AllocatorSettings.parse(record.allocator_settings or "")
    except AllocatorSettingsError:
        return AllocatorSettings()


# Share of the device from which something is worth naming.
_NOTABLE = 0.1
_LARGE = 0.25
# Whether it is enough depends on the order of allocations, which only a snapshot with history has.
_TRY_EXPANDABLE = (
    "PYTORCH_ALLOC_CONF=expandable_segments:True may free pages for use elsewhere; whether the job would run "
    "with it, `vramscope inspect SNAPSHOT` computes from a memory snapshot of the same error that was "
    "recorded with torch.cuda.memory._record_memory_history()"
)


def advise(record: FlightRecord, shares: DeviceShares, kept: KeptMemory | None) -> Iterator[str]:
    """Yield advice that follows from the numbers, the most promising first."""
    yield from _advise_on_kept(kept)
    yield from _advise_on_fragmentation(record, shares)
    yield from _advise_on_unallocated(record, shares)
    yield from _advise_on_streams(record, shares)
    yield from _advise_on_others(shares)
    yield from _advise_on_model(record, shares)
    yield from _advise_on_activations(record, shares, kept)


def _advise_on_kept(kept: KeptMemory | None) -> Iterator[str]:
    if kept is None:
        return
    growth = format_bytes(round(kept.growth_bytes_per_step))
    size = format_bytes(kept.size_bytes)
    where = ""
    if kept.holder is not None and kept.holder.headline is not None:
        line = kept.holder.headline
        where = (
            f", the most ({format_bytes(kept.holder.size_bytes)}) allocated by {line.name} at "
            f"{line.filename}:{line.line}"
        )
    yield (
        f"every step leaves about {growth} behind, and {size} are kept from step to step{where}: find "
        "what keeps them, such as a loss that is summed with its graph; a larger device would only "
        "fail later"
    )


def _advise_on_fragmentation(record: FlightRecord, shares: DeviceShares) -> Iterator[str]:
    stranded = shares.stranded_bytes
    size = record.failure.size_bytes
    is_enough = stranded is not None and size is not None and stranded >= size
    if not stranded or (not is_enough and stranded < max(_NOTABLE * (shares.reserved_bytes or 0), MIB)):
        return
    if any(segment.is_expandable for segment in record.segments):
        yield f"{format_bytes(stranded)} are stranded in parts of pages, although segments expand"
        return
    fits = ", enough for the request if they were in one piece" if is_enough else ""
    yield (f"{format_bytes(stranded)} are stranded between live blocks{fits}: {_TRY_EXPANDABLE}")


def _advise_on_unallocated(record: FlightRecord, shares: DeviceShares) -> Iterator[str]:
    """Advise on what is reserved and holds no tensor, where its kind is unknown."""
    left = shares.unallocated_bytes
    size = record.failure.size_bytes
    if not left or size is None:
        return
    if left >= size:
        yield (
            f"{format_bytes(left)} were reserved but had no tensor, enough for the request if they "
            f"were in one piece: {_TRY_EXPANDABLE}"
        )
    else:
        yield (
            f"only {format_bytes(left)} were reserved but had no tensor, less than the request: "
            "fragmentation is not the cause"
        )


def _advise_on_streams(record: FlightRecord, shares: DeviceShares) -> Iterator[str]:
    awaiting = shares.awaiting_bytes
    size = record.failure.size_bytes
    if awaiting and awaiting >= (size or 0):
        yield (
            f"{format_bytes(awaiting)} are freed but wait for another stream: let the side stream "
            "catch up earlier, or free its inputs after it has"
        )


def _advise_on_others(shares: DeviceShares) -> Iterator[str]:
    if shares.other_bytes is None or not shares.total_bytes:
        return
    # A context with its libraries needs some hundred MiB.
    if shares.other_bytes >= max(_NOTABLE * shares.total_bytes, GIB):
        yield (
            f"{format_bytes(shares.other_bytes)} of the device are outside this process's allocator: "
            "look for other processes on it"
        )


def _advise_on_model(record: FlightRecord, shares: DeviceShares) -> Iterator[str]:
    model = record.model_state
    total = shares.total_bytes
    if model is None or not total:
        return
    if (model.grad_sample_bytes or 0) >= _NOTABLE * total:
        yield (
            f"per-sample gradients take {format_bytes(model.grad_sample_bytes)}: a smaller physical "
            "batch (Opacus BatchMemoryManager) lowers them in proportion"
        )
    if (model.optimizer_bytes or 0) >= _LARGE * total:
        yield (
            f"optimizer state takes {format_bytes(model.optimizer_bytes)}: shard it over the "
            "data-parallel ranks, or keep it in fewer bits"
        )


def _advise_on_activations(
    record: FlightRecord, shares: DeviceShares, kept: KeptMemory | None
) -> Iterator[str]:
    """Advise on what a smaller micro-batch lowers, unless more than that is kept from step to step."""
    rest = _find_rest(record, shares, kept)
    if rest is None or not shares.total_bytes or (kept is not None and kept.size_bytes >= rest):
        return
    if rest >= _LARGE * shares.total_bytes:
        not_kept = "" if kept is None else ", nor kept from step to step"
        yield (
            f"{format_bytes(rest)} are neither parameters, gradients nor optimizer state{not_kept}, so "
            "mostly activations: a smaller micro-batch, shorter sequences or checkpointing lowers them"
        )


def _find_rest(record: FlightRecord, shares: DeviceShares, kept: KeptMemory | None) -> int | None:
    """Return what is allocated apart from the model's state and what steps leave behind; None if unknown."""
    state = sum_model_state(record)
    if state is None or shares.allocated_bytes is None or state > shares.allocated_bytes:
        return None
    return max(0, shares.allocated_bytes - state - (0 if kept is None else kept.size_bytes))


# A line that holds so many times what was kept is not the leak; it may be the model's own.
_SLACK = 1.1
# Most steps between two moments at which something is kept.
_FEW_STEPS = 10


def find_kept(
    record: FlightRecord, trend: FloorTrend | None, stacks: Sequence[StackGroup]
) -> KeptMemory | None:
    """Return what is kept from step to step; None where the floors do not grow steadily.

    It is the newest floor less the model's state; where that is unknown, or its gradients are gone at the
    floor, the growth of the floors over the record, which is a lower bound.
    """
    if trend is None or not trend.is_rising:
        return None
    growth = trend.last_bytes - trend.first_bytes
    state = sum_model_state(record)
    newest = next(step.floor_bytes for step in reversed(record.steps) if step.floor_bytes is not None)
    size = growth if state is None else max(growth, newest - state)
    holder = next((group for group in stacks if _may_hold(group, size, trend.steps)), None)
    return KeptMemory(size_bytes=size, growth_bytes_per_step=trend.growth_bytes_per_step, holder=holder)


def _may_hold(group: StackGroup, kept_bytes: int, steps: int) -> bool:
    """Return whether a line may leak: it holds no more than is kept, and a block of each step.

    Where something is kept every few steps only, as an evaluation is, it must hold most of it.
    """
    if group.headline is None or group.size_bytes > _SLACK * kept_bytes:
        return False
    is_most = group.size_bytes >= kept_bytes / 2
    return group.count >= steps or (is_most and group.count >= steps // _FEW_STEPS)


def sum_model_state(record: FlightRecord) -> int | None:
    """Return the bytes of parameters, gradients and optimizer state; None if one is unknown."""
    model = record.model_state
    if model is None:
        return None
    parts = (model.parameters_bytes, model.gradients_bytes, model.optimizer_bytes)
    if any(part is None for part in parts):
        return None
    return sum(part or 0 for part in (*parts, model.grad_sample_bytes))
