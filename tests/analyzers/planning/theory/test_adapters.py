"""Adapters, weights of 4 bits, moments of 8 bits: what trains has states, what is frozen has its weights."""

import msgspec
import pytest

from vramscope.analyzers.planning.theory import ModelShape, ParallelLayout, TrainingSetup, estimate_stages
from vramscope.analyzers.planning.theory.presets import PRESETS
from vramscope.analyzers.planning.theory.shape import BF16, PURE_BF16, NumberFormat
from vramscope.analyzers.planning.theory.weights import (
    count_elements,
    list_adapter_weights,
    list_layer_weights,
    list_outside_weights,
)
from vramscope.engine.errors import UsageError

WHOLE = ParallelLayout()
LLAMA = PRESETS["llama3-8b"]


def read_parts(shape: ModelShape, setup: TrainingSetup) -> dict[str, int]:
    (stage,) = estimate_stages(shape, WHOLE, setup)
    return {part.name: part.size_bytes for part in stage.moments[1].parts}


def count_adapters(shape: ModelShape, rank: int) -> int:
    return sum(count_elements(list_adapter_weights(shape, WHOLE, it, rank)) for it in range(shape.layers))


@pytest.mark.parametrize(
    ("name", "rank", "parameters"),
    # What PEFT's `print_trainable_parameters` says for all linear layers of these models.
    [("llama3-8b", 16, 41_943_040), ("llama2-7b", 8, 19_988_480), ("mistral-7b", 64, 167_772_160)],
)
def test_adapters_have_the_parameters_that_peft_counts(name: str, rank: int, parameters: int) -> None:
    assert count_adapters(PRESETS[name], rank) == parameters


def test_with_adapters_only_they_have_gradients_and_moments() -> None:
    setup = TrainingSetup(seq_length=2048, micro_batch_size=1, adapter_rank=16)
    parts = read_parts(LLAMA, setup)
    adapters = count_adapters(LLAMA, 16)
    assert parts["gradients"] == 4 * adapters
    assert parts["optimizer"] == 8 * adapters
    assert parts["weights"] == 2 * 8_030_261_248 + 4 * adapters
    assert "master weights" not in parts
    # Every linear layer's adapter has its own copy of the input in fp32.
    hidden, ffn = LLAMA.hidden, LLAMA.ffn
    assert parts["adapter input"] == 2048 * 32 * 4 * (3 * hidden + hidden + 2 * hidden + ffn)
    assert "MLP input" not in parts
    assert "attention input" not in parts


def test_frozen_matrices_of_four_bits_have_half_a_byte_and_their_scales() -> None:
    setup = TrainingSetup(seq_length=2048, micro_batch_size=1, adapter_rank=16, has_nf4_weights=True)
    matrices = sum(
        tensor.elements
        for layer in range(LLAMA.layers)
        for tensor in list_layer_weights(LLAMA, WHOLE, layer)
        if tensor.is_matrix
    )
    outside = count_elements(list_outside_weights(LLAMA, WHOLE, is_first=True, is_last=True))
    norms = 2 * LLAMA.layers * LLAMA.hidden
    # 4 bits, and 0.127 bits for scales (QLoRA, arXiv 2305.14314, section 3); the table of words stays.
    least = matrices * (4 + 8 / 64 + 32 / (64 * 256)) / 8 + 2 * (outside + norms)
    weights = read_parts(LLAMA, setup)["weights"] - 4 * count_adapters(LLAMA, 16)
    assert weights == pytest.approx(least, rel=1e-5)


def test_moments_of_eight_bits_are_two_bytes_and_their_scales() -> None:
    eight = msgspec.structs.replace(PURE_BF16, moment_bytes=2, moment_block=256)
    setup = TrainingSetup(seq_length=2048, micro_batch_size=1, numbers=eight)
    parts = read_parts(LLAMA, setup)
    parameters = 8_030_261_248
    assert LLAMA.hidden == 4096  # norms are large enough for 8 bits
    assert parts["optimizer"] == parameters * 2 + 2 * 4 * parameters // 256
    narrow = msgspec.structs.replace(LLAMA, hidden=2048, head_channels=64)
    (tensor,) = {it.elements for it in list_layer_weights(narrow, WHOLE, 0) if it.part == "norm"}
    assert tensor < 4096
    norms = (2 * narrow.layers + 1) * 2048
    rest = (
        count_elements(
            [
                it
                for layer in range(32)
                for it in list_layer_weights(narrow, WHOLE, layer)
                if it.part != "norm"
            ]
        )
        + 2 * 2048 * narrow.vocab
    )
    assert read_parts(narrow, setup)["optimizer"] == 8 * norms + 2 * rest + 2 * 4 * rest // 256


@pytest.mark.parametrize("numbers", [BF16, PURE_BF16])
def test_adapters_keep_less_than_training_all(numbers: NumberFormat) -> None:
    whole = TrainingSetup(seq_length=2048, micro_batch_size=1, numbers=numbers)
    (all_of_it,) = estimate_stages(LLAMA, WHOLE, whole)
    (adapted,) = estimate_stages(LLAMA, WHOLE, msgspec.structs.replace(whole, adapter_rank=8))
    assert adapted.allocated_bytes < 0.4 * all_of_it.allocated_bytes
    assert adapted.peak_bytes < all_of_it.peak_bytes


def test_weights_of_four_bits_do_not_train() -> None:
    setup = TrainingSetup(seq_length=128, micro_batch_size=1, has_nf4_weights=True)
    with pytest.raises(UsageError, match="give the rank of adapters"):
        estimate_stages(LLAMA, WHOLE, setup)


def test_routed_experts_stay_at_the_precision_when_linear_layers_have_four_bits() -> None:
    """Their 3-D parameters are no `nn.Linear`, and bitsandbytes converts nothing else."""
    mixture = PRESETS["qwen3-30b-a3b"]
    setup = TrainingSetup(seq_length=2048, micro_batch_size=1, adapter_rank=16, has_nf4_weights=True)
    weights = [
        tensor for layer in range(mixture.layers) for tensor in list_layer_weights(mixture, WHOLE, layer)
    ]
    experts = count_elements([tensor for tensor in weights if tensor.is_expert])
    converted = sum(it.elements for it in weights if it.is_matrix and not it.is_expert)
    kept = count_elements(weights) - experts - converted
    outside = count_elements(list_outside_weights(mixture, WHOLE, is_first=True, is_last=True))
    least = 2 * (experts + kept + outside) + converted * (4 + 8 / 64 + 32 / (64 * 256)) / 8
    found = read_parts(mixture, setup)["weights"] - 4 * count_adapters(mixture, 16)
    assert found == pytest.approx(least, rel=1e-5)
    assert experts > 0.9 * count_elements(weights)
