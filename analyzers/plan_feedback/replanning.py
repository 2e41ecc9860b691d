"""The exact split of a model under a factor for each stage.

A layer that moves to another stage is expected to cost what the plan says of it there, times the factor of
the stage that it moves to.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from ...engine.errors import UsageError
from ..model_graph import ModelGraph
from ..partition.costs import list_activations, list_states
from ..partition.exact import split_over
from ..partition.stage import make_stage
from ..partition.stages_of_graph import InFlight
from .model import FeedbackSplit


def list_costs(graph: ModelGraph, training: InFlight, stages: int) -> list[list[int]]:
    """Return what each layer holds in each stage, under 1F1B: states, and activations in flight there.

    Raises:
        UsageError: The activations of a layer are not known.
    """
    activations = list_activations(graph.layers)
    if activations is None:
        raise UsageError(
            f"{graph.name}: the activations of its layers are not known, which a comparison needs; "
            "make the graph from a name or a configuration"
        )
    states = list_states(graph.layers, training)
    return [
        [
            kept + min(stages - stage, training.micro_batches) * live
            for kept, live in zip(states, activations, strict=True)
        ]
        for stage in range(stages)
    ]


def replan(
    graph: ModelGraph, bounds: Sequence[int], costs: list[list[int]], factors: Sequence[Fraction]
) -> tuple[FeedbackSplit, FeedbackSplit]:
    """Return the present split and the exact optimum; the present one twice where it is that.

    Args:
        graph: The model.
        bounds: First layer of each stage at present, and the number of layers.
        costs: Planned bytes of each layer in each stage.
        factors: Of each stage, expected over planned bytes.
    """
    expected = [[round(cost * factor) for cost in row] for row, factor in zip(costs, factors, strict=True)]
    present = _describe_split(graph, bounds, expected)
    best = split_over([make_stage(row) for row in expected])
    if best.maximum >= present.most_bytes:
        return present, present
    return present, _describe_split(graph, best.bounds, expected)


def _describe_split(graph: ModelGraph, bounds: Sequence[int], expected: list[list[int]]) -> FeedbackSplit:
    runs = [range(start, end) for start, end in pairwise(bounds)]
    is_block = [layer.layer_type == "transformer_block" for layer in graph.layers]
    return FeedbackSplit(
        blocks=tuple(sum(is_block[layer] for layer in run) for run in runs),
        layers=tuple(len(run) for run in runs),
        expected_bytes=tuple(sum(expected[stage][layer] for layer in run) for stage, run in enumerate(runs)),
    )
