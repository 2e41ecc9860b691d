"""What an estimate of a training step says."""

from typing import Literal

import msgspec

from .trace import Frame

SCHEMA = "vramscope.factory-estimate/1"


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what is live at the peak."""

    name: str
    size_bytes: int


class StackShare(msgspec.Struct, frozen=True, kw_only=True):
    """What one line of the user's code, by way of its callers, has live at the peak."""

    frames: tuple[Frame, ...]
    """File, line and function, innermost first; empty where no line of the user's leads there."""
    size_bytes: int


class PhasePeak(msgspec.Struct, frozen=True, kw_only=True):
    """The most that is live in one phase of the step."""

    phase: str
    live_bytes: int
    module: str
    """The module whose forward or backward pass runs then; empty outside all modules."""


class DepthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What the line through shallow models says of a deeper one, beside what the trace of that one says."""

    layers: int
    predicted_live_bytes: int
    traced_live_bytes: int
    predicted_reserved_bytes: int
    traced_reserved_bytes: int


class CapacityCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the step runs on a card of some size."""

    capacity_bytes: int
    context_bytes: int
    """Set aside for the CUDA context."""
    does_fit: bool | None
    """Null where the extrapolation is not sharp enough to tell."""
    enough_bytes: int | None = None
    """Of extrapolated figures: the reserved peak, what the check was off by, and a segment; else null."""
    reserved_peak_bytes: int | None = None
    """What the allocator holds of this card at most; null where that was not replayed."""
    retries: int | None = None
    """How often it gave its cache back and asked again; null where that was not replayed."""
    failed_bytes: int | None = None
    """What was asked for where it does not fit; null where it does, or that was not replayed."""
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
    """Whether tensors had no storage, or that of the host, as the step could not be made without."""
    fallback: str | None = None
    """Why tensors had the storage of the host."""
    layers: int | None = None
    """Depth that was asked for."""
    traced_layers: tuple[int, ...] = ()
    """Depths that were traced, where the figures are extrapolated from them; else empty."""
    check: DepthCheck | None = None
    """How far extrapolating was off at a depth that was traced too."""
    live_peak_bytes: int
    """Live blocks at the peak of the second step, each rounded up to 512 bytes."""
    allocated_peak_bytes: int
    """What the allocator counts as allocated: with the rests of blocks that were not worth splitting."""
    reserved_peak_bytes: int
    """What the allocator takes of the card, from the making of the model on."""
    expandable_reserved_bytes: int | None = None
    """The same with expandable_segments:True; null where that is set already, or was not replayed."""
    allocator_settings: str = ""
    peak_phase: str
    peak_module: str
    """The module whose forward or backward pass runs at the peak; empty outside all modules."""
    phases: tuple[PhasePeak, ...]
    kinds: tuple[Share, ...]
    """Of what is live at the peak: they add up to it, as do modules and stacks."""
    modules: tuple[Share, ...]
    """With `*` in place of the numbers of layers."""
    stacks: tuple[StackShare, ...]
    capacity: CapacityCheck | None = None
    traced_s: float
    """Seconds from the call of the user's function to the end of the last step."""
