"""Balance of memory over nodes: how even it is, and which node has most."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

# A node whose devices are fuller than all devices by this factor, on average, is a bottleneck.
BOTTLENECK_FACTOR = 1.2
# A balance below this is called uneven.
UNEVEN_BELOW = 0.8
Scope = Literal["single_gpu", "node_level", "cluster_level"]


def measure_balance(ratios: Sequence[float]) -> float | None:
    """Return how evenly devices are used: 1 less the coefficient of variation of their ratios, at least 0.

    The measure of Tiny-Torch's distributed monitor (`tools/memory`), with the population's deviation. None
    without devices.
    """
    if not ratios:
        return None
    mean = math.fsum(ratios) / len(ratios)
    if mean <= 0:
        return 1.0
    deviation = math.sqrt(math.fsum((it - mean) ** 2 for it in ratios) / len(ratios))
    return max(0.0, 1.0 - deviation / mean)


def find_bottlenecks(by_node: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    """Return the nodes whose devices are on average `BOTTLENECK_FACTOR` times as full as all devices."""
    every = [ratio for ratios in by_node.values() for ratio in ratios]
    if not every:
        return ()
    limit = BOTTLENECK_FACTOR * math.fsum(every) / len(every)
    return tuple(
        node for node, ratios in by_node.items() if ratios and math.fsum(ratios) / len(ratios) > limit
    )


def judge_scope(devices: Sequence[tuple[str, int | None]]) -> Scope:
    """Return how far a threat reaches; `devices` are node and index of each threatened device."""
    if len({node for node, _ in devices}) > 1:
        return "cluster_level"
    return "node_level" if len(set(devices)) > 1 else "single_gpu"
