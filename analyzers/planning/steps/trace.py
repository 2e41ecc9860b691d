"""What tracing a training step told: its blocks, their events, and where each was made."""

from enum import IntEnum

import msgspec

Frame = tuple[str, int, str]
"""File, line and function."""


class Phase(IntEnum):
    """What a training step is doing."""

    MAKING = 0
    """The user's function makes model and data; before the first step."""
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3
    """Everything after the backward pass: clipping, the optimizer, zeroing."""
    RECOMPUTE = 4
    """A forward pass inside the backward pass, as checkpointing has it."""


class StepTrace(msgspec.Struct, frozen=True, kw_only=True):
    """Two training steps on a card, from the making of the model on.

    A block is known by its place in `sizes`. An event is that place plus one where the block comes, less than
    0 where it goes, and 0 where the script gave cached memory back.
    """

    layers: int | None
    """Depth of the model that was asked for; None where the function chose it."""
    sizes: tuple[int, ...]
    """Bytes that were asked for, of each block."""
    phases: tuple[int, ...]
    modules: tuple[int, ...]
    stacks: tuple[int, ...]
    events: tuple[int, ...]
    marks: tuple[tuple[int, int, int], ...]
    """Block, its kind as `MARKED` in `kinds.py` names it, and the module it belongs to."""
    module_names: tuple[str, ...]
    """The first is that of no module: empty."""
    module_types: tuple[str, ...]
    stack_frames: tuple[tuple[Frame, ...], ...]
    """Innermost first, of the user's own code."""
    step_begins: tuple[int, ...]
    """Events before the first step, before the second, and of all."""
    backward_begins: tuple[int, ...]
    """Events before the first allocation of each backward pass."""
    recompute_ends: tuple[int, ...]
    """Events before each end of a recomputed forward pass."""
    allocated_peak_bytes: int
    """What the card's own allocator said of the second step."""

    @property
    def measured_from(self) -> int:
        """The event at which the last step begins, which the figures are of."""
        return self.step_begins[-2]


class TraceResult(msgspec.Struct, frozen=True, kw_only=True):
    """The traces of one request, or what stood in their way."""

    traces: tuple[StepTrace, ...] = ()
    seconds: float = 0.0
    """From the call of the user's function to the last trace."""
    torch: str = ""
    error: str | None = None
    is_refused: bool = False
    """Whether the simulated device refused to go on, and nothing was raised."""
    doubt: str | None = None
    """Why tensors without values may be to blame for the error."""
