"""What a memory snapshot says, as it is printed and as JSON (`vramscope.snapshot/1`)."""

from typing import Literal

import msgspec

from ...engine.model.memory_snapshot import Frame, SimulatedCard

SCHEMA = "vramscope.snapshot/1"


class MemoryLevels(msgspec.Struct, frozen=True):
    """The bytes of one device when the snapshot was taken."""

    reserved_bytes: int
    """All segments."""
    allocated_bytes: int
    """Blocks handed to tensors, rounded as `torch.cuda.memory_allocated` counts them."""
    active_bytes: int
    """Allocated, and freed blocks that another stream may still use."""
    requested_bytes: int | None
    """What the callers of the active blocks asked for; None where the file does not tell of all."""
    internal_bytes: int | None
    """Active less requested: lost to rounding and to remainders that were not split off."""
    free_bytes: int
    """Inactive blocks: reserved, and free for requests that fit."""
    largest_free_bytes: int
    stranded_bytes: int
    """Free, but in segments that something live holds, so that the driver cannot have it back; in
    expandable segments only what is left beside whole pages (2 MiB in the small pool, 20 MiB in the large
    one), which can be unmapped."""
    stranded_segments: int
    releasable_bytes: int
    """Free and not stranded: what `torch.cuda.empty_cache` would give back."""
    segments: int
    expandable_segments: int
    """Those that can grow; one of them is one contiguous mapped range."""
    blocks: int
    live_blocks: int


class StackGroup(msgspec.Struct, frozen=True):
    """The blocks that were allocated from one Python stack."""

    size_bytes: int
    count: int
    share: float
    """Part of all live bytes, from 0 to 1."""
    headline: Frame | None
    """The innermost frame outside PyTorch's own files; else the innermost; None without recorded history."""
    frames: tuple[Frame, ...]
    """The Python frames, innermost first."""


class FullnessBand(msgspec.Struct, frozen=True):
    """The segments of which about the same part is live."""

    label: str
    segments: int
    total_bytes: int
    free_bytes: int


class PoolFragmentation(msgspec.Struct, frozen=True):
    """Free memory of one pool and stream; a request is served from its own only."""

    pool_id: tuple[int, int]
    """(0, 0) is the default pool, any other a private one, such as that of a CUDA graph."""
    stream: int
    kind: Literal["large", "small"]
    """Blocks above 1 MiB are `large`."""
    reserved_bytes: int
    free_bytes: int
    largest_free_bytes: int
    stranded_bytes: int
    external_fragmentation: float | None
    """1 - largest free block / all free bytes; None without free bytes."""


class RequestFit(msgspec.Struct, frozen=True):
    """Whether a size that the job asks for often can be served from the free blocks."""

    size_bytes: int
    """Rounded up to 512 B."""
    count: int
    """How often it was asked for in the trace; without a trace, how many live blocks have it."""
    stream: int
    servable: int
    """How many more such requests the free blocks of its stream hold; private pools are not counted."""
    new_segment_bytes: int
    """What the driver would have to give for one more that is not servable (unless expandable)."""


class FailedRequest(msgspec.Struct, frozen=True):
    """An out-of-memory event of the trace."""

    time_s: float | None
    """Seconds since the epoch."""
    size_bytes: int
    """What was asked for."""
    device_free_bytes: int
    """What the driver reported free."""
    allocated_bytes: int
    reserved_bytes: int
    stack: StackGroup
    """Where it was asked for; its size and count are those of the request."""
    live: tuple[StackGroup, ...]
    """What was live at that moment, the largest first."""


class TraceSpan(msgspec.Struct, frozen=True):
    """What the trace of a device covers."""

    events: int
    duration_s: float | None
    is_overflowed: bool | None
    """Whether older events were dropped; None where the file does not tell."""
    start_allocated_bytes: int
    """Allocated before the first event, computed backwards from the final state."""
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_after_s: float | None
    """When the peak of allocated was, in seconds after the first event."""
    allocated_curve: tuple[int, ...]
    """Most allocated in equal parts of the time, for a small graph."""


class DeviceSummary(msgspec.Struct, frozen=True):
    """One device of a snapshot."""

    device: int
    levels: MemoryLevels
    sentences: tuple[str, ...]
    """What it comes to, for people, the most important first."""
    stacks: tuple[StackGroup, ...]
    """Live blocks by stack, the largest first; as many as were asked for."""
    stack_groups: int
    """How many groups there are."""
    fullness: tuple[FullnessBand, ...]
    pools: tuple[PoolFragmentation, ...]
    requests: tuple[RequestFit, ...] = ()
    failures: tuple[FailedRequest, ...] = ()
    """The newest first."""
    failures_omitted: int = 0
    trace: TraceSpan | None = None


class SnapshotSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A whole snapshot."""

    schema: Literal["vramscope.snapshot/1"] = "vramscope.snapshot/1"
    file: str
    devices: tuple[DeviceSummary, ...]
    simulated: SimulatedCard | None = None
    """The card that was modelled; None for a snapshot of a real one."""
    settings: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
