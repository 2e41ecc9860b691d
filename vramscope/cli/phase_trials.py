"""`vramscope phases --try-advice`: train again with each advised change."""

from collections.abc import Sequence

from vramscope.analyzers.planning.phases import AdviceTrial
from vramscope.engine.errors import UsageError
from vramscope.engine.model.phase_memory import PhaseRun, PhaseTraining

from .frame.progress import ProgressLine


def refuse_ranks(training: PhaseTraining) -> None:
    """Refuse to try advice where several processes train.

    Raises:
        UsageError: They do.
    """
    if training.strategy is not None:
        raise UsageError("--try-advice trains in one process: leave out --strategy")


def try_changes(
    program: str, training: PhaseTraining, device: str, runs: Sequence[PhaseRun]
) -> tuple[AdviceTrial, ...]:
    """Return what advised changes come to; nothing where the run was interrupted or has no advice.

    Args:
        program: What the line of progress begins with.
        training: As it was.
        device: What it was trained on, as it was asked for.
        runs: What was measured.
    """
    from vramscope.analyzers.planning.phases import advise_phases
    from vramscope.phases.running import run_phases
    from vramscope.phases.trials import choose_changes, try_advice

    advice = advise_phases(runs)
    if advice is None or any(run.end in {"interrupted", "failed"} for run in runs):
        return ()
    begun = 0
    total = len(choose_changes(advice))
    with ProgressLine(program, "changes tried") as progress:

        def train(changed: PhaseTraining, on: str) -> tuple[PhaseRun, ...]:
            nonlocal begun
            progress.show_count(begun, total)
            begun += 1
            return run_phases(changed, on)

        return try_advice(training, device, advice, run=train)
