"""What advice about a run by phase consists of."""

from typing import Literal

import msgspec

from ....engine.model.phase_memory import RunEnd

PartName = Literal[
    "parameters", "gradients", "per-sample gradients", "optimizer state", "activations", "everything else"
]
PartBasis = Literal["counted", "measured", "computed", "remainder"]
"""Tensor by tensor; a difference of two levels; from sizes, because it was not reached; what is left over."""


class PeakPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what is held when a phase holds most."""

    name: PartName
    size_bytes: int
    basis: PartBasis


class PhaseChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the training, and what the highest peak of all phases would be with it: an estimate."""

    name: str
    flags: tuple[str, ...]
    """Of `vramscope phases`, to try it."""
    part: PartName
    """What it makes smaller."""
    part_saved_bytes: int | None
    """How much of that part goes; None where the sizes of the model that it depends on are not known."""
    basis: PartBasis
    """Where the size of that part is from."""
    cost: str
    """What is paid for it."""
    peak_bytes: int | None
    """The highest peak with it, over all phases."""
    peak_phase: str | None
    """In which phase that is."""
    saved_bytes: int | None
    """How much lower that is than without it; 0 where it touches other phases only."""
    does_fit: bool | None = None
    """Where memory ran out: whether the estimate fits; None where it is too close to be sure."""


class AdviceTrial(msgspec.Struct, frozen=True, kw_only=True):
    """What a change really came to, in a run of its own."""

    name: str
    flags: tuple[str, ...]
    estimated_peak_bytes: int | None
    peak_bytes: int | None
    """The highest peak of allocated bytes; where the run did not finish, of what was measured."""
    reserved_peak_bytes: int | None
    saved_bytes: int | None
    """How much lower the peak is than without the change; negative where it is higher."""
    end: RunEnd | None
    """None where it could not be started."""
    error: str | None = None
    """Why it did not finish, or could not be started."""


class PhaseAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Which phase to attack, what makes up its peak, and what would lower it. Of allocated bytes."""

    rank: int
    phase: str
    """The one with the highest peak, or in which memory ran out."""
    step: int | None
    peak_bytes: int
    """Measured; where memory ran out, what would at least have been needed."""
    is_predicted: bool
    """Whether it is computed, because the run ended before."""
    parts: tuple[PeakPart, ...]
    next_phase: str | None
    """The phase with the second highest peak: what is saved in the first alone counts down to there."""
    next_peak_bytes: int | None
    missing_bytes: int | None
    """Where memory ran out: how much more is needed than the device had; 0 where that lay in pieces."""
    stranded_bytes: int | None = None
    """Where nothing was missing: what was reserved and not allocated."""
    changes: tuple[PhaseChange, ...]
    """Those that lower the highest peak, most first, then those that lower another one only."""
