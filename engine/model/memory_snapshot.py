"""A memory snapshot in columns: what one file says, fit for millions of blocks and events.

Columns are arrays of the standard library, which numpy reads without a copy. In them `UNMEASURED` stands for
what the file does not say.
"""

from array import array
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from . import segments

if TYPE_CHECKING:
    IntColumn = array[int]
else:
    # Before Python 3.12 the class takes no subscript, and msgspec evaluates annotations.
    IntColumn = array

UNMEASURED = -1
"""A size, time or stack that the file does not have."""


class BlockState(IntEnum):
    """What a block is used for: the codes of a segment map."""

    INACTIVE = segments.FREE
    """Free: kept for the next request that fits."""
    ALLOCATED = segments.ALLOCATED
    """Handed to a tensor (`active_allocated`)."""
    PENDING_FREE = segments.AWAITING_FREE
    """Freed, but another stream may still use it (`active_pending_free`, also `active_awaiting_free`)."""


class TraceAction(IntEnum):
    """What happened, as a code in the column `TraceColumns.action`."""

    ALLOC = 0
    FREE_REQUESTED = 1
    """The tensor died; the block stays active while another stream may use it."""
    FREE_COMPLETED = 2
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    SEGMENT_MAP = 5
    SEGMENT_UNMAP = 6
    SNAPSHOT = 7
    OOM = 8
    OTHER = 9
    """An action that a newer PyTorch may have added; it changes no level."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame of a stack."""

    filename: str
    line: int
    name: str


class SegmentColumns(msgspec.Struct, frozen=True):
    """The segments, in the order of the file."""

    device: IntColumn
    address: IntColumn
    total_bytes: IntColumn
    stream: IntColumn
    is_large: IntColumn
    """1 in the pool of large blocks, 0 in that of small ones."""
    pool_owner: IntColumn
    """First number of the pool id; (0, 0) is the default pool, any other a private one (CUDA graphs)."""
    pool_number: IntColumn
    is_expandable: IntColumn
    stack: IntColumn
    first_block: IntColumn
    """Row of its first block; one entry more than there are segments, so that each ends at the next."""

    def __len__(self) -> int:
        return len(self.device)


class BlockColumns(msgspec.Struct, frozen=True):
    """The blocks of all segments, in address order within each."""

    address: IntColumn
    size_bytes: IntColumn
    """Rounded, as the statistics of PyTorch count."""
    requested_bytes: IntColumn
    """What the caller asked for, or `UNMEASURED`."""
    state: IntColumn
    stack: IntColumn
    """Row in the stacks: where it was allocated; `UNMEASURED` without recorded history."""

    def __len__(self) -> int:
        return len(self.address)


class TraceColumns(msgspec.Struct, frozen=True):
    """The events of one device, oldest first: the newest part of a ring."""

    device: int
    action: IntColumn
    address: IntColumn
    """Where; for an OOM event the bytes that the driver reported free."""
    size_bytes: IntColumn
    """For blocks what the caller asked for, not rounded; for segments exact; for OOM what failed."""
    stream: IntColumn
    time_us: IntColumn
    """Microseconds since the epoch, or `UNMEASURED`."""
    stack: IntColumn
    is_overflowed: bool | None = None
    """Whether older events were dropped; None where the file does not tell."""

    def __len__(self) -> int:
        return len(self.action)


class StackTable(msgspec.Struct, frozen=True):
    """The distinct stacks, innermost frame first."""

    frames: tuple[Frame, ...] = ()
    members: IntColumn = array("i")
    """Rows of frames, stack after stack."""
    starts: IntColumn = array("q", [0])
    """Where in `members` each stack starts; one entry more than there are stacks."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    def frames_of(self, stack: int) -> tuple[Frame, ...]:
        """Return the frames of a stack, innermost first; none for `UNMEASURED`."""
        if stack < 0:
            return ()
        return tuple(self.frames[row] for row in self.members[self.starts[stack] : self.starts[stack + 1]])


class Annotation(msgspec.Struct, frozen=True, gc=False):
    """A mark that a program set beside the trace (a profiler step, a phase)."""

    device: int
    time_us: int
    name: str
    stage: str = ""
    """`START`, `END`, or nothing."""


class SimulatedCard(msgspec.Struct, frozen=True):
    """The modelled card that a snapshot is of, where the job ran on a simulated device."""

    total_bytes: int | None = None
    name: str | None = None


class MemorySnapshot(msgspec.Struct, frozen=True):
    """What one file says."""

    segments: SegmentColumns
    blocks: BlockColumns
    traces: tuple[TraceColumns, ...] = ()
    """One of each device that has events."""
    stacks: StackTable = StackTable()
    settings: tuple[tuple[str, str], ...] = ()
    """The allocator's settings as text, in the order of the file."""
    annotations: tuple[Annotation, ...] = ()
    annotations_omitted: int = 0
    notes: tuple[str, ...] = ()
    """What is amiss in the file or was left out, one sentence each."""
    path: Path | None = None
    simulated: SimulatedCard | None = None
    """The card that was modelled; None for a snapshot of a real one."""

    @property
    def devices(self) -> tuple[int, ...]:
        """The ordinals of the devices that have segments or events, in order."""
        return tuple(sorted({*self.segments.device, *(trace.device for trace in self.traces)}))
