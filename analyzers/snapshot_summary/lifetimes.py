"""When every block of a trace was allocated and freed, so that any moment can be asked what lived then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...engine.model.memory_snapshot import UNMEASURED, BlockState, TraceAction, TraceColumns, round_up

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .view import BoolArray, DeviceView, IntArray

    EventArray = NDArray[np.int32]


@dataclass(frozen=True)
class Lifetimes:
    """Blocks of one device, each with the events between which it was live, in columns of equal length."""

    # Number of the event that allocated it; -1 for blocks from before the first event.
    born: EventArray
    # Number of the event at which its tensor died; the number of events where it lives at the end.
    died: EventArray
    # As `Timeline` counts: exact where the block lives at the end, else the request rounded up to 512 B.
    size_bytes: IntArray
    # Where it was allocated, as a row of the stacks; `UNMEASURED` where the file does not say.
    stack: IntArray
    # Allocations that no event frees and that the end lacks: of them it is unknown when they ended.
    lost: int = 0

    def find_live(self, event: int) -> IntArray:
        """Return the rows of the blocks that live after an event; -1 asks for the state before the first."""
        import numpy as np

        return np.flatnonzero((self.born <= event) & (self.died > event))


def follow_blocks(trace: TraceColumns | None, view: DeviceView) -> Lifetimes:
    """Return the lifetimes of all blocks of a device; without a trace, those that live at its end.

    Between two events at one address a block lives if the second one frees it; after the last one if the
    snapshot has a live block there. So a life that began before the trace is found by its end.
    """
    import numpy as np

    is_final = view.state == int(BlockState.ALLOCATED)
    count = 0 if trace is None else len(trace)
    if trace is None or not count:
        lives = int(np.count_nonzero(is_final))
        return Lifetimes(
            born=np.full(lives, -1, dtype=np.int32),
            died=np.zeros(lives, dtype=np.int32),
            size_bytes=view.size_bytes[is_final],
            stack=view.stack[is_final],
        )
    events = _sort_events(trace)
    address = np.asarray(trace.address)[events]
    is_free = np.asarray(trace.action)[events] == int(TraceAction.FREE_REQUESTED)
    is_first = np.ones(len(events), dtype=bool)
    is_first[1:] = address[1:] != address[:-1]
    before = np.full(len(events), -1, dtype=np.int64)
    before[1:] = np.where(is_first[1:], -1, events[:-1])
    # Lives that an event of the trace ends.
    born, died = before[is_free], events[is_free]
    size_bytes = round_up(np.asarray(trace.size_bytes)[died])
    stack = _find_stacks(trace, born, died)
    # Lives that go on to the end begin with the last event at their address.
    last = events[np.roll(is_first, -1)]
    found, rows = _match(np.asarray(trace.address)[last], view.address[is_final])
    began = np.full(int(np.count_nonzero(is_final)), -1, dtype=np.int64)
    began[found] = last[rows]
    lost = int(np.count_nonzero(~is_free)) - int(np.count_nonzero(_is_alloc(trace, born)))
    lost -= int(np.count_nonzero(_is_alloc(trace, began)))
    final_stack = view.stack[is_final].copy()
    is_unknown = (final_stack == UNMEASURED) & (began >= 0)
    final_stack[is_unknown] = np.asarray(trace.stack)[began[is_unknown]]
    return Lifetimes(
        born=np.concatenate([born, began]).astype(np.int32),
        died=np.concatenate([died, np.full(len(began), count)]).astype(np.int32),
        size_bytes=np.concatenate([size_bytes, view.size_bytes[is_final]]),
        stack=np.concatenate([stack, final_stack]),
        lost=lost,
    )


def _is_alloc(trace: TraceColumns, event: IntArray) -> BoolArray:
    """Return whether events are allocations; -1 is none."""
    import numpy as np

    is_alloc: BoolArray = (event >= 0) & (np.asarray(trace.action)[event] == int(TraceAction.ALLOC))
    return is_alloc


def _sort_events(trace: TraceColumns) -> IntArray:
    """Return the events at which blocks begin and end, by address, and in order of time at each."""
    import numpy as np

    action = np.asarray(trace.action)
    chosen = np.flatnonzero((action == int(TraceAction.ALLOC)) | (action == int(TraceAction.FREE_REQUESTED)))
    order: IntArray = chosen[np.argsort(np.asarray(trace.address)[chosen], kind="stable")]
    return order


def _find_stacks(trace: TraceColumns, born: IntArray, died: IntArray) -> IntArray:
    """Return where the blocks that were freed had been allocated.

    The stack of a free is that of its allocation, unless PyTorch recorded frees as well (`context="all"`):
    then it is where the block was freed, which says nothing about a block from before the trace.
    """
    import numpy as np

    of_event = np.asarray(trace.stack, dtype=np.int64)
    is_seen = born >= 0
    freed = of_event[died]
    allocated = np.where(is_seen, of_event[np.maximum(born, 0)], UNMEASURED)
    are_frees_recorded = bool((is_seen & (freed != UNMEASURED) & (freed != allocated)).any())
    unseen = np.full_like(freed, UNMEASURED) if are_frees_recorded else freed
    return np.where(is_seen, allocated, unseen)


def _match(wanted: NDArray[np.uint64], known: NDArray[np.uint64]) -> tuple[IntArray, IntArray]:
    """Return the rows of `known` and of `wanted` that have the same address."""
    import numpy as np

    _, of_known, of_wanted = np.intersect1d(known, wanted, return_indices=True)
    return of_known, of_wanted
