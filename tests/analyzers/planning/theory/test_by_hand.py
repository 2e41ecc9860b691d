"""Single terms, worked out by hand for sizes that are whole MiB."""

import msgspec

from vramscope.analyzers.planning.theory import (
    MemoryPart,
    ModelShape,
    Moment,
    ParallelLayout,
    TrainingSetup,
    count_states,
    estimate_stages,
)
from vramscope.analyzers.planning.theory.weights import WeightTensor

MIB = 2**20
SHAPE = ModelShape(
    layers=15, hidden=512, heads=8, kv_groups=8, head_channels=64, ffn=2048, vocab=50257, vocab_multiple=128
)
SETUP = TrainingSetup(seq_length=1024, micro_batch_size=4, micro_batches=9)
"""4,096 tokens: a hidden state is 4 MiB, the inner one of an MLP 16 MiB."""


def find(moment: Moment, name: str) -> MemoryPart:
    return next(part for part in moment.parts if part.name == name)


def test_backward_adds_two_gradients_and_one_of_a_weight() -> None:
    """4 of the MLP's output, 16 of its second projection's input, 2 of that projection's weight."""
    middle = estimate_stages(SHAPE, ParallelLayout(pipeline=3), SETUP)[1]
    assert middle.peak.name == "backward"
    assert find(middle.peak, "gradients of activations").size_bytes == 22 * MIB


def test_checkpoints_are_one_for_each_unit_and_the_last_one_is_recomputed() -> None:
    """Five layers in units of two have three inputs; a layer without dropout keeps 32 s b h."""
    setup = msgspec.structs.replace(SETUP, recompute="full", recompute_unit_layers=2)
    middle = estimate_stages(SHAPE, ParallelLayout(pipeline=3), setup)[1]
    assert middle.in_flight == 2
    assert find(middle.peak, "checkpoints").size_bytes == 2 * 3 * 4 * MIB
    statistics = 4096 * (2 * 4 + 8 * 4)
    assert find(middle.peak, "recomputed layers").size_bytes == 2 * (16 * 4 * MIB + statistics)


def test_experts_are_sharded_over_their_own_copies() -> None:
    """16 ranks, TP 2, EP 4: a dense weight has 8 data ranks, an expert 2."""
    layout = ParallelLayout(tensor=2, data=8, expert=4)
    setup = msgspec.structs.replace(SETUP, zero_stage=1)
    dense = count_states([WeightTensor("mlp", MIB)], layout, setup)
    expert = count_states([WeightTensor("experts", MIB, is_expert=True)], layout, setup)
    assert (dense.master_weights, dense.optimizer) == (4 * MIB // 8, 8 * MIB // 8)
    assert (expert.master_weights, expert.optimizer) == (4 * MIB // 2, 8 * MIB // 2)
    assert dense.weights == expert.weights == 2 * MIB
