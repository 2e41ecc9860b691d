"""What no matching can be cheaper than."""

from collections.abc import Sequence

from .devices import Workload

PRECISION = 4096
"""The bound ends within this share of a matching that was found: the search goes on from there."""


def find_least_bound(workload: Workload, found: int) -> int:
    """Return a cost that the dearest stage of every matching reaches.

    It is the least limit under which all devices together could cover the layers' cost, each with the run of
    layers that it works off most of, some device each layer, and each device a layer: runs may overlap.

    Args:
        workload: The layers and kinds.
        found: Cost of the dearest stage of some matching.
    """
    together = sum(count * share for count, share in zip(workload.counts, workload.shares, strict=True))
    low, high = min(-(-count_total(workload) // together), found), found
    if low < high and not _could_cover(workload, high - 1):
        return high
    while high - low > found // PRECISION:
        middle = (low + high) // 2
        if _could_cover(workload, middle):
            high = middle
        else:
            low = middle + 1
    return low


def count_most(workload: Workload, most: int) -> tuple[int, ...]:
    """Return the most cost that each kind works off in one run of layers, in a unit that all kinds share.

    Args:
        workload: The layers and kinds.
        most: Limit on the cost of a stage.
    """
    return tuple(_find_largest(workload, kind, most) * share for kind, share in enumerate(workload.shares))


def count_total(workload: Workload) -> int:
    """Return the cost of all layers in that unit."""
    return workload.stage(0, 0).before[-1] * workload.shares[0]


def _find_largest(workload: Workload, kind: int, most: int) -> int:
    """Return the cost of the dearest run that a stage can hold, in the last place, where most fits."""
    stage = workload.stage(kind, workload.stages - 1)
    before, largest = stage.before, 0
    for start in range(workload.layers):
        largest = max(largest, before[stage.reach(start, most)] - before[start])
    return largest


def _could_cover(workload: Workload, most: int) -> bool:
    each = count_most(workload, most)
    if sum(count * cost for count, cost in zip(workload.counts, each, strict=True)) < count_total(workload):
        return False
    last = [workload.stage(kind, workload.stages - 1) for kind in range(len(workload.kinds))]
    held = (any(stage.reach(layer, most) > layer for stage in last) for layer in range(workload.layers))
    return all(held) and _can_all_work(workload, most)


def _can_all_work(workload: Workload, most: int) -> bool:
    """Tell whether each kind can hold some layer: no device stays idle."""
    stages = [workload.stage(kind, workload.stages - 1) for kind in range(len(workload.kinds))]
    layers: Sequence[int] = range(workload.layers)
    return all(any(stage.reach(layer, most) > layer for layer in layers) for stage in stages)
