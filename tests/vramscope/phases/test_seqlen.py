"""Runs at several lengths: each is a point, whatever became of it; what is known when it ends is kept."""

import pytest

from tests.vramscope.phases.studies import make_run
from vramscope.engine.errors import UsageError
from vramscope.engine.model.phase_memory import PhaseRun, PhaseTraining
from vramscope.phases.seqlen import run_lengths

TRAINING = PhaseTraining(model_size="tiny")


def test_lengths_run_one_after_the_other_and_out_of_memory_is_a_point() -> None:
    asked = []

    def run(training: PhaseTraining, device: str) -> PhaseRun:
        asked.append((device, training.seq_length, training.privacy))
        fails_in = "Backward" if training.seq_length == 128 else None
        return make_run(training.privacy, training.seq_length, fails_in=fails_in)

    study = run_lengths(TRAINING, "simulate:1GiB", [256, 64, 128], ["none", "ghost"], run=run)
    assert asked == [
        ("simulate:1GiB", length, mode) for length in (64, 128, 256) for mode in ("none", "ghost")
    ]
    assert [run.end for run in study.runs] == ["finished"] * 2 + ["out_of_memory"] * 2 + ["finished"] * 2
    assert not study.is_interrupted


def test_what_cannot_be_run_here_is_a_point_and_nothing_at_all_is_an_error() -> None:
    def run(training: PhaseTraining, device: str) -> PhaseRun:
        if training.privacy == "ghost":
            raise UsageError(f"no room for {training.seq_length}")
        return make_run(training.privacy, training.seq_length)

    study = run_lengths(TRAINING, "simulate", [64, 128], ["none", "ghost"], run=run)
    ghost = study.find_point("ghost", 128)
    assert ghost is not None
    assert (ghost.run, ghost.refusal) == (None, "no room for 128")
    assert len(study.runs) == 2

    def refuse(training: PhaseTraining, device: str) -> PhaseRun:
        raise UsageError("--model-size huge: expected one of tiny, small")

    with pytest.raises(UsageError, match="--model-size huge"):
        run_lengths(TRAINING, "simulate", [64, 128], ["none"], run=refuse)


@pytest.mark.parametrize("is_raised", [True, False])
def test_an_interruption_keeps_what_was_measured(*, is_raised: bool) -> None:
    def run(training: PhaseTraining, device: str) -> PhaseRun:
        if training.seq_length == 256:
            if is_raised:
                raise KeyboardInterrupt
            return PhaseRun(training=training, device=make_run().device, end="interrupted")
        return make_run("hooks", training.seq_length)

    study = run_lengths(TRAINING, "simulate", [64, 128, 256, 512], ["hooks"], run=run)
    assert study.is_interrupted
    assert [each.training.seq_length for each in study.runs if each.end == "finished"] == [64, 128]
    assert study.find_point("hooks", 512) is None
