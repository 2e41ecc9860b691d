"""What PyTorch writes of its allocator: memory snapshots, their levels over time, flight records."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from . import sample as segments
from .sample import LiveStack, ModelStateReading, RankCoordinates, Segment

# Columns are arrays of the standard library, which numpy reads without a copy. In them `UNMEASURED` stands
# for what the file does not say.

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
    """Whether older events were dropped; None where the file does not say."""

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
    """A mark that a program added to the trace (a profiler step, a phase)."""

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


# A trace is a ring: what was live before its oldest event is not in it. The final state of the segments is,
# so the levels are computed backwards from there.

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]

ROUNDING_BYTES = 512
"""Blocks are multiples of this (`kMinBlockSize` of the caching allocator); traces have what was asked for."""


@dataclass(frozen=True)
class FinalState:
    """A device when its snapshot was taken."""

    live_address: NDArray[np.uint64]
    """Where its allocated blocks are."""
    live_bytes: IntArray
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True)
class TraceLevels:
    """Levels after each event of a trace, in columns of equal length."""

    allocated_bytes: IntArray
    """Live tensors: a block leaves when its tensor dies. A block that was freed since counts with the
    requested size, rounded up to 512 B, so that the level may be below the allocator's own by the remainders
    (each up to 1 MiB) that were not split off.
    """
    reserved_bytes: IntArray
    start_allocated_bytes: int
    start_reserved_bytes: int


def compute_levels(trace: TraceColumns, final: FinalState) -> TraceLevels:
    """Return the levels after each event."""
    import numpy as np

    action = np.asarray(trace.action)
    allocated = np.zeros(len(trace), dtype=np.int64)
    rounded = _size_blocks(trace, final)
    _change(allocated, action, rounded, gains=[TraceAction.ALLOC], losses=[TraceAction.FREE_REQUESTED])
    reserved = np.zeros(len(trace), dtype=np.int64)
    gains = [TraceAction.SEGMENT_ALLOC, TraceAction.SEGMENT_MAP]
    losses = [TraceAction.SEGMENT_FREE, TraceAction.SEGMENT_UNMAP]
    _change(reserved, action, np.asarray(trace.size_bytes), gains=gains, losses=losses)
    after_allocated, start_allocated = _anchor(allocated, final.allocated_bytes)
    after_reserved, start_reserved = _anchor(reserved, final.reserved_bytes)
    return TraceLevels(after_allocated, after_reserved, start_allocated, start_reserved)


def round_up(size_bytes: IntArray) -> IntArray:
    """Return sizes as the allocator rounds them."""
    rounded: IntArray = (size_bytes + (ROUNDING_BYTES - 1)) // ROUNDING_BYTES * ROUNDING_BYTES
    return rounded


def _size_blocks(trace: TraceColumns, final: FinalState) -> IntArray:
    """Return the sizes of the blocks of all events: as they are where they still live, else rounded up."""
    import numpy as np

    rounded = round_up(np.asarray(trace.size_bytes))
    action = np.asarray(trace.action)
    address = np.asarray(trace.address)
    allocs = np.flatnonzero(action == int(TraceAction.ALLOC))[::-1]
    # Seen backwards, the first allocation at the address of a live block is the one that made it.
    addresses, first = np.unique(address[allocs], return_index=True)
    _, of_alloc, of_block = np.intersect1d(addresses, final.live_address, return_indices=True)
    made = allocs[first[of_alloc]]
    rounded[made] = np.maximum(rounded[made], final.live_bytes[of_block])
    return rounded


def _change(
    change: IntArray,
    action: NDArray[np.int8],
    size: IntArray,
    *,
    gains: list[TraceAction],
    losses: list[TraceAction],
) -> None:
    for signs, sign in ((gains, 1), (losses, -1)):
        for code in signs:
            chosen = action == int(code)
            change[chosen] = sign * size[chosen]


def _anchor(change: IntArray, final_bytes: int) -> tuple[IntArray, int]:
    """Return the levels after each change, and the one before the first; the last one is given."""
    import numpy as np

    total = np.cumsum(change)
    start = final_bytes - (int(total[-1]) if len(total) else 0)
    # Remainders that were not split off can make the start a little less than nothing.
    return np.maximum(total + start, 0), max(start, 0)


OF_TEXT = "text"
"""`FlightRecord.reason` where only a text describes the error."""


class FlightProcess(msgspec.Struct, frozen=True):
    """The training process that failed."""

    pid: int | None = None
    started_s: float | None = None
    argv: tuple[str, ...] = ()
    python: str | None = None
    torch: str | None = None
    backend: str | None = None
    is_simulated: bool = False
    coordinates: RankCoordinates | None = None


class FlightDevice(msgspec.Struct, frozen=True):
    """The device on which it failed."""

    uuid: str | None = None
    index: int | None = None
    name: str | None = None
    total_bytes: int | None = None


class FlightFailure(msgspec.Struct, frozen=True):
    """The request that failed."""

    size_bytes: int | None = None
    device_free_bytes: int | None = None
    device_used_bytes: int | None = None
    """All that was used on the device, other processes included."""
    message: str = ""
    stack: tuple[tuple[str, int, str], ...] = ()
    """File, line and function, innermost first."""


class FlightSample(msgspec.Struct, frozen=True, gc=False):
    """The allocator's statistics at one moment before the failure."""

    time_s: float | None = None
    """Wall clock in seconds since the epoch."""
    allocated_bytes: int | None = None
    requested_bytes: int | None = None
    active_bytes: int | None = None
    reserved_bytes: int | None = None
    inactive_split_bytes: int | None = None
    retries: int | None = None
    ooms: int | None = None
    step: int | None = None


class FlightStep(msgspec.Struct, frozen=True, gc=False):
    """One training step before the failure."""

    index: int
    start_s: float | None = None
    duration_s: float | None = None
    floor_bytes: int | None = None
    peak_bytes: int | None = None
    is_peak_exact: bool = False


class FlightTruncation(msgspec.Struct, frozen=True, gc=False):
    """How many of each were left out, so that the file stays small."""

    samples: int = 0
    segments: int = 0
    blocks: int = 0


class FlightRecord(msgspec.Struct, frozen=True):
    """One file, `vramscope.flight/1`."""

    written_s: float | None = None
    reason: str | None = None
    process: FlightProcess = FlightProcess()
    device: FlightDevice = FlightDevice()
    failure: FlightFailure = FlightFailure()
    samples: tuple[FlightSample, ...] = ()
    """Oldest first."""
    steps: tuple[FlightStep, ...] = ()
    """Oldest first."""
    model_state: ModelStateReading | None = None
    stats: dict[str, float] = {}
    """`torch.cuda.memory_stats` as it was."""
    segments: tuple[Segment, ...] = ()
    live_stacks: tuple[LiveStack, ...] = ()
    """Largest first."""
    truncated: FlightTruncation = FlightTruncation()
    notes: tuple[str, ...] = ()
    allocator_settings: str | None = None
    """`PYTORCH_ALLOC_CONF` of the process; empty where it was not set."""
    file: str = ""
    """Name of the file."""
