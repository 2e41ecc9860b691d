"""Bins of steps: bounded, and of a step that was done twice the longer life counts."""

from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.diff.summary import Bins, Cell, StepLine


def need(peak: int) -> Cell:
    return Cell(0.0, 1, peak_bytes=peak, floor_bytes=peak)


def peaks(line: StepLine) -> dict[int, int | None]:
    return {number: cell.peak_bytes for number, cell in sorted(line.bins().cells.items())}


def test_of_a_step_that_was_done_twice_the_longer_life_counts() -> None:
    for first, second in ((range(10), range(4, 20)), (range(16), range(10, 20))):
        line = StepLine(64)
        for size, life in ((7, first), (5, second)):
            for step in life:
                line.add(step, need(size))
        longer, size = (first, 7) if len(first) > len(second) else (second, 5)
        assert peaks(line) == {step: size if step in longer else 12 - size for step in range(20)}
        assert line.restarts == 1


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 100)), min_size=1, max_size=200))
def test_however_many_steps_there_are_the_bins_are_few_and_nothing_is_lost(
    told: list[tuple[int, int]],
) -> None:
    bins = Bins(16)
    for step, size in told:
        bins.add(step, need(size))
    assert len(bins) <= 16
    assert sum(cell.readings for cell in bins.cells.values()) == len(told)
    for step, size in told:
        cell = bins.cells[step // bins.width]
        assert cell.peak_bytes is not None
        assert cell.floor_bytes is not None
        assert cell.floor_bytes <= size <= cell.peak_bytes
