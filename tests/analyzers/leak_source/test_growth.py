"""What grew from map to map is named by the line that allocated it, or by its size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.leak_source import LeakSource, find_sizes, find_sources, measure_holdings
from vramscope.engine.model import LiveStack, SegmentMap

from .cases import EVALUATE, KEPT_SIZE, MIB, STEP, TORCH, map_of, stack_of


def name(*maps: SegmentMap) -> tuple[LeakSource, ...]:
    return find_sources([measure_holdings(each) for each in maps])


def watch(*counts: int, beside: int = 0, is_at_step_end: bool = True) -> list[SegmentMap]:
    """Return maps with so many blocks of one line, and more of which no line is known with each map."""
    return [
        map_of(
            float(number),
            count + beside * number,
            stack_of(EVALUATE, count),
            is_at_step_end=is_at_step_end,
        )
        for number, count in enumerate(counts)
    ]


def test_the_line_outside_of_torch_that_kept_most_comes_first() -> None:
    maps = [
        map_of(float(number), 14 * number, stack_of(EVALUATE, 10 * number), stack_of(STEP, 4 * number))
        for number in range(3)
    ]
    first, second = name(*maps)
    assert (first.words, first.blocks, first.size_bytes) == ("evaluate() at train.py:212", 20, 20 * KEPT_SIZE)
    assert second.words == "step() at model.py:40"
    assert first.share + second.share == 1.0


def test_what_was_there_before_is_no_leak() -> None:
    maps = [map_of(float(n), 53 + 3 * n, stack_of(STEP, 50), stack_of(EVALUATE, 3 + 3 * n)) for n in range(3)]
    (source,) = name(*maps)
    assert (source.words, source.blocks) == ("evaluate() at train.py:212", 6)


@pytest.mark.parametrize(
    ("counts", "is_named"),
    [
        ((0, 5, 10), True),
        ((0, 1, 4), True),
        ((0, 0, 3, 6), True),
        ((0, 8), False),  # two maps do not tell what grows from what was filled once
        ((0, 20, 20), False),
        ((0, 0, 20), False),
        ((0, 1, 20), False),
        ((5, 9, 5), False),
        ((0, 100, 40, 90), False),  # emptied now and then
        ((0, 20, 20, 20, 20), False),
    ],
)
def test_a_line_is_named_where_it_grows_again_and_again(counts: tuple[int, ...], is_named: bool) -> None:
    assert bool(name(*watch(*counts))) is is_named


def test_a_line_that_is_a_minor_part_of_what_grows_is_not_blamed_for_it() -> None:
    assert [source.share for source in name(*watch(0, 5, 10, beside=4))] == [10 / 18]
    assert name(*watch(0, 5, 10, beside=6)) == ()


def test_within_steps_a_rise_by_chance_names_nothing() -> None:
    assert name(*watch(0, 5, 10, is_at_step_end=False)) == ()
    assert name(*watch(0, 5, 9, 9, 14, is_at_step_end=False)) == ()
    assert name(*watch(0, 5, 9, 12, 17, is_at_step_end=False)) != ()


def test_without_stacks_the_size_of_the_blocks_is_named() -> None:
    maps = [measure_holdings(map_of(float(n), 10 + 5 * n, activations=6)) for n in range(4)]
    assert find_sources(maps) == ()
    (source,) = find_sizes(maps)
    assert source.frame is None
    assert (source.words, source.blocks) == ("blocks of 2,097,152 bytes", 15)


def test_a_place_that_keeps_little_of_it_is_not_named() -> None:
    maps = [map_of(float(n), 50 * n, stack_of(EVALUATE, 45 * n), stack_of(STEP, 5 * n)) for n in range(3)]
    assert [source.words for source in name(*maps)] == ["evaluate() at train.py:212"]


@given(st.lists(st.tuples(*[st.integers(0, 50)] * 3), min_size=3, max_size=6), st.booleans())
def test_sources_never_tell_of_more_than_has_grown(
    counts: list[tuple[int, int, int]], is_at_step_end: bool
) -> None:
    maps = [
        map_of(
            float(number),
            sum(held),
            stack_of(EVALUATE, held[0]),
            stack_of(STEP, held[1]),
            is_at_step_end=is_at_step_end,
        )
        for number, held in enumerate(counts)
    ]
    sources = name(*maps)
    gained = [max(0, after - before) for before, after in zip(counts[0], counts[-1], strict=True)]
    assert sum(source.size_bytes for source in sources) <= sum(gained) * KEPT_SIZE
    assert sum(source.share for source in sources) <= 1.0 + 1e-9


def test_code_at_the_top_of_a_file_is_called_by_its_line_alone() -> None:
    maps = [map_of(float(n), n, stack_of(("/x/run.py", 3, "<module>"), n)) for n in range(3)]
    (source,) = name(*maps)
    assert source.words == "run.py:3"


def test_of_a_model_that_is_called_the_caller_is_named_and_the_line_in_it_that_allocated_most() -> None:
    attend, project = ("/home/u/model.py", 12, "forward"), ("/home/u/model.py", 14, "forward")
    library = ("/env/lib/python3.11/site-packages/trainer/loop.py", 5, "run")

    def evaluated(frame: tuple[str, int, str], count: int) -> LiveStack:
        return LiveStack(KEPT_SIZE * count, count, (TORCH, frame, TORCH, EVALUATE, library))

    maps = [
        map_of(
            float(n), 10 * n, *([evaluated(attend, 3 * n), evaluated(project, 5 * n)]), stack_of(STEP, 2 * n)
        )
        for n in range(3)
    ]
    (source, other) = name(*maps)
    assert (source.words, source.blocks) == ("evaluate() at train.py:212", 16)
    assert source.allocated_at is not None
    assert source.allocated_at.line == 14
    assert other.words == "step() at model.py:40"


def test_where_only_a_forward_is_known_it_is_named() -> None:
    forward = ("/home/u/model.py", 12, "forward")
    maps = [map_of(float(n), n, LiveStack(n * MIB, n, (TORCH, forward))) for n in range(1, 4)]
    (source,) = name(*maps)
    assert source.words == "forward() at model.py:12"
