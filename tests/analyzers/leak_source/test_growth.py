"""What grew between two maps is named by the line that allocated it, or by its size."""

from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.leak_source import find_sources
from vramscope.engine.model import LiveStack

from .cases import EVALUATE, KEPT_SIZE, MIB, STEP, TORCH, map_of, stack_of


def test_the_line_outside_of_torch_that_kept_most_comes_first() -> None:
    later = map_of(2.0, 30, stack_of(EVALUATE, 20), stack_of(STEP, 8))
    first, second = find_sources(map_of(1.0, 10), later)
    assert (first.words, first.blocks, first.size_bytes) == ("evaluate() at train.py:212", 20, 20 * KEPT_SIZE)
    assert second.words == "step() at model.py:40"
    assert first.share + second.share == 1.0


def test_what_was_there_before_is_no_leak() -> None:
    earlier = map_of(1.0, 10, stack_of(STEP, 50), stack_of(EVALUATE, 3))
    later = map_of(2.0, 20, stack_of(STEP, 50), stack_of(EVALUATE, 9))
    (source,) = find_sources(earlier, later)
    assert (source.words, source.blocks) == ("evaluate() at train.py:212", 6)


def test_without_stacks_the_size_of_the_blocks_is_named() -> None:
    (source,) = find_sources(map_of(1.0, 10, activations=6), map_of(2.0, 25, activations=6))
    assert source.frame is None
    assert (source.words, source.blocks) == ("blocks of 2,097,152 bytes", 15)


def test_a_place_that_keeps_little_of_it_is_not_named() -> None:
    later = map_of(2.0, 30, stack_of(EVALUATE, 95), stack_of(STEP, 5))
    assert [source.words for source in find_sources(map_of(1.0, 0), later)] == ["evaluate() at train.py:212"]


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 20))
def test_sources_never_tell_of_more_than_has_grown(before: int, after: int, activations: int) -> None:
    sources = find_sources(map_of(1.0, before, activations=activations), map_of(2.0, after))
    assert sum(source.size_bytes for source in sources) == max(0, after - before) * 2 * MIB
    assert len(sources) <= 3


def test_code_at_the_top_of_a_file_is_called_by_its_line_alone() -> None:
    (source,) = find_sources(map_of(1.0, 0), map_of(2.0, 1, stack_of(("/x/run.py", 3, "<module>"), 1)))
    assert source.words == "run.py:3"


def test_of_a_model_that_is_called_the_caller_is_named_and_the_line_in_it_that_allocated_most() -> None:
    attend, project = ("/home/u/model.py", 12, "forward"), ("/home/u/model.py", 14, "forward")
    library = ("/env/lib/python3.11/site-packages/trainer/loop.py", 5, "run")

    def evaluated(frame: tuple[str, int, str], count: int) -> LiveStack:
        return LiveStack(KEPT_SIZE * count, count, (TORCH, frame, TORCH, EVALUATE, library))

    later = map_of(2.0, 30, evaluated(attend, 6), evaluated(project, 10), stack_of(STEP, 4))
    (source, other) = find_sources(map_of(1.0, 0), later)
    assert (source.words, source.blocks) == ("evaluate() at train.py:212", 16)
    assert source.allocated_at is not None
    assert source.allocated_at.line == 14
    assert other.words == "step() at model.py:40"


def test_where_only_a_forward_is_known_it_is_named() -> None:
    only = LiveStack(KEPT_SIZE, 1, (TORCH, ("/home/u/model.py", 12, "forward")))
    (source,) = find_sources(map_of(1.0, 0), map_of(2.0, 1, only))
    assert source.words == "forward() at model.py:12"
