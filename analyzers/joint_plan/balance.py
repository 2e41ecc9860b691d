"""Layers of each stage, so that the slowest is as fast as can be while none holds more than it has room
for."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from ..partition.exact import split_over
from ..partition.stage import make_room, make_stage
from ..time_model import LayerPrices

TICKS_PER_S = 1e12
"""Unequal layers are split by whole picoseconds, so that ties are ties."""


def balance_layers(prices: Sequence[LayerPrices], rooms: Sequence[int] | None) -> tuple[int, ...]:
    """Return the layers of each stage, of at least one each: the least maximum of stage times.

    Where all layers are alike, each goes to the stage that is cheapest with it; that is exact, as what a
    stage pays only grows, and makes the sum of squares least as well. Else by the exact split of unlike
    layers.

    Args:
        prices: Of layers on each stage.
        rooms: Most layers of each stage, enough together; None for no limit.
    """
    layers = len(prices[0].layer_s)
    most = tuple(rooms) if rooms is not None else (layers,) * len(prices)
    if all(min(each.layer_s) == max(each.layer_s) for each in prices):
        return _deal_out(prices, most)
    return _split(prices, most)


def _deal_out(prices: Sequence[LayerPrices], most: Sequence[int]) -> tuple[int, ...]:
    last = len(prices) - 1
    ends = [0.0] * len(prices)
    ends[0] += prices[0].embedding_s
    ends[last] += prices[last].head_s
    counts = [1] * len(prices)
    # Of stages that pay alike the later one takes the layer: it has fewer micro-batches in flight.
    heap = [
        (end + 2 * each.layer_s[0], -stage)
        for stage, (end, each) in enumerate(zip(ends, prices, strict=True))
    ]
    heapify(heap)
    for _ in range(len(prices[0].layer_s) - len(prices)):
        while counts[-heap[0][1]] >= most[-heap[0][1]]:
            heappop(heap)
        stage = -heappop(heap)[1]
        counts[stage] += 1
        heappush(heap, (ends[stage] + (counts[stage] + 1) * prices[stage].layer_s[0], -stage))
    return tuple(counts)


def _split(prices: Sequence[LayerPrices], most: Sequence[int]) -> tuple[int, ...]:
    stages, last = [], len(prices) - 1
    for number, each in enumerate(prices):
        costs = [round(seconds * TICKS_PER_S) for seconds in each.layer_s]
        costs[0] += round(each.embedding_s * TICKS_PER_S) * (number == 0)
        costs[-1] += round(each.head_s * TICKS_PER_S) * (number == last)
        stages.append(make_stage(costs, make_room([1] * len(costs), most[number])))
    return split_over(stages).counts
