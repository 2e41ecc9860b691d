"""What the layers of a run hold, each kind of layer worked out once: a search tries thousands of runs."""

from collections.abc import Sequence
from typing import NamedTuple

from .activations import list_layer_activations
from .layout import ParallelLayout
from .shape import ModelShape
from .states import StateBytes, count_states
from .training import TrainingSetup
from .transient import count_backward
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
        self.shape, self.layout, self.setup = shape, layout, setup
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
