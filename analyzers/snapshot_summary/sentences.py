"""What the figures of one device come to, in sentences."""

from collections.abc import Iterator, Sequence

from ...engine.units import GIB, MIB, TIB, format_bytes, format_gib
from .model import FailedRequest, MemoryLevels, RequestFit, StackGroup

_NOTABLE_PERCENT = 1


def describe_device(
    levels: MemoryLevels,
    stacks: Sequence[StackGroup],
    requests: Sequence[RequestFit],
    failures: Sequence[FailedRequest],
) -> tuple[str, ...]:
    """Return the sentences of one device, the most important first.

    Args:
        levels: Its bytes.
        stacks: Its largest groups of live blocks.
        requests: Its frequent requests.
        failures: Its out-of-memory events, the newest first.
    """
    return (
        *(_describe_failure(failure) for failure in failures[:1]),
        _describe_levels(levels),
        *_describe_rest(levels),
        *_describe_requests(requests),
        *_describe_largest(stacks),
    )


def _describe_failure(failure: FailedRequest) -> str:
    allocated, reserved = format_bytes(failure.allocated_bytes), format_bytes(failure.reserved_bytes)
    return (
        f"a request of {format_bytes(failure.size_bytes)} failed while {allocated} were allocated, "
        f"{reserved} reserved, and the driver had {format_bytes(failure.device_free_bytes)} free"
    )


def _describe_levels(levels: MemoryLevels) -> str:
    if not levels.reserved_bytes:
        return "nothing was reserved"
    parts = [f"{_pair(levels.active_bytes, levels.reserved_bytes)} reserved are live"]
    if levels.stranded_bytes:
        noun = "segment" if levels.stranded_segments == 1 else "segments"
        verb = "is" if levels.stranded_bytes in (MIB, GIB) else "are"
        parts.append(
            f"{format_bytes(levels.stranded_bytes)} {verb} stranded in {levels.stranded_segments:,} {noun}"
        )
    if levels.free_bytes:
        beyond = format_bytes(next_round_size(levels.largest_free_bytes))
        need = "more pages from the driver" if levels.expandable_segments else "a new segment"
        parts.append(
            f"the largest free block is {format_bytes(levels.largest_free_bytes)}, so a request of {beyond} "
            f"would need {need}"
        )
    return "; ".join(parts)


def _pair(part_bytes: int, whole_bytes: int) -> str:
    """Return `31.2 of 33.0 GiB`, both in the unit of the whole."""
    if GIB <= whole_bytes < TIB:
        return f"{format_gib(part_bytes)} of {format_gib(whole_bytes)} GiB"
    return f"{format_bytes(part_bytes)} of {format_bytes(whole_bytes)}"


def next_round_size(size_bytes: int) -> int:
    """Return the least power of two that is larger than a size, and that reads so."""
    larger = 1 << size_bytes.bit_length()
    return larger if format_bytes(larger) != format_bytes(size_bytes) else 2 * larger


def show_share(share: float) -> str:
    """Return a part of 1 in percent, with as many places as a small one needs."""
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"


def _describe_rest(levels: MemoryLevels) -> Iterator[str]:
    notable_bytes = levels.reserved_bytes * _NOTABLE_PERCENT // 100
    if levels.releasable_bytes > notable_bytes:
        yield (
            f"{format_bytes(levels.releasable_bytes)} are cached in whole segments or pages that "
            "torch.cuda.empty_cache() would give back"
        )
    if levels.internal_bytes is not None and levels.internal_bytes > notable_bytes:
        yield (
            f"{format_bytes(levels.internal_bytes)} of the live bytes were not asked for: rounding, and "
            "remainders too small to split off"
        )
    waiting_bytes = levels.active_bytes - levels.allocated_bytes
    if waiting_bytes > notable_bytes:
        yield (
            f"{format_bytes(waiting_bytes)} are freed but wait for another stream (record_stream); "
            "they cannot be used before that stream has caught up"
        )


def _describe_requests(requests: Sequence[RequestFit]) -> Iterator[str]:
    unservable = [request for request in requests if not request.servable]
    if unservable:
        largest = max(unservable, key=lambda request: request.size_bytes)
        yield (
            f"of the {len(requests)} sizes that the job asks for most, {len(unservable)} would need a new "
            f"segment now; the largest of them is {format_bytes(largest.size_bytes)}"
        )


def _describe_largest(stacks: Sequence[StackGroup]) -> Iterator[str]:
    named = next((group for group in stacks if group.headline is not None), None)
    unnamed = next((group for group in stacks if group.headline is None), None)
    if named is not None and named.headline is not None:
        place = f"{named.headline.name} at {named.headline.filename}:{named.headline.line}"
        yield f"{_count_share(named)} come from {place}"
        if unnamed is not None and unnamed.size_bytes > named.size_bytes:
            yield f"{_count_share(unnamed)} have no stack: they were allocated before history was recorded"
    elif unnamed is not None:
        yield (
            "no stacks were recorded: call torch.cuda.memory._record_memory_history() at the start "
            "of the program to see which lines hold the memory"
        )


def _count_share(group: StackGroup) -> str:
    noun = "block" if group.count == 1 else "blocks"
    return (
        f"{show_share(group.share)} of the live bytes ({format_bytes(group.size_bytes)} in "
        f"{group.count:,} {noun})"
    )
