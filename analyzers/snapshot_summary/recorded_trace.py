"""The recorded trace of a device as events to replay, and the capacity of the card that it was recorded on.

A trace is a ring: its oldest entry is seldom the job's first allocation. Every block that lived before is
still known, though: it was freed within the trace, or it lives in the segments at the end. Unknown are the
order in which those were allocated, and what was cached. So a replay begins by allocating them in order of
address.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from ...engine.model.memory_snapshot import UNMEASURED, BlockState, MemorySnapshot, TraceAction, TraceColumns
from ...engine.units import MIB
from ..allocator_model import AllocatorSettings
from ..allocator_model.settings import SMALL_SEGMENT_BYTES, choose_segment_size
from . import Timeline

# Addresses of events that no block has: the whole cache given back because the program asked for it, and a
# request that failed.
EMPTIED_ADDRESS = -1
FAILED_ADDRESS = -2

# Segments are multiples of it, and the capacity of a card is known no better.
SEGMENT_STEP_BYTES = 2 * MIB

CapacitySource = Literal["given", "oom", "full", "device"]


class ReplayEvent(NamedTuple):
    """One allocation, or one free where the size is 0; or what the address says."""

    # Names the block for as long as it lives; or `EMPTIED_ADDRESS`, `FAILED_ADDRESS`.
    address: int
    size_bytes: int
    stream: int


class LiveBlock(NamedTuple):
    """One block that lives in the segments at the end."""

    address: int
    # Requested bytes, where the file has them.
    size_bytes: int
    stream: int


class CardEvidence(msgspec.Struct, frozen=True):
    """What a trace says of the card that it was recorded on."""

    # Most that the allocator could reserve; None where nothing shows it.
    capacity_bytes: int | None = None
    # "oom": free memory at an out-of-memory error; "full": segments that were given back for a request;
    # "device": the whole simulated card.
    source: CapacitySource | None = None
    # How often segments were given back to make room for a request.
    full: int = 0
    # Rows where the program emptied its cache.
    emptied_rows: tuple[int, ...] = ()


class RecordedTrace(msgspec.Struct, frozen=True):
    # Blocks that lived before the first event, in order of address.
    before: tuple[ReplayEvent, ...]
    events: tuple[ReplayEvent, ...]
    # Allocations and frees among the events.
    allocations_and_frees: int
    # Older allocations and frees of the trace.
    events_left_out: int
    # Most that was reserved during the events, as recorded.
    peak_reserved_bytes: int
    card: CardEvidence

    @property
    def before_bytes(self) -> int:
        return sum(event.size_bytes for event in self.before)

    @property
    def failed(self) -> int:
        """Requests that failed."""
        return sum(event.address == FAILED_ADDRESS for event in self.events)

    @property
    def times_given_back(self) -> int:
        """How often cached memory was given back to the card, for whatever reason."""
        return self.card.full + len(self.card.emptied_rows)


def record_trace(
    snapshot: MemorySnapshot,
    trace: TraceColumns,
    levels: Timeline,
    *,
    own: AllocatorSettings,
    most_events: int,
    is_card_constant: bool = True,
) -> RecordedTrace:
    """Return the newest events of a device, what lived before them and what they say of the card.

    Args:
        levels: The levels after each event of the trace.
        own: The settings that it was recorded with.
        most_events: Allocations and frees to return, the newest.
        is_card_constant: Whether the allocator had the same capacity all the time. Otherwise nothing is
            concluded about it, and whatever was given back counts as emptied by the program.
    """
    # A block that waits for another stream is free once that is done; older files do not record it.
    is_completed = TraceAction.FREE_COMPLETED in trace.action
    free = TraceAction.FREE_COMPLETED if is_completed else TraceAction.FREE_REQUESTED
    rows = [row for row, action in enumerate(trace.action) if action in (TraceAction.ALLOC, free)]
    chosen = rows[-most_events:]
    first_row = chosen[0] if chosen else 0
    card = find_card(trace, levels, first_row, own=own, is_constant=is_card_constant)
    if card.capacity_bytes is None and snapshot.simulated is not None:
        card = msgspec.structs.replace(card, capacity_bytes=snapshot.simulated.total_bytes, source="device")
    failed = [row for row in range(first_row, len(trace)) if trace.action[row] == TraceAction.OOM]
    emptied = set(card.emptied_rows)
    events: list[ReplayEvent] = []
    before: dict[int, ReplayEvent] = {}
    live: set[int] = set()
    for row in sorted([*chosen, *failed, *emptied]):
        address, size, stream = trace.address[row], max(1, trace.size_bytes[row]), trace.stream[row]
        if row in emptied:
            events.append(ReplayEvent(EMPTIED_ADDRESS, 0, 0))
        elif trace.action[row] == TraceAction.OOM:
            events.append(ReplayEvent(FAILED_ADDRESS, size, stream))
        elif trace.action[row] == TraceAction.ALLOC:
            live.add(address)
            events.append(ReplayEvent(address, size, stream))
        else:
            if address not in live:
                before[address] = ReplayEvent(address, size, stream)
            live.discard(address)
            events.append(ReplayEvent(address, 0, stream))
    touched = {event.address for event in events}
    for block in list_live(snapshot, trace.device):
        if block.address not in live and block.address not in touched:
            before[block.address] = ReplayEvent(*block)
    return RecordedTrace(
        before=tuple(before[address] for address in sorted(before)),
        events=tuple(events),
        allocations_and_frees=len(chosen),
        events_left_out=len(rows) - len(chosen),
        peak_reserved_bytes=_find_peak(levels, first_row),
        card=card,
    )


def _find_peak(levels: Timeline, first_row: int) -> int:
    """Return the most that was reserved from a row of the trace on, and just before it."""
    return max(_reserved_before(levels, first_row), int(levels.reserved_bytes[first_row:].max()))


def _reserved_before(levels: Timeline, row: int) -> int:
    return int(levels.reserved_bytes[row - 1]) if row else levels.start_reserved_bytes


def list_live(snapshot: MemorySnapshot, device: int) -> Iterator[LiveBlock]:
    """Yield the live blocks of a device outside private pools."""
    segments = snapshot.segments
    blocks = snapshot.blocks
    for segment in range(len(segments)):
        if segments.device[segment] != device or is_private(snapshot, segment):
            continue
        for block in range(segments.first_block[segment], segments.first_block[segment + 1]):
            if blocks.state[block] == BlockState.INACTIVE:
                continue
            requested = blocks.requested_bytes[block]
            size = requested if requested > 0 else blocks.size_bytes[block]
            yield LiveBlock(blocks.address[block], size, segments.stream[segment])


def is_private(snapshot: MemorySnapshot, segment: int) -> bool:
    """Return whether a segment belongs to a private pool, such as that of a CUDA graph."""
    segments = snapshot.segments
    return (segments.pool_owner[segment], segments.pool_number[segment]) != (0, 0)


# Why segments were given back. The program asked for it (`empty_cache()`); or a request found no room, which
# bounds the capacity. A trace does not say which, but:
#
# - What is given back for a request has the stack of that request, and its new segment follows at once, or
#   the out-of-memory error.
# - The request found no room: what was reserved, plus its segment, exceeds the capacity, and so whatever was
#   reserved at any other time.
# - No segment that was given back would have served it.
#
# Where stacks were not recorded, the latter two decide; then a trace in which the program did empty its cache
# says nothing about the others.

_GIVEN_BACK = (TraceAction.SEGMENT_FREE, TraceAction.SEGMENT_UNMAP)
_OBTAINED = (TraceAction.SEGMENT_ALLOC, TraceAction.SEGMENT_MAP)


class _Release(NamedTuple):
    """A run of segments that were given back."""

    rows: range
    reserved_before: int
    # The new segment of the request for which there was no room; None where no request follows.
    asked_bytes: int | None
    # Whether the request has the same stack; None where stacks were not recorded.
    has_stack_of_request: bool | None


def find_card(
    trace: TraceColumns, levels: Timeline, first_row: int, *, own: AllocatorSettings, is_constant: bool = True
) -> CardEvidence:
    """Return what the rows of a trace, from one on, say of the card.

    Args:
        own: The settings that it was recorded with.
        is_constant: Whether the allocator had the same capacity all the time.
    """
    peak = _find_peak(levels, first_row)
    releases = list(_find_releases(trace, levels, first_row, own))
    full = [each for each in releases if _is_for_request(trace, each, peak, own)]
    if any(each.has_stack_of_request is None for each in full) and len(full) < len(releases):
        full = [each for each in full if each.has_stack_of_request]
    gives_back_parts = own.max_split_bytes is not None or own.garbage_collection_threshold > 0
    emptied = tuple(each.rows.start for each in releases if each not in full)
    if not is_constant:
        # A part of the cache was given back for a request, and is again by the model.
        emptied = tuple(
            each.rows.start for each in releases if each.asked_bytes is None or not gives_back_parts
        )
        return CardEvidence(full=len(releases) - len(emptied), emptied_rows=emptied)
    capacity, source = _bound_capacity(trace, levels, first_row, full, own)
    return CardEvidence(capacity, source, len(full), emptied)


def _find_releases(
    trace: TraceColumns, levels: Timeline, first_row: int, own: AllocatorSettings
) -> Iterator[_Release]:
    row = first_row
    while row < len(trace):
        start = row
        while row < len(trace) and trace.action[row] in _GIVEN_BACK:
            row += 1
        if row > start:
            rows = range(start, row)
            asked = _measure_request(trace, row, own)
            stacks = {trace.stack[each] for each in rows}
            if asked is not None:
                stacks.add(trace.stack[row])
            has_stack = None if stacks == {UNMEASURED} else len(stacks) == 1
            yield _Release(rows, _reserved_before(levels, start), asked, has_stack)
        row += 1


def _measure_request(trace: TraceColumns, row: int, own: AllocatorSettings) -> int | None:
    """Return the bytes that a request asks of the device at a row, None where there is none."""
    if row == len(trace):
        return None
    if trace.action[row] == TraceAction.OOM:
        return _size_segment(trace.size_bytes[row], own)
    asked = 0
    while row < len(trace) and trace.action[row] in _OBTAINED:
        asked += trace.size_bytes[row]
        row += 1
    return asked or None


def _size_segment(size_bytes: int, own: AllocatorSettings) -> int:
    """Return what a block that no cached one can serve asks of the device at most."""
    segment = choose_segment_size(size_bytes, own.large_segment_bytes)
    if own.expandable_segments and segment > SMALL_SEGMENT_BYTES:
        # Whole pages; fewer where the end of its range is free already.
        return -(-size_bytes // own.large_segment_bytes) * own.large_segment_bytes
    return segment


def _is_for_request(trace: TraceColumns, release: _Release, peak: int, own: AllocatorSettings) -> bool:
    """Return whether segments were given back because a request found no room."""
    if release.asked_bytes is None or release.has_stack_of_request is False:
        return False
    if _collects_garbage(own):
        return True
    if release.reserved_before + release.asked_bytes <= peak:
        return False
    is_served_by_larger = own.max_split_bytes is None and not own.expandable_segments
    return not (is_served_by_larger and _would_have_served(trace, release, release.asked_bytes))


def _collects_garbage(own: AllocatorSettings) -> bool:
    return own.garbage_collection_threshold > 0 and own.memory_fraction < 1


def _would_have_served(trace: TraceColumns, release: _Release, asked_bytes: int) -> bool:
    """Return whether the cache had a whole segment of the request's pool and stream, of enough bytes."""
    return any(
        trace.stream[row] == trace.stream[release.rows.stop]
        and trace.size_bytes[row] >= asked_bytes
        and (trace.size_bytes[row] == SMALL_SEGMENT_BYTES) == (asked_bytes == SMALL_SEGMENT_BYTES)
        for row in release.rows
    )


def _bound_capacity(
    trace: TraceColumns,
    levels: Timeline,
    first_row: int,
    full: Sequence[_Release],
    own: AllocatorSettings,
) -> tuple[int | None, CapacitySource | None]:
    """Return the most that the allocator could reserve, and what says so."""
    peak = _find_peak(levels, first_row)
    exact: list[int] = []
    too_much: list[int] = []
    for row in range(first_row, len(trace)):
        if trace.action[row] == TraceAction.OOM:
            asked = _size_segment(trace.size_bytes[row], own)
            reserved = _reserved_before(levels, row)
            if UNMEASURED < trace.address[row] < asked:
                exact.append(reserved + trace.address[row])
            else:
                # The device had room: a fraction of it is all that the process may have.
                too_much.append(reserved + asked)
    if exact:
        # What other processes had may have changed; the process did have its peak.
        return max(peak, *exact), "oom"
    if _collects_garbage(own):
        too_much += [int(each.reserved_before / own.garbage_collection_threshold) for each in full]
    else:
        too_much += [each.reserved_before + (each.asked_bytes or 0) for each in full]
    if not too_much:
        return None, None
    if own.expandable_segments:
        # A request may have lacked only the last of its pages; so the bound is loose, and the peak is near.
        return peak, "full"
    return max(peak, min(too_much) - SEGMENT_STEP_BYTES), "full"
