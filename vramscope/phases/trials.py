"""Advised changes of a training by phase, tried: each in a run of its own, on the same device."""

from collections.abc import Callable

import msgspec

from vramscope.analyzers.planning.phases import AdviceTrial, PhaseAdvice, PhaseChange
from vramscope.engine.errors import UsageError
from vramscope.engine.model.phase_memory import PhaseRun, PhaseTraining

from .running import run_phases

MOST_TRIALS = 4
"""Of those that are estimated to save most."""
_FIELDS = {
    "--dp-mode": "privacy",
    "--optimizer": "optimizer",
    "--precision": "precision",
    "--batch-size": "batch_size",
    "--seq": "seq_length",
    "--checkpoint": "is_checkpointed",
}
"""Fields of `PhaseTraining` by the flag that sets them."""


def try_advice(
    training: PhaseTraining,
    device: str,
    advice: PhaseAdvice,
    *,
    run: Callable[[PhaseTraining, str], tuple[PhaseRun, ...]] = run_phases,
) -> tuple[AdviceTrial, ...]:
    """Train with each change that is estimated to lower the peak, and return what it came to.

    One that cannot be started is told with its reason; an interruption ends the trials, and those until then
    are kept.

    Args:
        training: As it was, of one process.
        device: `cuda`, `cpu`, `simulate` or `simulate:24GiB`.
        advice: What to try.
        run: Trains once.
    """
    trials: list[AdviceTrial] = []
    for change in choose_changes(advice):
        try:
            (tried,) = run(change_training(training, change), device)
        except UsageError as error:
            trials.append(_make_trial(change, advice, None, str(error)))
            continue
        if tried.end == "interrupted":
            break
        trials.append(_make_trial(change, advice, tried, tried.error))
    return tuple(trials)


def choose_changes(advice: PhaseAdvice) -> list[PhaseChange]:
    """Return the changes that are worth a trial, and that a single process can try.

    Args:
        advice: What was found.
    """
    helping = [each for each in advice.changes if each.saved_bytes and each.flags]
    return [each for each in helping if each.flags[0] in _FIELDS][:MOST_TRIALS]


def change_training(training: PhaseTraining, change: PhaseChange) -> PhaseTraining:
    """Return the training with a change.

    Args:
        training: As it was.
        change: One of `choose_changes`.
    """
    flag, *values = change.flags
    given = {**msgspec.structs.asdict(training), _FIELDS[flag]: values[0] if values else True}
    return msgspec.convert(given, PhaseTraining, strict=False)


def _make_trial(
    change: PhaseChange, advice: PhaseAdvice, tried: PhaseRun | None, error: str | None
) -> AdviceTrial:
    peak = None if tried is None else tried.peak.allocated_bytes
    is_whole = tried is not None and tried.end == "finished"
    return AdviceTrial(
        name=change.name,
        flags=change.flags,
        estimated_peak_bytes=change.peak_bytes,
        peak_bytes=peak,
        reserved_peak_bytes=None if tried is None else tried.peak.reserved_bytes,
        saved_bytes=advice.peak_bytes - peak if is_whole and peak is not None else None,
        end=None if tried is None else tried.end,
        error=error,
    )
