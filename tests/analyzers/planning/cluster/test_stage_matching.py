"""Stages matched to devices that differ: as good as the best of all orders, or how far from it at most."""

from itertools import permutations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vramscope.analyzers.planning.partition.exact import split_over
from vramscope.analyzers.planning.partition.stages import ends_at, reach_forward
from vramscope.analyzers.planning.stage_matching import StageDevice, Workload, match_stages
from vramscope.engine.errors import UsageError

LAYER = st.tuples(st.integers(0, 30), st.integers(0, 20), st.integers(0, 6))
DEVICE = st.builds(StageDevice, st.sampled_from([1, 2, 3, 5]), st.sampled_from([20, 40, 90, 400]))


NEXT_TO_A_BOUND = [(3, 2, 0), (4, 1, 0), (12, 6, 0), (9, 4, 0), (1, 7, 0)]
"""The optimum is the next cost above one that no order reaches."""


@settings(max_examples=150, deadline=None)
@example(NEXT_TO_A_BOUND, [StageDevice(2, 14), StageDevice(1, 14), StageDevice(5, 99)], 1)
@given(st.lists(LAYER, min_size=2, max_size=9), st.lists(DEVICE, min_size=1, max_size=5), st.integers(1, 4))
def test_no_order_is_better(
    layers: list[tuple[int, int, int]], devices: list[StageDevice], micro_batches: int
) -> None:
    devices = devices[: len(layers)]
    costs, memory, live = (list(column) for column in zip(*layers, strict=True))
    best = find_best_of_all(costs, memory, live, micro_batches, devices)
    if best is None:
        with pytest.raises(UsageError, match="bytes on every device any order works"):
            match_stages(costs, memory, devices, activations=live, micro_batches=micro_batches)
        return
    found = match_stages(costs, memory, devices, activations=live, micro_batches=micro_batches)
    assert (found.split.maximum, found.optimality, found.gap) == (best, "exact", 0.0)
    assert sorted(found.order) == list(range(len(devices)))
    count = len(devices)
    for stage, (at, first, end) in enumerate(
        zip(found.order, found.split.bounds, found.split.bounds[1:], strict=False)
    ):
        in_flight = min(count - stage, micro_batches)
        held = sum(memory[first:end]) + in_flight * sum(live[first:end])
        assert held <= devices[at].capacity_bytes


def find_best_of_all(
    costs: list[int], memory: list[int], live: list[int], micro_batches: int, devices: list[StageDevice]
) -> int | None:
    """Return the least maximum over every order of the devices; None where none keeps to the capacities."""
    workload = Workload(costs, memory, live, micro_batches, devices)
    best = None
    for order in set(permutations([workload.kinds.index(device) for device in devices])):
        stages = workload.order_stages(order)
        everything = max(stage.before[-1] for stage in stages)
        if ends_at(reach_forward(stages, everything)[-1], len(costs)):
            maximum = split_over(stages).maximum
            best = maximum if best is None else min(best, maximum)
    return best


def test_six_devices_that_all_differ_are_matched_exactly() -> None:
    costs = [7, 3, 9, 4, 12, 5, 8, 6, 11, 2]
    memory = [5] * 10
    devices = [StageDevice(speed, 17 - speed) for speed in range(1, 7)]
    found = match_stages(costs, memory, devices)
    assert found.split.maximum == find_best_of_all(costs, memory, [0] * 10, 1, devices)
    assert found.optimality == "exact"


def test_the_given_order_is_kept_where_no_other_is_better() -> None:
    devices = [StageDevice(2, 1000), StageDevice(1, 1000), StageDevice(2, 1000)]
    assert match_stages([4, 4, 4, 4, 4], [1] * 5, devices).order == (0, 1, 2)


def test_the_slow_device_gets_the_cheap_end() -> None:
    found = match_stages([9, 9, 9, 9, 1], [1] * 5, [StageDevice(1, 100), StageDevice(9, 100)])
    assert (found.order, found.split.counts, found.split.costs) == ((1, 0), (4, 1), (36, 9))


def test_many_devices_that_all_differ_come_with_an_honest_gap() -> None:
    devices = [StageDevice(100 + 7 * number, 10_000) for number in range(14)]
    costs = [50 + number * number % 37 for number in range(60)]
    found = match_stages(costs, [1] * 60, devices)
    assert sorted(found.order) == list(range(14))
    assert found.optimality == "heuristic"
    assert 0 < found.gap < 0.05
    fastest_first = match_in_order(costs, devices)
    assert found.split.maximum <= fastest_first


def match_in_order(costs: list[int], devices: list[StageDevice]) -> int:
    workload = Workload(costs, [1] * len(costs), None, 1, devices)
    ordered = sorted(range(len(workload.kinds)), key=lambda kind: -workload.kinds[kind].speed)
    return split_over(workload.order_stages(ordered)).maximum


def test_what_cannot_be_matched_says_what_would_do() -> None:
    with pytest.raises(UsageError, match="with 30 bytes on every device any order works"):
        match_stages([1] * 6, [10] * 6, [StageDevice(1, 20), StageDevice(2, 29)])
    with pytest.raises(UsageError, match="3 stages for 2 layers"):
        match_stages([1, 1], [1, 1], [StageDevice(1, 9)] * 3)
    with pytest.raises(UsageError, match="speed of 0"):
        match_stages([1], [1], [StageDevice(0, 9)])
