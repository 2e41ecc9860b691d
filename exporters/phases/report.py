"""A training by phase as one JSON object: every rank, what its phases differ by, its peak, advice."""

from collections.abc import Sequence

import msgspec

from ...analyzers.planning.phases import AdviceTrial, PhaseAdvice, advise_phases
from ...engine.model.phase_memory import MemoryLevels, PhaseRun

SCHEMA = "vramscope.phases/1"


class PhaseDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What is held after a phase and was not before; negative where it freed more."""

    phase: str
    step: int | None
    allocated_bytes: int | None
    reserved_bytes: int | None


class RankSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from the run of one rank."""

    rank: int
    peak: MemoryLevels
    """The most of all phases."""
    peak_phase: str | None
    """Where most was allocated."""
    peak_step: int | None
    share_of_device: float | None
    """Most reserved bytes over the capacity; of the CPU resident bytes over the host's memory."""
    differences: tuple[PhaseDifference, ...]
    """In the order of the phases of the run."""


class PhaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramscope phases --json` prints."""

    schema: str = SCHEMA
    is_simulated: bool
    """Whether the device of any rank is a modelled one: then no figure is measured on a GPU."""
    runs: tuple[PhaseRun, ...]
    """One a rank."""
    ranks: tuple[RankSummary, ...]
    """In the order of the runs."""
    advice: PhaseAdvice | None
    """For the rank with the highest peak."""
    trials: tuple[AdviceTrial, ...] = ()
    """What advised changes came to, where they were tried."""


def report_phases(runs: Sequence[PhaseRun], trials: Sequence[AdviceTrial] = ()) -> PhaseReport:
    """Return the report of a training.

    Args:
        runs: One a rank.
        trials: What advised changes came to, where they were tried.
    """
    ordered = tuple(sorted(runs, key=lambda run: run.rank))
    return PhaseReport(
        is_simulated=any(run.device.kind == "simulated" for run in ordered),
        runs=ordered,
        ranks=tuple(map(_summarize, ordered)),
        advice=advise_phases(ordered),
        trials=tuple(trials),
    )


def _summarize(run: PhaseRun) -> RankSummary:
    peak = run.peak
    total = run.device.total_bytes
    at = None
    if peak.allocated_bytes is not None:
        at = next(each for each in run.phases if each.peak.allocated_bytes == peak.allocated_bytes)
    held = peak.allocated_bytes if run.device.kind == "cpu" else peak.reserved_bytes
    return RankSummary(
        rank=run.rank,
        peak=peak,
        peak_phase=None if at is None else at.phase,
        peak_step=None if at is None else at.step,
        share_of_device=held / total if held is not None and total else None,
        differences=tuple(
            PhaseDifference(
                phase=each.phase,
                step=each.step,
                allocated_bytes=each.allocated_difference_bytes,
                reserved_bytes=each.reserved_difference_bytes,
            )
            for each in run.phases
        ),
    )
