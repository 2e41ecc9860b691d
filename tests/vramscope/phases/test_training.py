"""What a training by phase measures: figures that follow from the model, on a card counted exactly."""

import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.components import missing
from tests.engine.simulation.simulated import MIB
from tests.vramscope.phases.trained import Trained, train
from vramscope.engine.errors import SettingError
from vramscope.engine.model.phase_memory import PRIVACY_MODES, PhaseMemory, PhaseTraining, PrivacyMode
from vramscope.engine.workloads.llama_presets import LLAMA_PRESETS

BATCH = 2
PARAMETERS = 2 * 1000 * 64 + 2 * (64 * (2 * 64 + 2 * 32) + 3 * 64 * 128 + 2 * 64) + 64
"""Of tiny: two embeddings, two layers of attention, SwiGLU and two norms, and the last norm."""
BLOCK = 512
"""The allocator rounds each tensor up to this; tiny has 21 of them."""
TENSORS = 21
MODES: dict[str, PhaseTraining] = {
    mode: PhaseTraining(model_size="tiny", batch_size=BATCH, num_steps=2, privacy=mode, noise_multiplier=0.0)
    for mode in PRIVACY_MODES
}
OTHERS = {
    "checkpoint": PhaseTraining(
        model_size="tiny", batch_size=BATCH, num_steps=2, noise_multiplier=0.0, is_checkpointed=True
    ),
    "adam": PhaseTraining(
        model_size="tiny", num_steps=1, warmup_steps=1, privacy="none", optimizer="adam", precision="amp"
    ),
}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    if find_spec("opacus") is None:
        missing("opacus is not installed (pip install opacus)")
    return train(tmp_path_factory.mktemp("real"), MODES | OTHERS)


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    if find_spec("opacus") is None:
        missing("opacus is not installed (pip install opacus)")
    return train(tmp_path_factory.mktemp("fake"), MODES, is_fake=True)


def find(trained: Trained, phase: str, step: int | None = None) -> PhaseMemory:
    return next(it for it in trained.run.phases if (it.phase, it.step) == (phase, step))


def test_presets_have_the_parameters_that_follow_from_their_sizes(real: dict[str, Trained]) -> None:
    assert LLAMA_PRESETS["tiny"].parameters == PARAMETERS
    state = real["none"].run.state
    assert state is not None
    assert state.parameters == PARAMETERS
    assert state.parameter_bytes == state.gradient_bytes == 4 * PARAMETERS
    created = find(real["none"], "Model Creation").allocated_difference_bytes or 0
    assert 4 * PARAMETERS <= created <= 4 * PARAMETERS + TENSORS * BLOCK


@pytest.mark.parametrize(
    ("mode", "copies"), [("hooks", BATCH), ("functorch", BATCH), ("ghost", 0), ("none", 0)]
)
def test_gradients_by_sample_are_as_many_as_samples_and_none_with_ghost_clipping(
    real: dict[str, Trained], mode: str, copies: int
) -> None:
    state = real[mode].run.state
    assert state is not None
    assert state.per_sample_gradient_bytes == copies * 4 * PARAMETERS
    assert state.optimizer_bytes == 0


def test_all_ways_to_clip_take_the_same_step_with_checkpoints_too(real: dict[str, Trained]) -> None:
    losses = [real[name].run.losses for name in ("hooks", "functorch", "ghost", "checkpoint")]
    assert all(it == pytest.approx(losses[0], rel=1e-6) for it in losses)
    assert losses[0][0] != losses[0][1]


@pytest.mark.parametrize("mode", PRIVACY_MODES)
def test_figures_without_storage_are_those_with_it_to_the_byte(
    real: dict[str, Trained], fake: dict[str, Trained], mode: PrivacyMode
) -> None:
    def list_levels(trained: Trained) -> list[object]:
        return [(it.phase, it.step, it.before, it.after, it.peak) for it in trained.run.phases]

    if mode == "ghost":
        # A token that comes twice makes the norm of the embedding's gradient smaller, if values are known.
        assert [it[:2] for it in list_levels(fake[mode])] == [it[:2] for it in list_levels(real[mode])]  # type: ignore[index]
        assert fake[mode].run.peak == real[mode].run.peak
        assert "treats all tokens" in fake[mode].run.notes[0]
    else:
        assert list_levels(fake[mode]) == list_levels(real[mode])
    assert fake[mode].run.losses == (None, None)
    assert fake[mode].run.device.is_fake


def test_checkpoints_keep_less_after_the_forward_pass(real: dict[str, Trained]) -> None:
    plain, kept = (
        find(real[name], "Forward", 2).allocated_difference_bytes or 0 for name in ("hooks", "checkpoint")
    )
    assert kept < plain / 2


def test_adam_keeps_two_numbers_a_parameter_and_warm_up_is_not_told(real: dict[str, Trained]) -> None:
    run = real["adam"].run
    assert run.state is not None
    assert run.state.optimizer_bytes == 2 * 4 * PARAMETERS
    assert [it.phase for it in run.phases] == [
        "Model Creation",
        "Forward",
        "Loss",
        "Backward",
        "Optimizer Step",
        "Zero Gradients",
    ]
    assert {it.step for it in run.phases} == {None, 1}
    assert len(run.losses) == 1
    step = find(real["adam"], "Optimizer Step", 1)
    assert step.allocated_difference_bytes == 0  # its state was made in the warm-up


def test_running_out_of_memory_keeps_what_was_measured(tmp_path: Path) -> None:
    training = PhaseTraining(model_size="tiny", batch_size=64, privacy="none", num_steps=1)
    run = train(tmp_path, {"large": training}, total_bytes=64 * MIB)["large"].run
    assert (run.end, run.failed_phase, run.failed_step) == ("out_of_memory", "Forward", 1)
    assert [it.phase for it in run.phases] == ["Model Creation"]
    assert run.requested_bytes is not None
    assert run.held is not None
    assert run.held.reserved_bytes is not None
    assert run.held.reserved_bytes + run.requested_bytes > 64 * MIB
    assert (run.error or "").startswith("CUDA out of memory.")


USERS = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, norm=False):
        super().__init__()
        self.words, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)
        self.norm = nn.BatchNorm1d(16) if norm else nn.Identity()
    def forward(self, tokens):
        return self.head(self.norm(self.words(tokens).transpose(1, 2)).transpose(1, 2))
def make_plain():
    return Model()
def make_normed():
    return Model(norm=True)
def make_nothing():
    raise ValueError("no such checkpoint\\nin this folder")
def make_odd():
    return Model(), lambda batch_size, seq_length: batch_size
def make_late():
    class Late(Model):
        def forward(self, tokens):
            raise ValueError("not today")
    return Late()
"""


def test_models_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(textwrap.dedent(USERS), encoding="utf-8")

    def ask(function: str, **options: bool) -> PhaseTraining:
        return PhaseTraining(model_size=None, factory=f"mine:{function}", num_steps=1, **options)  # type: ignore[arg-type]

    done = train(
        tmp_path,
        {
            "plain": ask("make_plain"),
            "normed": ask("make_normed"),
            "fixed": ask("make_normed", is_fixed=True),
            "nothing": ask("make_nothing"),
            "odd": ask("make_odd"),
            "late": ask("make_late"),
            "unknown": ask("make_tea"),
        },
    )
    assert done["plain"].run.end == "finished"
    assert done["normed"].last.obstacle == "refused"
    refusals = {name: SettingError(*each.last.refusal) for name, each in done.items()}
    assert "BatchNorm cannot support training with differential privacy" in str(refusals["normed"])
    assert "--fix" in refusals["normed"].describe("flag")
    assert "is_fixed" in str(refusals["normed"])
    assert done["fixed"].run.end == "finished"
    assert done["fixed"].run.notes == ("ModuleValidator.fix replaced norm (BatchNorm1d by GroupNorm)",)
    assert str(refusals["nothing"]) == "mine:make_nothing raised ValueError: no such checkpoint"
    assert "make_batch returned int; expected two tensors" in str(refusals["odd"])
    assert done["late"].run.error == "ValueError: not today"
    assert (done["late"].run.end, done["late"].run.failed_phase) == ("failed", "Forward")
    assert [it.phase for it in done["late"].run.phases] == ["Model Creation", "DP Setup"]
    assert str(refusals["unknown"]) == "mine:make_tea: mine has no function 'make_tea'"
    errors = done["late"].errors
    assert errors.count("Traceback") == 2
    assert "workloads" not in errors
