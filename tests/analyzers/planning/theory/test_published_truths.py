"""Numbers that papers print, which the same formulas must give to the last digit."""

import pytest

from vramscope.analyzers.planning.theory import (
    BF16_GRADIENTS,
    ModelShape,
    ParallelLayout,
    TrainingSetup,
    count_parameters,
    count_states,
    estimate_as_fork,
    share_states,
    split_layers,
)
from vramscope.analyzers.planning.theory.activations import RunFigures
from vramscope.analyzers.planning.theory.estimate import list_held_activations
from vramscope.analyzers.planning.theory.presets import PRESETS
from vramscope.analyzers.planning.theory.shape import count_in_flight
from vramscope.analyzers.planning.theory.weights import list_layer_weights

GIB = 1 << 30


def make_gpt(layers: int, hidden: int, heads: int, positions: int = 0) -> ModelShape:
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_groups=heads,
        head_channels=hidden // heads,
        ffn=4 * hidden,
        vocab=51200,
        is_tied=True,
        has_linear_bias=True,
        has_qkv_bias=True,
        has_norm_bias=True,
        learned_positions=positions,
    )


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "batch", "pipeline", "pieces", "plain_gib", "saving_gib", "states_gib"),
    [
        (48, 6144, 64, 4, 1, 1, 59.25, 9.5625, 45.5625),
        (96, 12288, 96, 1, 8, 3, 66.84375, 12.3515625, 45.5625),
        (105, 20480, 128, 1, 35, 3, 114.0234375, 23.076171875, 31.640625),
        (128, 25600, 160, 1, 64, 1, 131.25, 26.5625, 32.958984375),
    ],
    ids=["22B", "175B", "530B", "1T"],
)
def test_first_stage_is_that_of_korthikanti(
    layers: int,
    hidden: int,
    heads: int,
    batch: int,
    pipeline: int,
    pieces: int,
    plain_gib: float,
    saving_gib: float,
    states_gib: float,
) -> None:
    """Korthikanti et al., arXiv 2205.05198, figures 1 and 7: four models, TP 8, sequences of 2048."""
    shape = make_gpt(layers, hidden, heads)
    plain = ParallelLayout(tensor=8, pipeline=pipeline, virtual_stages=pieces)
    split = ParallelLayout(tensor=8, pipeline=pipeline, virtual_stages=pieces, is_sequence_parallel=True)
    setup = TrainingSetup(
        seq_length=2048,
        micro_batch_size=batch,
        micro_batches=pipeline * pieces,
        attention="unfused",
        has_attention_dropout=True,
        has_hidden_dropout=True,
    )
    saving = TrainingSetup(
        seq_length=2048,
        micro_batch_size=batch,
        micro_batches=pipeline * pieces,
        recompute="selective",
        attention="unfused",
        has_attention_dropout=True,
        has_hidden_dropout=True,
    )
    assert hold(shape, plain, setup) == plain_gib * GIB
    assert hold(shape, split, saving) == saving_gib * GIB
    matrices = [tensor for tensor in list_layer_weights(shape, plain, 0) if tensor.is_matrix]
    states = count_states(matrices * (layers // pipeline), plain, setup)
    assert states.total == states_gib * GIB


def hold(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> int:
    """Return what the first stage holds of tensors that the paper counts: no statistics in fp32."""
    pieces = split_layers(shape.layers, layout)[0]
    in_flight = count_in_flight(layout, setup, 0)
    held = list_held_activations(RunFigures(shape, layout, setup), pieces, in_flight, is_first=False)
    return sum(size for name, size in held.items() if name != "norm statistics")


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "billions"),
    [
        (24, 2304, 24, 1.7),
        (30, 3072, 32, 3.6),
        (36, 4096, 32, 7.5),
        (40, 6144, 48, 18.4),
        (48, 8192, 64, 39.1),
        (60, 10240, 80, 76.1),
        (80, 12288, 96, 145.6),
        (96, 16384, 128, 310.1),
        (105, 20480, 128, 529.6),
        (128, 25600, 160, 1008.0),
    ],
)
def test_parameters_are_those_of_megatron(layers: int, hidden: int, heads: int, billions: float) -> None:
    """Narayanan et al., arXiv 2104.04473, table 1 and equation 2, which leaves out the last norm."""
    parameters = count_parameters(make_gpt(layers, hidden, heads, positions=2048))
    equation = 12 * layers * hidden**2 + 13 * layers * hidden + (51200 + 2048) * hidden
    assert parameters == equation + 2 * hidden
    assert round(parameters / 1e9, 1) == billions


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt2-xl", 1_557_611_200),
        ("llama2-7b", 6_738_415_616),
        ("llama2-70b", 68_976_648_192),
        ("llama3-8b", 8_030_261_248),
        ("llama3-405b", 405_853_388_800),
        ("llama3.2-1b", 1_235_814_400),
        ("mistral-7b", 7_241_732_096),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen2.5-7b", 7_615_616_512),
        ("deepseek-v2-lite", 15_706_484_224),
    ],
)
def test_presets_have_the_parameters_of_their_checkpoints(name: str, parameters: int) -> None:
    """Sizes of the safetensors of the published checkpoints, in elements."""
    assert count_parameters(PRESETS[name]) == parameters


@pytest.mark.parametrize(
    ("ranks", "gigabytes"),
    [
        (1, (120, 120, 120)),
        (4, (52.5, 41.3, 30)),
        (16, (35.6, 21.6, 7.5)),
        (64, (31.4, 16.6, 1.88)),
        (256, (30.4, 15.4, 0.47)),
        (1024, (30.1, 15.1, 0.12)),
    ],
)
def test_shares_are_those_of_zero(ranks: int, gigabytes: tuple[float, ...]) -> None:
    """Rajbhandari et al., arXiv 1910.02054, table 1, a model of 7.5 billion parameters; decimal GB."""
    found = [share_states(7_500_000_000, ranks, stage, BF16_GRADIENTS) / 1e9 for stage in (1, 2, 3)]
    assert found == pytest.approx(gigabytes, abs=0.051, rel=0.005)


@pytest.mark.parametrize(
    ("tensor", "pipeline", "mib"),
    [
        (2, 64, 140204.06),
        (4, 32, 102182.44),
        (4, 64, 70102.03),
        (8, 16, 83411.72),
        (8, 32, 51091.22),
        (8, 64, 35051.02),
    ],
)
def test_fork_tells_what_its_traces_tell(tensor: int, pipeline: int, mib: float) -> None:
    shape = ModelShape(
        layers=96,
        hidden=20480,
        heads=160,
        kv_groups=160,
        head_channels=128,
        ffn=4 * 20480,
        vocab=50257,
        vocab_multiple=128,
        is_tied=True,
        has_linear_bias=True,
        has_norm_bias=True,
    )
    layout = ParallelLayout(tensor=tensor, pipeline=pipeline, data=8192 // tensor // pipeline)
    setup = TrainingSetup(seq_length=2048, micro_batch_size=1, micro_batches=1024)
    assert estimate_as_fork(shape, layout, setup) / 2**20 == pytest.approx(mib, abs=0.01)
