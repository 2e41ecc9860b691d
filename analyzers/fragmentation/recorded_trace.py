"""A recorded allocation trace made ready for a replay: events, and what was there before the first of them.

A trace is a ring: its oldest entry is seldom the job's first allocation. Every block that lived before is
still known, though: it was freed within the trace, or it lives in the segments at the end. Unknown are the
order in which those were allocated, and what was cached. So a replay begins by allocating them in order of
address, and `advice` holds its outcome against what was really reserved before it says anything.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ...engine.model.memory_snapshot import BlockState, MemorySnapshot, TraceAction, TraceColumns

_FREES = (TraceAction.FREE_REQUESTED, TraceAction.FREE_COMPLETED)


class ReplayEvent(NamedTuple):
    """One allocation, or one free where the size is 0."""

    address: int
    """Names the block for as long as it lives."""
    size_bytes: int
    stream: int


class LiveBlock(NamedTuple):
    """One block that lives in the segments at the end."""

    address: int
    size_bytes: int
    """What was asked for, where the file tells."""
    stream: int


class RecordedTrace(msgspec.Struct, frozen=True):
    """The newest allocations and frees of one device."""

    before: tuple[ReplayEvent, ...]
    """Blocks that lived before the first event, in order of address."""
    events: tuple[ReplayEvent, ...]
    events_left_out: int
    """Older allocations and frees of the trace."""
    first_row: int
    """Row of the trace where the events begin."""

    @property
    def before_bytes(self) -> int:
        """What lived before the first event."""
        return sum(event.size_bytes for event in self.before)


def record_trace(snapshot: MemorySnapshot, trace: TraceColumns, *, most_events: int) -> RecordedTrace:
    """Return the newest events of a device and what lived before them.

    Args:
        snapshot: What was read from the file.
        trace: The events of one device.
        most_events: How many allocations and frees to keep.
    """
    # A block that waits for another stream is free once that is done; older files do not tell of it.
    is_completed = TraceAction.FREE_COMPLETED in trace.action
    free = TraceAction.FREE_COMPLETED if is_completed else TraceAction.FREE_REQUESTED
    rows = [row for row, action in enumerate(trace.action) if action in (TraceAction.ALLOC, free)]
    chosen = rows[-most_events:]
    events: list[ReplayEvent] = []
    before: dict[int, ReplayEvent] = {}
    live: set[int] = set()
    for row in chosen:
        address, size, stream = trace.address[row], trace.size_bytes[row], trace.stream[row]
        if trace.action[row] == TraceAction.ALLOC:
            live.add(address)
            events.append(ReplayEvent(address, max(1, size), stream))
            continue
        if address not in live:
            before[address] = ReplayEvent(address, max(1, size), stream)
        live.discard(address)
        events.append(ReplayEvent(address, 0, stream))
    touched = {event.address for event in events}
    for block in list_live(snapshot, trace.device):
        if block.address not in live and block.address not in touched:
            before[block.address] = ReplayEvent(*block)
    return RecordedTrace(
        before=tuple(before[address] for address in sorted(before)),
        events=tuple(events),
        events_left_out=len(rows) - len(chosen),
        first_row=chosen[0] if chosen else 0,
    )


def list_live(snapshot: MemorySnapshot, device: int) -> Iterator[LiveBlock]:
    """Yield the live blocks of a device outside private pools."""
    segments, blocks = snapshot.segments, snapshot.blocks
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
