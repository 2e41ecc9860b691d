"""What an estimate of a training step says."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from ....engine.errors import ErrorPart
from ....engine.model.outside import Convolution, OutsideUse
from ...allocator_model import (
    AllocatorOutOfMemoryError,
    AllocatorSettings,
    CachingAllocator,
    PrivateDeviceMemory,
)
from ...allocator_model.replay import UNLIMITED_BYTES

# What tracing a training step yields: its blocks, their events, and where each was made.

# File, line and function.

Frame = tuple[str, int, str]


class Phase(IntEnum):
    """What a training step is doing."""

    # The user's function makes model and data, before the first step.
    MAKING = 0
    FORWARD = 1
    BACKWARD = 2
    # Everything after the backward pass: clipping, the optimizer, zeroing.
    OPTIMIZER = 3
    # A forward pass inside the backward pass, as checkpointing has it.
    RECOMPUTE = 4


class StepTrace(msgspec.Struct, frozen=True, kw_only=True):
    """Two training steps on a card, from the making of the model on.

    A block is known by its place in `sizes`. An event is that place plus one where the block comes, its
    negative
    where it goes, and 0 where the script gave cached memory back.
    """

    # Depth asked for; None where the function chose it.
    layers: int | None
    # Requested bytes of each block.
    sizes: tuple[int, ...]
    # Streams that the blocks were allocated on: a cached block is reused on its own alone.
    streams: tuple[int, ...]
    phases: tuple[int, ...]
    modules: tuple[int, ...]
    stacks: tuple[int, ...]
    events: tuple[int, ...]
    # Those that a trace computed, whatever their passes.
    convolutions: tuple[Convolution, ...] = ()
    # At each of them the events before it, its place in `convolutions`, and its passes.
    computed: tuple[tuple[int, int, int], ...] = ()
    # Block, its index in `MARKED` of `estimate.py`, and the module it belongs to.
    marks: tuple[tuple[int, int, int], ...]
    # The first stands for no module: empty.
    module_names: tuple[str, ...]
    module_types: tuple[str, ...]
    # Frames of the user's own code, innermost first.
    stack_frames: tuple[tuple[Frame, ...], ...]
    # Events before the first step, before the second, and of all.
    step_begins: tuple[int, ...]
    # Events before the first allocation of each backward pass.
    backward_begins: tuple[int, ...]
    # Events before each end of a recomputed forward pass.
    recompute_ends: tuple[int, ...]
    # What the card's own allocator reports for the second step.
    allocated_peak_bytes: int

    @property
    def measured_from(self) -> int:
        """The event at which the last step begins; the numbers are of that step."""
        return self.step_begins[-2]


class TraceResult(msgspec.Struct, frozen=True, kw_only=True):
    """The traces of one request, or why there are none."""

    traces: tuple[StepTrace, ...] = ()
    seconds: float = 0.0
    """From the call of the user's function to the last trace."""
    torch: str = ""
    readings: tuple[str, ...] = ()
    """Lines that read values of tensors without values, and got stand-ins."""
    made_with: tuple[str, ...] = ()
    """Optimizer and loss of the step, where the factory returned a module alone."""
    uses: OutsideUse = OutsideUse()
    """What takes more of a real card than tensors do."""
    compiled_graphs: int = 0
    """Graphs whose buffers are those of the compiler's programs."""
    run_eagerly: tuple[str, ...] = ()
    """Why something that the script compiles was run as it is."""
    error: tuple[ErrorPart, ...] | None = None
    is_refused: bool = False
    """Whether the simulated device refused to go on, and nothing was raised."""
    doubt: str | None = None
    """Why tensors without values may be to blame for the error."""
    is_of_jax: bool = False
    """Whether the factory returned a function of JAX."""


SCHEMA = "vramscope.factory-estimate/1"


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what is live at the peak."""

    name: str
    size_bytes: int


class StackShare(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes live at the peak that one line of the user's code allocated, by call path."""

    frames: tuple[Frame, ...]
    """File, line and function, innermost first; empty where no line of the user's code leads there."""
    size_bytes: int


class PhasePeak(msgspec.Struct, frozen=True, kw_only=True):
    """The most that is live in one phase of the step."""

    phase: str
    live_bytes: int
    module: str
    """The module whose forward or backward pass runs then; empty outside all modules."""


class DepthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that the line through shallow models predicts for a deeper one, next to those of its trace."""

    layers: int
    predicted_live_bytes: int
    traced_live_bytes: int
    predicted_reserved_bytes: int
    traced_reserved_bytes: int


class GpuKind(NamedTuple):
    """A kind of GPU, as far as it decides how much a CUDA context takes."""

    name: str
    capability: tuple[int, int] | None = None
    multiprocessors: int | None = None


class OutsidePart(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of the card that no tensor of the step holds, as a range of measured or documented sizes."""

    name: str
    least_bytes: int
    likely_bytes: int
    most_bytes: int
    source: str
    """Where the sizes are from."""
    note: str | None = None
    """What the range does not know; null where nothing is to be said."""


class CapacityCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the step runs on a card of some size."""

    capacity_bytes: int
    outside_least_bytes: int
    """Set aside at least for what no tensor holds (`outside` of the estimate)."""
    outside_most_bytes: int
    """Set aside at most; it fits if it does with so much less."""
    does_fit: bool | None
    """Null where the range of what is set aside, or the error of an extrapolation, leaves it open."""
    enough_bytes: int | None = None
    """Upper bound of extrapolated sizes: the reserved peak, the error of the check, and a segment; else null.
    """
    reserved_peak_bytes: int | None = None
    """Most that the allocator reserves of this card; null where that was not replayed."""
    retries: int | None = None
    """How often it freed its cache and tried again; null where that was not replayed."""
    failed_bytes: int | None = None
    """Bytes of the request that failed; null where it fits, or that was not replayed."""
    failed_phase: str | None = None
    failed_module: str | None = None
    failed_frames: tuple[Frame, ...] = ()


class StepEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a training step, estimated without a GPU."""

    schema: str = SCHEMA
    label: str = "estimated, no GPU was used"
    factory: str
    torch: str
    """Version of PyTorch that made the step."""
    storage: Literal["fake", "host"]
    """Whether tensors had no storage, or host storage where the step needed it."""
    fallback: str | None = None
    """Why tensors had host storage."""
    readings: tuple[str, ...] = ()
    """Lines that read values, which tensors without storage do not have; they got stand-ins."""
    made_with: tuple[str, ...] = ()
    """Optimizer and loss of the step, where the factory returned a module alone; else empty."""
    is_upper_bound: bool = False
    """Whether tensors whose sizes depend on values have their largest sizes."""
    compiled_graphs: int = 0
    """Graphs of torch.compile that were traced as Inductor's programs for CUDA allocate them, which was not
    compared with a GPU; those of each traced depth, and of each recompilation."""
    run_eagerly: tuple[str, ...] = ()
    """Why something that torch.compile was called for was traced as it is, so that its size is an upper
    bound; at most four reasons."""
    ranks: int | None = None
    """Ranks of the training; null for one process."""
    rank: int | None = None
    """Rank that the step is of, from 0; null for one process."""
    gpu: str | None = None
    """Kind of GPU that was asked for; null for any."""
    layers: int | None = None
    """Depth that was requested."""
    traced_layers: tuple[int, ...] = ()
    """Depths that were traced, where sizes are extrapolated from them; else empty."""
    check: DepthCheck | None = None
    """How far the extrapolation was off at a depth that was also traced."""
    live_peak_bytes: int
    """Live blocks at the peak of the second step, each rounded up to 512 bytes."""
    allocated_peak_bytes: int
    """What the allocator counts as allocated, including remainders too small to split off."""
    reserved_peak_bytes: int
    """Most that the allocator reserves on the card, from the creation of the model on."""
    expandable_reserved_bytes: int | None = None
    """The same with expandable_segments:True; null where that is already set, or was not replayed."""
    allocator_settings: str = ""
    outside: tuple[OutsidePart, ...]
    """What the card must have beyond the reserved peak."""
    card_least_bytes: int
    """Reserved peak and the least of what is outside: what a large card shows as used."""
    card_likely_bytes: int
    card_most_bytes: int
    peak_phase: str
    peak_module: str
    """The module whose forward or backward pass runs at the peak; empty outside all modules."""
    phases: tuple[PhasePeak, ...]
    kinds: tuple[Share, ...]
    """Bytes live at the peak by kind; they add up to it, as do modules and stacks."""
    modules: tuple[Share, ...]
    """With `*` in place of the numbers of layers."""
    stacks: tuple[StackShare, ...]
    capacity: CapacityCheck | None = None
    traced_s: float
    """Seconds from the call of the user's function to the end of the last step."""


# A traced step, run again through the model of the caching allocator.

_MOST_ENTRIES = 1_000_000


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """What a step does to an allocator on a card of some size."""

    # Peak of the last step.
    allocated_peak_bytes: int
    # Over everything, the making of the model included: what the card must have.
    reserved_peak_bytes: int
    # How often the cache was given back and the card asked again.
    retries: int
    # The block that found no room, at which it ended.
    failed_block: int | None = None


class Scratch(NamedTuple):
    """Memory that is allocated and freed between two events of a trace."""

    size_bytes: int
    tried_bytes: int | None
    """What is taken before it, after which the cache is emptied; None if nothing is tried."""


def rehearse(
    trace: StepTrace,
    settings: AllocatorSettings,
    capacity_bytes: int | None = None,
    *,
    scratches: Mapping[int, Sequence[Scratch]] = MappingProxyType({}),
) -> Rehearsal:
    """Replay a trace through the model of the caching allocator; without a capacity it always fits.

    Args:
        scratches: Allocated in addition to the trace, by the number of events before it. Only without a
            capacity: running out of memory there is not handled.
    """
    player = _Player(trace, settings, capacity_bytes or UNLIMITED_BYTES, scratches)
    failed = player.play(0, trace.measured_from)
    before = player.allocator.memory_stats()["reserved_bytes.all.peak"]
    if failed is None:
        player.allocator.reset_peak_memory_stats()
        failed = player.play(trace.measured_from, len(trace.events))
    stats = player.allocator.memory_stats()
    return Rehearsal(
        allocated_peak_bytes=stats["allocated_bytes.all.peak"],
        reserved_peak_bytes=max(before, stats["reserved_bytes.all.peak"]),
        retries=stats["num_alloc_retries"],
        failed_block=failed,
    )


def take_snapshot(trace: StepTrace, settings: AllocatorSettings, event: int) -> dict[str, Any]:
    """Return the memory after an event as a snapshot in PyTorch's format, with its history and the user's
    lines.
    """
    player = _Player(trace, settings, UNLIMITED_BYTES)
    described = [
        [{"filename": file, "line": line, "name": name} for file, line, name in frames]
        for frames in trace.stack_frames
    ]
    player.allocator.record_history(_MOST_ENTRIES, lambda: described[trace.stacks[player.asking]])
    player.play(0, event + 1)
    return player.allocator.snapshot()


class _Player:
    def __init__(
        self,
        trace: StepTrace,
        settings: AllocatorSettings,
        capacity_bytes: int,
        scratches: Mapping[int, Sequence[Scratch]] = MappingProxyType({}),
    ) -> None:
        self._trace = trace
        self._scratches = scratches
        self.allocator = CachingAllocator(PrivateDeviceMemory(capacity_bytes), settings)
        # The block that is being allocated.
        self.asking = 0
        self._addresses: dict[int, int] = {}

    def play(self, begin: int, end: int) -> int | None:
        """Play some events; return the block that found no room."""
        allocator = self.allocator
        addresses = self._addresses
        sizes = self._trace.sizes
        streams = self._trace.streams
        for place, event in enumerate(self._trace.events[begin:end], begin):
            self._allocate_scratches(place)
            if event > 0:
                self.asking = event - 1
                try:
                    addresses[event] = allocator.malloc(sizes[event - 1], streams[event - 1])
                except AllocatorOutOfMemoryError:
                    return event - 1
            elif event < 0:
                allocator.free(addresses.pop(-event))
            else:
                allocator.empty_cache()
        if end == len(self._trace.events):
            self._allocate_scratches(end)
        return None

    def _allocate_scratches(self, place: int) -> None:
        allocator = self.allocator
        for scratch in self._scratches.get(place, ()):
            if scratch.tried_bytes is not None:
                if scratch.tried_bytes:
                    allocator.free(allocator.malloc(scratch.tried_bytes))
                allocator.empty_cache()
            if scratch.size_bytes:
                allocator.free(allocator.malloc(scratch.size_bytes))
