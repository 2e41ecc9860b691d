"""What training with sharded gradients holds whole for a moment, and what recomputing operations keeps."""

import msgspec
import pytest

from vramscope.analyzers.planning.theory import FP32_SHARDED, ParallelLayout, TrainingSetup, estimate_stages
from vramscope.analyzers.planning.theory.activations import list_layer_activations
from vramscope.analyzers.planning.theory.presets import PRESETS
from vramscope.analyzers.planning.theory.weights import count_elements, list_layer_weights

LLAMA = PRESETS["llama2-7b"]
LAYOUT = ParallelLayout(data=8)
SETUP = TrainingSetup(seq_length=4096, micro_batch_size=1, numbers=FP32_SHARDED, zero_stage=3)
LAYER = count_elements(list_layer_weights(LLAMA, LAYOUT, 0))


def test_a_layer_that_is_reduced_has_its_gradients_twice_and_no_activations() -> None:
    """202 million parameters: 2 bytes each as autograd left them, 4 in the input of the reduce-scatter."""
    (stage,) = estimate_stages(LLAMA, LAYOUT, SETUP)
    backward, reduction = stage.moments[1], stage.moments[2]
    sizes = {part.name: part.size_bytes for part in reduction.parts}
    assert reduction.name == "reduction"
    assert LAYER == 202_383_360
    assert sizes["whole gradients of a layer"] == 6 * LAYER
    layer = sum(list_layer_activations(LLAMA, LAYOUT, SETUP, 0).values())
    before = {part.name: part.size_bytes for part in backward.parts}
    assert before["whole gradient of the head"] == 4 * 32000 * 4096
    added = 6 * LAYER - before["whole gradient of the head"] - before["gradients of activations"]
    assert reduction.total_bytes == backward.total_bytes + added - layer


@pytest.mark.parametrize("stage", [0, 1])
def test_whole_gradients_that_stay_are_never_reduced_by_layers(stage: int) -> None:
    (memory,) = estimate_stages(LLAMA, LAYOUT, msgspec.structs.replace(SETUP, zero_stage=stage))
    assert [moment.name for moment in memory.moments] == ["between steps", "backward", "loss"]


def test_gathered_weights_stay_between_steps_only_where_the_software_keeps_them() -> None:
    (freed,) = estimate_stages(LLAMA, LAYOUT, SETUP)
    (kept,) = estimate_stages(LLAMA, LAYOUT, msgspec.structs.replace(SETUP, keeps_gathered_weights=True))
    assert kept.allocated_bytes == freed.allocated_bytes + 2 * 2 * LAYER
    assert kept.peak_bytes == freed.peak_bytes


def test_operations_that_are_kept_are_those_of_torchtitan() -> None:
    """Input h, query h, value h, attention's output h and sums, first product f, last product h; 2 bytes."""
    setup = msgspec.structs.replace(SETUP, recompute="operations")
    kept = sum(list_layer_activations(LLAMA, LAYOUT, setup, 0).values())
    assert kept == 4096 * (2 * (5 * 4096 + 11008) + 4 * 32)


def test_every_second_layer_is_recomputed() -> None:
    totals = []
    for changes in ({}, {"recompute": "full", "recompute_every": 2}, {"recompute": "full"}):
        (memory,) = estimate_stages(LLAMA, LAYOUT, msgspec.structs.replace(SETUP, **changes))
        parts = memory.moments[1].parts
        totals.append(sum(part.size_bytes for part in parts if part.group == "activations"))
        again = sum(part.size_bytes for part in parts if part.name == "recomputed layers")
        totals[-1] -= again
        assert bool(again) == bool(changes)
    none, half, full = totals
    assert none - half == half - full > 0
