"""Two rules that are not exact: an even count of transformer blocks, and the balance of the original.

Both cut among transformer blocks alone. What stands before the first block goes to the first stage and what
stands after the last to the last, whatever it weighs: that is what the exact split does better.
"""

from bisect import bisect_left
from collections.abc import Sequence

from ...engine.errors import UsageError
from ..model_graph import LayerNode
from .least_maximum import find_least_maximum
from .stage import add_up


def split_uniformly(layers: Sequence[LayerNode], stages: int) -> tuple[int, ...]:
    """Return bounds with as many blocks in each stage, one more in the first ones where they do not divide.

    Raises:
        UsageError: There are fewer blocks than stages.
    """
    blocks = find_blocks(layers, stages)
    share, rest = divmod(len(blocks), stages)
    return _place([number * share + min(number, rest) for number in range(stages + 1)], blocks, len(layers))


def split_as_original(layers: Sequence[LayerNode], costs: Sequence[int], stages: int) -> tuple[int, ...]:
    """Return bounds by the rule of llm_parallel_strategy's `balanced_*` strategies.

    The least maximum over sums of blocks; of several splits the one whose last stage is longest, then the one
    before it, as its backtracking takes the smallest index that attains the optimum.

    Raises:
        UsageError: There are fewer blocks than stages.
    """
    blocks = find_blocks(layers, stages)
    of_blocks = [costs[place] for place in blocks]
    before = add_up(of_blocks)
    most_of_one = 0
    dearest = []
    for cost in of_blocks:
        most_of_one = max(most_of_one, cost)
        dearest.append(most_of_one)
    end, bounds = len(blocks), [len(blocks)]
    for left in range(stages, 1, -1):
        most = find_least_maximum(before[: end + 1], dearest[end - 1], left)
        end = max(bisect_left(before, before[end] - most, 0, end), left - 1)
        bounds.append(end)
    return _place([0, *bounds[::-1]], blocks, len(layers))


def find_blocks(layers: Sequence[LayerNode], stages: int) -> list[int]:
    """Return the places of the transformer blocks.

    Raises:
        UsageError: There are fewer than stages, or no stage is asked for.
    """
    blocks = [place for place, layer in enumerate(layers) if layer.layer_type == "transformer_block"]
    if stages < 1:
        raise UsageError(f"{stages} stages: a pipeline has at least 1")
    if stages > len(blocks):
        raise UsageError(
            f"Number of stages ({stages}) cannot exceed transformer layers ({len(blocks)}) "
            "with this strategy; the exact one counts every layer"
        )
    return blocks


def _place(block_bounds: Sequence[int], blocks: Sequence[int], layers: int) -> tuple[int, ...]:
    """Return where stages begin among all layers, from where they begin among blocks."""
    return (0, *(blocks[bound] for bound in block_bounds[1:-1]), layers)
