"""A tick tells the bounds of all steps that ended within it, and no more than that."""

from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.model import RankSample
from vramscope.engine.ranks.messages import Count, Figure, StepRow, Steps
from vramscope.engine.ranks.track import Moment, RankTrack

from .probe_client import MIB, make_hello

NOW = Moment(10.0, 1010.0, 0.1)

figures = st.none() | st.integers(0, 2**40)
rows: st.SearchStrategy[StepRow] = st.tuples(
    st.integers(1, 1000), st.just(1009.0), st.none() | st.just(0.25), figures, figures, st.booleans()
)


def _make_track() -> RankTrack:
    return RankTrack(4711, make_hello(), 9.0)


def _take(track: RankTrack, *messages: tuple[StepRow, ...]) -> RankSample:
    for rows in messages:
        track.fold(Steps(v=1, rows=rows), NOW)
    return track.take(10.0, "GPU-a").sample


def _row(index: Count, floor: Figure, peak: Figure) -> StepRow:
    return index, 1009.0, 0.25, floor, peak, True


@given(st.lists(st.lists(rows, max_size=4).map(tuple), max_size=4))
def test_the_least_floor_and_the_highest_peak_of_all_steps_are_told(
    messages: list[tuple[StepRow, ...]],
) -> None:
    sample = _take(_make_track(), *messages)
    ended = [row for rows in messages for row in rows]
    assert sample.steps_within == len(ended)
    assert sample.floor_min_bytes == min((row[3] for row in ended if row[3] is not None), default=None)
    assert sample.peak_max_bytes == max((row[4] for row in ended if row[4] is not None), default=None)
    assert (sample.step.index if sample.step else None) == (ended[-1][0] if ended else None)


def test_a_spike_of_an_earlier_step_is_not_hidden_by_the_newest() -> None:
    sample = _take(_make_track(), (_row(1, 50 * MIB, 900 * MIB), _row(2, 60 * MIB, 80 * MIB)))
    assert (sample.floor_min_bytes, sample.peak_max_bytes) == (50 * MIB, 900 * MIB)
    assert sample.step is not None
    assert (sample.step.index, sample.step.peak_bytes) == (2, 80 * MIB)


def test_a_tick_in_which_no_step_ended_has_no_bounds_and_keeps_the_newest_step() -> None:
    track = _make_track()
    _take(track, (_row(7, MIB, 2 * MIB),))
    sample = _take(track)
    assert (sample.steps_within, sample.floor_min_bytes, sample.peak_max_bytes) == (0, None, None)
    assert sample.step is not None
    assert sample.step.index == 7


def test_of_steps_that_told_their_size_each_size_keeps_the_one_whose_peak_says_most() -> None:
    track = _make_track()
    rows = tuple(
        (index, 1009.0, 0.25, MIB, peak * MIB, is_exact)
        for index, peak, is_exact in [
            (1, 40, True),
            (2, 90, False),
            (3, 80, False),
            (4, 41, False),
            (5, 9, True),
        ]
    )
    track.fold(Steps(v=1, rows=rows, sizes=((1, 64, 4), (2, 128, 8), (3, 128, 8), (4, 64, 4))), NOW)
    sample = track.take(10.0, "GPU-a").sample
    assert [(step.index, step.tokens, step.batch) for step in sample.sized_steps] == [(1, 64, 4), (2, 128, 8)]
    assert track.take(10.2, "GPU-a").sample.sized_steps == ()


def test_exact_peaks_are_told_again_for_a_worker_that_came_late_and_are_bounded() -> None:
    track = _make_track()
    rows = tuple((index, 1009.0, 0.25, MIB, index * MIB, index % 2 == 1) for index in range(1, 101))
    track.fold(Steps(v=1, rows=rows, sizes=tuple((index, index, None) for index in range(1, 101))), NOW)
    first = track.take(10.0, "GPU-a").sample.sized_steps
    assert [step.index for step in first] == list(range(69, 100, 2))
    assert track.take(19.9, "GPU-a").sample.sized_steps == ()
    assert track.take(20.1, "GPU-a").sample.sized_steps == first
    assert track.take(20.3, "GPU-a").sample.sized_steps == ()
