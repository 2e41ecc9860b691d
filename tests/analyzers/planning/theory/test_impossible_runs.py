"""Degrees and sizes that cannot be are named in one line, with what would do."""

import msgspec
import pytest

from vramscope.analyzers.planning.theory import ParallelLayout, TrainingSetup, estimate_stages
from vramscope.analyzers.planning.theory.presets import PRESETS, find_preset
from vramscope.engine.errors import UsageError

SETUP = TrainingSetup(seq_length=4096, micro_batch_size=1)


@pytest.mark.parametrize(
    ("model", "degrees", "words"),
    [
        ("llama2-7b", {"tensor": 3}, "TP = 3 does not divide the 32 heads"),
        ("llama3-8b", {"tensor": 0}, "tensor degree is 0"),
        ("llama2-7b", {"pipeline": 5}, "32 layers do not divide over PP = 5"),
        ("llama2-7b", {"pipeline": 64}, "more than the 32 layers"),
        ("llama2-7b", {"expert": 2, "data": 2}, "the model has no experts"),
        ("llama2-7b", {"context": 3}, "2 x CP = 6 does not divide the 4096 tokens"),
        ("mixtral-8x7b", {"expert": 3, "data": 3}, "EP = 3 does not divide the 8 experts"),
        ("mixtral-8x7b", {"expert": 8, "data": 4}, "does not divide the 4 ranks of a pipeline stage"),
        ("llama2-7b", {"pipeline": 2, "stage_layers": (16, 15)}, "have 31 layers, but the model has 32"),
        ("llama2-7b", {"pipeline": 4, "first_stage_layers": 7}, "25 layers remain for 3 middle stages"),
    ],
)
def test_an_impossible_degree_is_named(model: str, degrees: dict[str, object], words: str) -> None:
    layout = msgspec.structs.replace(ParallelLayout(), **degrees)
    with pytest.raises(UsageError, match=words) as caught:
        estimate_stages(PRESETS[model], layout, SETUP)
    assert "\n" not in str(caught.value)


def test_a_sequence_longer_than_the_positions_is_refused_and_rotary_ones_have_no_end() -> None:
    with pytest.raises(
        UsageError, match="has 4096 tokens, but the model learns 1024 positions; choose a"
    ) as caught:
        estimate_stages(PRESETS["gpt2-xl"], ParallelLayout(), SETUP)
    assert "\n" not in str(caught.value)
    assert estimate_stages(
        PRESETS["llama2-7b"], ParallelLayout(), msgspec.structs.replace(SETUP, seq_length=131072)
    )


def test_a_misspelt_model_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean llama2-7b"):
        find_preset("lama2-7b")


def test_uneven_stages_hold_what_was_asked() -> None:
    layout = ParallelLayout(pipeline=4, first_stage_layers=7, last_stage_layers=5)
    stages = estimate_stages(PRESETS["llama2-7b"], layout, SETUP)
    assert [len(stage.layers) for stage in stages] == [7, 10, 10, 5]
