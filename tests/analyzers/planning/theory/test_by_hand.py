"""Single terms, worked out by hand for sizes that are whole MiB."""

import msgspec
import pytest

from vramscope.analyzers.planning.theory import (
    ExpertShape,
    MemoryPart,
    ModelShape,
    Moment,
    ParallelLayout,
    TrainingSetup,
    count_states,
    estimate_stages,
)
from vramscope.analyzers.planning.theory.activations import list_layer_activations
from vramscope.analyzers.planning.theory.configs.flags import Flags
from vramscope.analyzers.planning.theory.configs.megatron import read_shape
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


def list_saved(setup: TrainingSetup = SETUP, **shape: object) -> dict[str, int]:
    return list_layer_activations(msgspec.structs.replace(SHAPE, **shape), ParallelLayout(), setup, 0)


# Two experts, each token goes to both: 8,192 rows, whose inner state is 32 MiB.
EXPERTS = ExpertShape(experts=2, top_k=2, ffn=2048, is_expert_layer=(True,))


def test_a_gate_without_a_fused_kernel_keeps_both_factors() -> None:
    """`glu` of core/transformer/mlp.py multiplies the function of one half and the other half plus 0."""
    plain = msgspec.structs.replace(SETUP, fuses_gate=False)
    assert "activation function of the gate" not in list_saved(is_gated=True)
    assert list_saved(plain, is_gated=True)["activation function of the gate"] == 2 * 16 * MIB


def test_experts_without_a_fused_gate_keep_what_the_router_weights() -> None:
    """`per_token_scale` of core/transformer/mlp.py is a product of its own behind `glu`."""
    plain = msgspec.structs.replace(SETUP, fuses_gate=False)
    fused = list_saved(is_gated=True, experts=EXPERTS)
    parts = list_saved(plain, is_gated=True, experts=EXPERTS)
    assert ("expert gate" in fused, "expert weighted output" in fused) == (False, False)
    assert (parts["expert gate"], parts["expert weighted output"]) == (2 * 32 * MIB, 32 * MIB)


# Query, key and value are views of one product, 12 MiB; a group of two heads has half the keys.
@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ({}, 12),
        # New are query and key.
        ({"has_rotary": True}, 12 + 8),
        ({"has_query_key_norm": True}, 12 + 8),
        # The product of 8 MiB, and keys and values again for each head.
        ({"kv_groups": 4}, 8 + 8),
        # All three are new, and the product is gone.
        ({"kv_groups": 4, "has_rotary": True}, 12),
        # Norms keep the product.
        ({"kv_groups": 4, "has_rotary": True, "has_query_key_norm": True}, 8 + 12),
    ],
)
def test_own_attention_keeps_the_product_as_long_as_a_view_of_it(shape: dict[str, object], size: int) -> None:
    own = msgspec.structs.replace(SETUP, attention="unfused")
    saved = list_saved(own, **shape)
    assert (saved["query, key, value"], saved.get("query and key norm input")) == (size * MIB, None)
    engine = msgspec.structs.replace(own, has_transformer_engine=True)
    less = 8 if "kv_groups" in shape else 12
    assert list_saved(engine, **shape)["query, key, value"] == less * MIB


@pytest.mark.parametrize(
    ("flags", "is_rotary"),
    [
        ({}, False),
        ({"position-embedding-type": "none"}, False),
        ({"position-embedding-type": "rope"}, True),
        ({"position_embedding_type": "yarn"}, True),
        ({"use-rotary-position-embeddings": True}, True),
    ],
)
def test_rotary_positions_are_read_from_either_flag(flags: dict[str, object], is_rotary: bool) -> None:
    sizes = {"num-layers": 2, "hidden-size": 64, "num-attention-heads": 4, "seq-length": 32}
    assert read_shape(Flags({**sizes, **flags})).has_rotary == is_rotary


def test_the_head_of_bert_keeps_five_tensors_and_the_gathered_input_of_its_pooler() -> None:
    """Inputs of norm, projection, activation function, norm and head (core/models/bert/bert_lm_head.py)."""
    bert = msgspec.structs.replace(SHAPE, has_masked_head=True)

    def sum_head(layout: ParallelLayout) -> int:
        moment = estimate_stages(bert, layout, SETUP)[-1].moments[-1]
        names = ("final norm input", "head input", "masked head", "pooler input")
        statistics = 4096 // layout.norm_shards * 4 * 2
        return sum(part.size_bytes for part in moment.parts if part.name in names) - statistics

    assert sum_head(ParallelLayout()) == 5 * 4 * MIB
    # Each is halved by sequence parallelism; the pooler reads the whole.
    assert sum_head(ParallelLayout(tensor=2, is_sequence_parallel=True)) == 5 * 2 * MIB + 4 * MIB


@pytest.mark.parametrize(("recompute", "modules"), [("full", ("core_attn",)), ("selective", ("moe",))])
def test_recomputed_experts_leave_an_input_and_its_gradient_between_steps(
    recompute: str, modules: tuple[str, ...]
) -> None:
    """The dispatcher holds probabilities, and with them their graph (moe/token_dispatcher.py)."""
    routed = msgspec.structs.replace(
        SHAPE, layers=4, experts=msgspec.structs.replace(EXPERTS, is_expert_layer=(True, False, True, True))
    )
    setup = msgspec.structs.replace(SETUP, recompute=recompute, recomputed_modules=modules)
    between, backward, *_ = estimate_stages(routed, ParallelLayout(), setup)[0].moments
    name = "left by recomputed experts"
    assert find(between, name).size_bytes == 3 * 2 * 4 * MIB
    # The first layer's backward pass runs when the other two have left their gradients.
    assert find(backward, name).size_bytes == 2 * 4 * MIB
    whole = msgspec.structs.replace(SETUP, recompute="none")
    kept = estimate_stages(routed, ParallelLayout(), whole)[0].moments[0]
    assert all(part.name != name for part in kept.parts)


def test_between_steps_the_first_stage_holds_neither_input_nor_its_gradient() -> None:
    """Three hidden states on other stages; `recv_forward` of core/pipeline_parallel gives the first none."""
    stages = estimate_stages(SHAPE, ParallelLayout(pipeline=3), SETUP)
    sizes = [find(stage.moments[0], "hidden states of neighbours").size_bytes for stage in stages]
    assert sizes == [4 * MIB, 12 * MIB, 12 * MIB]
