"""What advice about a run by phase consists of."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from ....engine.model.phase_memory import OptimizerName, PhaseMemory, PhaseRun, RunEnd

PartName = Literal[
    "parameters", "gradients", "per-sample gradients", "optimizer state", "activations", "everything else"
]
# Counted tensor by tensor; a difference of two levels; from sizes, because it was not reached; what is left
# over.
PartBasis = Literal["counted", "measured", "computed", "remainder"]


class PeakPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the memory at a phase's peak."""

    name: PartName
    size_bytes: int
    basis: PartBasis


class PhaseChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the training, and what the highest peak of all phases would be with it: an estimate."""

    name: str
    flags: tuple[str, ...]
    """Flags of `vramscope phases` that try the change."""
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
    """The measured effect of a change, in a separate run."""

    name: str
    flags: tuple[str, ...]
    estimated_peak_bytes: int | None
    peak_bytes: int | None
    """Highest peak of allocated bytes; where the run did not finish, of what was measured."""
    reserved_peak_bytes: int | None
    saved_bytes: int | None
    """How much lower the peak is than without the change; negative where it is higher."""
    end: RunEnd | None
    """None where it could not start."""
    error: str | None = None
    """Why it did not finish, or could not start."""


class PhaseAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Which phase to reduce, what makes up its peak, and what would lower it. All in allocated bytes."""

    rank: int
    phase: str
    """The phase with the highest peak, or in which memory ran out."""
    step: int | None
    peak_bytes: int
    """Measured; where memory ran out, the least that would have been needed."""
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
    is_open: bool = False
    """Whether memory ran out before activations were complete once, so that no change is known to fit."""
    changes: tuple[PhaseChange, ...]
    """Those that lower the highest peak, most first, then those that lower another one only."""


# How large each part is that a training step holds: counted, else measured, else computed from sizes.

Parts = Mapping[PartName, PeakPart]
# Tensors as large as a parameter that the optimizer keeps: momenta of first and second order.
STATES_A_PARAMETER: dict[OptimizerName, int] = {"sgd": 0, "adam": 2, "adamw": 2}
_WHOLE_GRADIENTS = ("hooks", "functorch")


def find_parts(run: PhaseRun) -> dict[PartName, PeakPart]:
    """Return the parts of a step by name; unknown ones are left out."""
    found: dict[PartName, PeakPart] = {}
    _add(found, "parameters", *_find_parameters(run))
    parameters = found.get("parameters")
    if parameters is None:
        return found
    _add(found, "gradients", *_find_gradients(run, parameters.size_bytes))
    _add(found, "per-sample gradients", *_find_per_sample_gradients(run, parameters.size_bytes))
    _add(found, "optimizer state", *_find_optimizer_state(run, parameters.size_bytes))
    activations = find_activations(run.phases)
    _add(found, "activations", _find_begun(run) if activations is None else activations, "measured")
    return found


def find_needed(run: PhaseRun) -> int | None:
    """Return what had to be allocated at once where memory ran out; None where it is unknown."""
    held = None if run.held is None else run.held.allocated_bytes
    return None if held is None or run.requested_bytes is None else held + run.requested_bytes


def find_activations(phases: tuple[PhaseMemory, ...]) -> int | None:
    """Return what forward pass and loss left for the backward pass in the step where that is most."""
    begun = {each.step: each.before.allocated_bytes for each in phases if each.phase == "Forward"}
    ended = {each.step: each.after.allocated_bytes for each in phases if each.phase in {"Forward", "Loss"}}
    grown = [
        after - before
        for step, after in ended.items()
        if after is not None and (before := begun.get(step)) is not None
    ]
    return max(grown, default=None)


def _find_begun(run: PhaseRun) -> int | None:
    """Return the activations of a forward pass up to where memory ran out; the whole pass needs more."""
    needed = find_needed(run)
    if needed is None or run.failed_phase != "Forward" or not run.phases:
        return None
    begun = run.phases[-1].after.allocated_bytes
    return None if begun is None else needed - begun


def _add(found: dict[PartName, PeakPart], name: PartName, size_bytes: int | None, basis: PartBasis) -> None:
    if size_bytes is not None and size_bytes > 0:
        found[name] = PeakPart(name=name, size_bytes=size_bytes, basis=basis)


def _find_parameters(run: PhaseRun) -> tuple[int | None, PartBasis]:
    if run.state is not None:
        return run.state.parameter_bytes, "counted"
    created = next((each for each in run.phases if each.phase == "Model Creation"), None)
    return (None if created is None else created.allocated_difference_bytes), "measured"


def _find_gradients(run: PhaseRun, parameter_bytes: int) -> tuple[int, PartBasis]:
    if run.state is not None and _has_ended(run, "Backward"):
        return run.state.gradient_bytes, "counted"
    return parameter_bytes, "computed"


def _find_per_sample_gradients(run: PhaseRun, parameter_bytes: int) -> tuple[int, PartBasis]:
    if run.state is not None and _has_ended(run, "Backward"):
        return run.state.per_sample_gradient_bytes, "counted"
    samples = run.training.batch_size if run.training.privacy in _WHOLE_GRADIENTS else 0
    return samples * parameter_bytes, "computed"


def _find_optimizer_state(run: PhaseRun, parameter_bytes: int) -> tuple[int, PartBasis]:
    if run.state is not None and _has_ended(run, "Optimizer Step"):
        return run.state.optimizer_bytes, "counted"
    return STATES_A_PARAMETER[run.training.optimizer] * parameter_bytes, "computed"


def _has_ended(run: PhaseRun, name: str) -> bool:
    return any(each.phase == name and each.after.allocated_bytes is not None for each in run.phases)
