"""A part of the time that is zoomed into: always inside of the whole, and around the moment."""

from hypothesis import given
from hypothesis import strategies as st

from vramscope.tui.draw.time_window import TimeWindow

WHOLE = TimeWindow(100.0, 900.0)


def test_zooming_goes_around_the_moment_and_stops_at_the_ends() -> None:
    assert WHOLE.zoom(None, 0.5, 500.0) == (300.0, 700.0)
    assert WHOLE.zoom(None, 0.5, 120.0) == (100.0, 500.0)
    assert WHOLE.zoom(TimeWindow(300.0, 700.0), 0.5, 690.0) == (590.0, 790.0)
    assert WHOLE.zoom(TimeWindow(300.0, 700.0), 2, 500.0) is None


def test_a_window_moves_only_where_the_moment_leaves_it() -> None:
    window = TimeWindow(300.0, 700.0)
    assert WHOLE.follow(window, 700.0) == window
    assert WHOLE.follow(window, 750.0) == (500.0, 900.0)


@given(around=st.floats(-1000, 2000), factors=st.lists(st.sampled_from([0.25, 0.5, 2.0, 3.0]), max_size=12))
def test_a_window_is_always_a_part_of_the_whole(around: float, factors: list[float]) -> None:
    window: TimeWindow | None = None
    for factor in factors:
        window = WHOLE.zoom(window, factor, around)
        if window is not None:
            assert WHOLE.start <= window.start < window.end <= WHOLE.end + 1e-9
            assert window.length < WHOLE.length
