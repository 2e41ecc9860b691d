"""What the layers of a run hold, each kind of layer worked out once: a search tries thousands of runs."""

from collections.abc import Sequence
from typing import NamedTuple

from .activations import count_tokens, list_layer_activations, list_recomputed_activations
from .expert_activations import count_expert_rows
from .layout import ParallelLayout
from .shape import ModelShape
from .states import StateBytes, count_states
from .training import TrainingSetup
from .weights import WeightTensor, count_elements, list_layer_weights


class LayerFigures(NamedTuple):
    """One layer on one rank, and one micro-batch in it."""

    weights: list[WeightTensor]
    parameters: int
    states: StateBytes
    saved: dict[str, int]
    """Bytes that it saves for backward, by operation; as if it were not fully recomputed."""
    saved_bytes: int
    backward_bytes: int
    """What its backward pass adds for a moment."""


class RunFigures:
    """A run, and what each kind of its layers holds.

    Layers differ in one thing alone: whether their MLP is a mixture of experts. The first layer of a kind
    stands for all of it.
    """

    def __init__(self, shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> None:
        self.shape = shape
        self.layout = layout
        self.setup = setup
        self._firsts: dict[bool, int] = {}
        self._figures: dict[int, LayerFigures] = {}

    def find_first(self, layer: int) -> int:
        """Return the first layer of the kind of a layer; layers count from 0."""
        kind = self.shape.is_expert_layer(layer)
        if kind not in self._firsts:
            layers = range(self.shape.layers)
            self._firsts[kind] = next(other for other in layers if self.shape.is_expert_layer(other) == kind)
        return self._firsts[kind]

    def find_figures(self, layer: int) -> LayerFigures:
        """Return what a layer holds."""
        first = self.find_first(layer)
        if first not in self._figures:
            self._figures[first] = self._work_out(first)
        return self._figures[first]

    def count_kinds(self, layers: Sequence[int]) -> dict[int, int]:
        """Return the first layer of each kind of some layers, and how many are of it, as they appear."""
        if self.shape.experts is None:
            return {0: len(layers)} if layers else {}
        counts: dict[int, int] = {}
        for layer in layers:
            first = self.find_first(layer)
            counts[first] = counts.get(first, 0) + 1
        return counts

    def _work_out(self, layer: int) -> LayerFigures:
        run = (self.shape, self.layout, self.setup)
        weights = list_layer_weights(self.shape, self.layout, layer)
        saved = list_layer_activations(*run, layer)
        return LayerFigures(
            weights=weights,
            parameters=count_elements(weights),
            states=count_states(weights, self.layout, self.setup),
            saved=saved,
            saved_bytes=sum(saved.values()),
            backward_bytes=count_backward(*run, layer, saved, weights),
        )


_MLP_NAMES = ("MLP", "activation function", "expert", "router", "shared expert", "operations")


def count_backward(
    shape: ModelShape,
    layout: ParallelLayout,
    setup: TrainingSetup,
    layer: int,
    saved: dict[str, int],
    weights: list[WeightTensor],
) -> int:
    """Return the most bytes that backward of one layer adds, when everything before it is still saved.

    First the MLP: gradient of its output, T h, gathered where norms are split; gradient of the second
    projection's input, and of the first one's output once that input is freed; one weight gradient unless it
    is added in place. Experts have the gradient of their rows, R h, besides. Then unfused attention: two
    gradients of the scores, with the MLP's share freed. What is recomputed selectively is back when its part
    runs.

    Args:
        shape: The model.
        layout: Degrees of parallelism.
        setup: The run.
        layer: Which layer, from 0.
        saved: What it saves, by operation.
        weights: Its parameters on one rank.
    """
    tokens = count_tokens(layout, setup)
    size = setup.numbers.compute_bytes
    gathered = tokens * shape.hidden * size if layout.is_sequence_parallel and layout.tensor > 1 else 0
    output = tokens // layout.norm_shards * shape.hidden * size + gathered
    inner = _count_inner(shape, layout, setup, layer) * size
    wide = 2 if shape.is_gated else 1
    again = list_recomputed_activations(shape, layout, setup, layer)
    mlp = output + max(inner + _count_weight_gradient(setup, weights), inner * wide)
    mlp += _count_expert_rows(shape, layout, setup, layer) * size + _sum_mlp(again)
    scores = 0
    if setup.attention == "unfused":
        scores = 2 * tokens * setup.seq_length * shape.heads // layout.tensor * size
    return max(mlp, output + scores + sum(again.values()) - _sum_mlp(again) - _sum_mlp(saved))


def _sum_mlp(saved: dict[str, int]) -> int:
    return sum(size for name, size in saved.items() if name.startswith(_MLP_NAMES))


def _count_inner(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int) -> int:
    """Return the elements between the two projections of an MLP, or of a rank's experts."""
    tokens = count_tokens(layout, setup)
    if not shape.is_expert_layer(layer) or shape.experts is None:
        return tokens * shape.ffn // layout.tensor
    rows = count_expert_rows(shape.experts, layout, setup, tokens)
    return rows * shape.experts.ffn // layout.expert_shards


def _count_expert_rows(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int) -> int:
    """Return the elements of the rows that left a rank's experts, 0 for a dense layer."""
    if not shape.is_expert_layer(layer) or shape.experts is None:
        return 0
    return count_expert_rows(shape.experts, layout, setup, count_tokens(layout, setup)) * shape.hidden


def _count_weight_gradient(setup: TrainingSetup, weights: list[WeightTensor]) -> int:
    if setup.fuses_gradients:
        return 0
    return max(tensor.elements for tensor in weights) * setup.numbers.compute_bytes
