"""The exact split is the one that trying every split finds, ties included."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyzers.planning.partition.reference import search_every_split, split_by_programme
from vramscope.analyzers.planning.partition import Split, split_exactly, split_in_flight, split_over_devices
from vramscope.engine.errors import UsageError

COSTS = st.one_of(
    st.integers(0, 3), st.integers(0, 40), st.integers(0, 2**45), st.sampled_from([0, 117, 117, 307])
)


@st.composite
def rows_of_layers(draw: st.DrawFn, most: int) -> tuple[list[int], int]:
    """Costs of layers, all of one kind, mixed or in runs as models have them, and a number of stages."""
    count = draw(st.integers(1, most))
    if draw(st.booleans()):
        runs = draw(st.lists(st.tuples(COSTS, st.integers(1, most)), min_size=1, max_size=5))
        costs = [cost for cost, times in runs for _ in range(times)][:most]
        return costs, draw(st.integers(1, min(len(costs), 12)))
    kind = draw(st.sampled_from([COSTS, st.just(5), st.integers(0, 3), st.integers(1, 2**40)]))
    return draw(st.lists(kind, min_size=count, max_size=count)), draw(st.integers(1, min(count, 9)))


@given(rows_of_layers(14))
@settings(max_examples=250, deadline=None)
def test_no_split_is_better(row: tuple[list[int], int]) -> None:
    costs, stages = row
    split = split_exactly(costs, stages)
    assert split.bounds == search_every_split(len(costs), stages, lambda _, start, end: sum(costs[start:end]))
    assert split.costs == tuple(sum(costs[start:end]) for start, end in pairwise(split.bounds))


@given(rows_of_layers(200))
@settings(max_examples=25, deadline=None)
def test_a_plain_dynamic_programme_finds_the_same(row: tuple[list[int], int]) -> None:
    costs, stages = row
    assert split_exactly(costs, stages).bounds == split_by_programme(costs, stages)


@given(rows_of_layers(10), st.data())
@settings(max_examples=200, deadline=None)
def test_no_split_holds_less_under_1f1b(row: tuple[list[int], int], data: st.DataObject) -> None:
    kept, stages = row
    live = data.draw(st.lists(COSTS, min_size=len(kept), max_size=len(kept)))
    micro_batches = data.draw(st.integers(1, 12))

    def hold(stage: int, start: int, end: int) -> int:
        in_flight = min(stages - stage, micro_batches)
        return sum(kept[start:end]) + in_flight * sum(live[start:end])

    split = split_in_flight(kept, live, stages, micro_batches)
    assert split.bounds == search_every_split(len(kept), stages, hold)
    assert split.costs == tuple(hold(stage, *ends) for stage, ends in enumerate(pairwise(split.bounds)))


@given(rows_of_layers(10), st.data())
@settings(max_examples=200, deadline=None)
def test_no_split_over_unlike_devices_is_quicker_within_their_capacities(
    row: tuple[list[int], int], data: st.DataObject
) -> None:
    costs, devices = row
    memory = data.draw(st.lists(st.integers(0, 20), min_size=len(costs), max_size=len(costs)))
    speeds = data.draw(st.lists(st.integers(1, 4), min_size=devices, max_size=devices))
    capacities = data.draw(st.lists(st.integers(0, 60), min_size=devices, max_size=devices))
    expected = search_every_split(
        len(costs),
        devices,
        lambda device, start, end: sum(costs[start:end]) * (12 // speeds[device]),
        lambda device, start, end: sum(memory[start:end]) <= capacities[device],
    )
    if expected is None:
        with pytest.raises(UsageError, match="on every device one does"):
            split_over_devices(costs, speeds=speeds, memory=memory, capacities=capacities)
    else:
        split = split_over_devices(costs, speeds=speeds, memory=memory, capacities=capacities)
        assert split.bounds == expected


def test_what_would_do_is_said_and_does() -> None:
    memory = [30, 10, 10, 50]
    with pytest.raises(UsageError, match=r"with 50 bytes on every device one does"):
        split_over_devices([1, 1, 1, 1], memory=memory, capacities=[49, 49])
    split = split_over_devices([1, 1, 1, 1], memory=memory, capacities=[50, 50])
    assert split == Split(bounds=(0, 3, 4), costs=(3, 1))


def test_a_layer_too_large_for_one_device_goes_to_the_next() -> None:
    split = split_over_devices([1, 1, 1], memory=[2, 9, 2], capacities=[5, 10, 5])
    assert split.bounds == (0, 1, 2, 3)


def test_an_end_too_far_for_memory_gives_way_to_the_next() -> None:
    costs, memory, capacities = [24, 11, 7, 1, 12, 5], [19, 17, 6, 10, 19, 9], [84, 38, 75, 14, 58]
    split = split_over_devices(costs, memory=memory, capacities=capacities)
    assert split.bounds == (0, 1, 2, 3, 4, 6)


@pytest.mark.parametrize(
    ("costs", "stages", "words"),
    [
        ([1, 2, 3], 4, "4 stages for 3 layers: each stage needs a layer, so ask for at most 3"),
        ([1, 2, 3], 0, "0 stages: a pipeline has at least 1"),
        ([1, -2, 3], 2, "a layer costs -2: expected 0 or more"),
    ],
)
def test_what_cannot_be_split_is_refused(costs: list[int], stages: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        split_exactly(costs, stages)


@pytest.mark.parametrize(
    "costs",
    [
        [0, 0, 0, 0, 0, 0, 1, 3, 3, 3],
        [4] * 11,
        [2, 2, 2, 2, 3],
        [*[3] * 5, *[5] * 7, *[7] * 8, *[5] * 5],  # even shares of the sevens would exceed the least maximum
    ],
)
def test_layers_that_are_alike_or_nearly_are_split_as_others(costs: list[int]) -> None:
    for stages in range(1, len(costs) + 1):
        assert split_exactly(costs, stages).bounds == split_by_programme(costs, stages)


def test_layers_of_no_size_leave_no_stage_empty() -> None:
    assert split_exactly([0, 0, 0, 0], 3).counts == (1, 1, 2)
    assert split_exactly([0, 0, 7, 0], 4).counts == (1, 1, 1, 1)
