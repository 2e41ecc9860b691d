"""What each phase holds before and after, by parts, where its peak is highest.

A peak is the larger of both levels and what comes on top in between: temporary tensors, of which a run by
phase tells no more than their sum. Phases that a run did not reach are computed from those that it did.
"""

from collections.abc import Collection

import msgspec

from ...engine.model.phase_memory import STEP_PHASES, PhaseMemory, PhaseRun
from .model import PartName
from .parts import Parts, find_needed

_KEPT_SHARE = 0.9
"""Of the gradients: held so much longer than the forward pass began with, they were not set to None."""


class PhaseLevel(msgspec.Struct, frozen=True, kw_only=True):
    """One phase, in the step where it held most."""

    phase: str
    step: int | None
    before_bytes: int
    after_bytes: int
    peak_bytes: int
    before: frozenset[PartName]
    """Parts that are held when it begins."""
    after: frozenset[PartName]
    is_predicted: bool = False

    @property
    def fullest(self) -> frozenset[PartName]:
        """The parts of the end at which more is held."""
        return self.after if self.after_bytes >= self.before_bytes else self.before

    @property
    def excess_bytes(self) -> int:
        """What comes on top in between."""
        return max(0, self.peak_bytes - max(self.before_bytes, self.after_bytes))


def list_levels(run: PhaseRun, parts: Parts) -> list[PhaseLevel]:
    """Return the phases in their order, those that were not reached computed.

    Args:
        run: A run, as far as it came.
        parts: Of its steps.
    """
    is_kept = are_gradients_kept(run, parts)
    measured: dict[str, PhaseLevel] = {}
    for phase in run.phases:
        level = _measure(run, phase, parts, is_kept=is_kept)
        if level is not None and (
            phase.phase not in measured or level.peak_bytes > measured[phase.phase].peak_bytes
        ):
            measured[phase.phase] = level
    missing = [name for name in STEP_PHASES if name not in measured]
    if run.end == "out_of_memory" and run.failed_phase in STEP_PHASES:
        missing += [] if run.failed_phase in missing else [run.failed_phase]
    predicted = {name: _predict(name, run, measured, parts, is_kept=is_kept) for name in missing}
    measured |= {name: level for name, level in predicted.items() if level is not None}
    return list(measured.values())


def are_gradients_kept(run: PhaseRun, parts: Parts) -> bool:
    """Return whether the forward pass of a later step begins with the gradients of the one before.

    Args:
        run: A run of two steps at least, else nothing can be said.
        parts: Of its steps.
    """
    gradients, state = parts.get("gradients"), parts.get("optimizer state")
    later = [each for each in run.phases if each.phase == "Forward" and _is_later(run, each)]
    if gradients is None or not later:
        return False
    begun, setup_bytes = later[-1].before.allocated_bytes, _find_setup(run)
    if begun is None or setup_bytes is None:
        return False
    held_bytes = begun - setup_bytes - (0 if state is None else state.size_bytes)
    return held_bytes >= _KEPT_SHARE * gradients.size_bytes


def _find_setup(run: PhaseRun) -> int | None:
    """Return what was allocated before the first step."""
    return next((each.after.allocated_bytes for each in reversed(run.phases) if each.step is None), None)


def _is_later(run: PhaseRun, phase: PhaseMemory) -> bool:
    """Return whether a step came before: the optimizer makes its state in the first."""
    return phase.step is not None and (phase.step > 1 or run.training.warmup_steps > 0)


def _measure(run: PhaseRun, phase: PhaseMemory, parts: Parts, *, is_kept: bool) -> PhaseLevel | None:
    before, after, peak = (each.allocated_bytes for each in (phase.before, phase.after, phase.peak))
    has_failed = (run.end, run.failed_phase, run.failed_step) == ("out_of_memory", phase.phase, phase.step)
    if before is None or after is None or peak is None or has_failed:
        return None
    is_later = _is_later(run, phase)
    held_before, held_after = name_parts(
        phase.phase, has_state=is_later, is_kept=is_kept and (is_later or phase.phase == "Zero Gradients")
    )
    return PhaseLevel(
        phase=phase.phase,
        step=phase.step,
        before_bytes=before,
        after_bytes=after,
        peak_bytes=peak,
        before=held_before & parts.keys(),
        after=held_after & parts.keys(),
    )


def name_parts(
    phase: str, *, has_state: bool, is_kept: bool
) -> tuple[frozenset[PartName], frozenset[PartName]]:
    """Return the parts that are held when a phase begins, and when it ends.

    Args:
        phase: Its name.
        has_state: Whether the optimizer's state is there already.
        is_kept: Whether gradients outlive their step.
    """
    model: set[PartName] = {"parameters", "optimizer state"} if has_state else {"parameters"}
    kept: set[PartName] = model | ({"gradients"} if is_kept else set())
    running: set[PartName] = {*kept, "activations"}
    updating: set[PartName] = {*model, "gradients", "per-sample gradients"}
    updated: set[PartName] = {*updating, "optimizer state"}
    sets: dict[str, tuple[set[PartName], set[PartName]]] = {
        "Model Creation": (set(), {"parameters"}),
        "DP Setup": ({"parameters"}, {"parameters"}),
        "Forward": (kept, running),
        "Loss": (running, running),
        "Backward": (running, updating),
        "Optimizer Step": (updating, updated),
        "Zero Gradients": (updated, {*kept, "optimizer state"}),
    }
    before, after = sets.get(phase, (set(), set()))
    return frozenset(before), frozenset(after)


def _predict(
    name: str, run: PhaseRun, measured: dict[str, PhaseLevel], parts: Parts, *, is_kept: bool
) -> PhaseLevel | None:
    """Return what a phase needs at least: its parts, and on top of them what the run held besides."""
    start = _find_start(run, measured)
    if start is None:
        return None
    start_bytes, started = start
    other_bytes = start_bytes - add_up(started & parts.keys(), parts)
    has_state = "optimizer state" in started or (run.failed_step or 1) > 1
    before, after = name_parts(name, has_state=has_state, is_kept=is_kept)
    before_bytes = other_bytes + add_up(before & parts.keys(), parts)
    after_bytes = other_bytes + add_up(after & parts.keys(), parts)
    peak_bytes = max(before_bytes, after_bytes)
    if name == run.failed_phase:
        peak_bytes = max(peak_bytes, find_needed(run) or 0)
    return PhaseLevel(
        phase=name,
        step=run.failed_step,
        before_bytes=before_bytes,
        after_bytes=after_bytes,
        peak_bytes=peak_bytes,
        before=before & parts.keys(),
        after=after & parts.keys(),
        is_predicted=True,
    )


def _find_start(run: PhaseRun, measured: dict[str, PhaseLevel]) -> tuple[int, frozenset[PartName]] | None:
    """Return what is held when a step begins, and which parts are in it."""
    forward = measured.get("Forward")
    if forward is not None:
        return forward.before_bytes, forward.before
    setup_bytes = _find_setup(run)
    return None if setup_bytes is None else (setup_bytes, frozenset({"parameters"}))


def add_up(names: Collection[PartName], parts: Parts) -> int:
    """Return the bytes of some parts together."""
    return sum(parts[name].size_bytes for name in names)
