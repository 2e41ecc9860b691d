"""History has a fixed scale; peaks between frames are lighter; what was not measured is blank."""

import pytest

from vramscope.tui.draw.glyphs import ASCII, UNICODE, Glyphs
from vramscope.tui.draw.graphs import dots_of, draw_history, history_levels
from vramscope.tui.draw.spans import Line, line_text

Values = list[float | None]


def _graph(low: Values, high: Values, rows: int, glyphs: Glyphs = UNICODE) -> list[Line]:
    return draw_history(history_levels(low, high, 100, dots_of(rows, glyphs)), rows, glyphs)


def _text(low: Values, high: Values, rows: int, glyphs: Glyphs = UNICODE) -> list[str]:
    return [line_text(line) for line in _graph(low, high, rows, glyphs)]


def test_the_scale_is_fixed_so_a_flat_line_stays_flat() -> None:
    assert _text([40.00, 40.01, 40.0, 40.0], [40.01, 40.01, 40.0, 40.0], 2) == ["  ", "⣶⣶"]


def test_from_nothing_to_the_capacity() -> None:
    values: Values = [0, 10, 25, 50, 75, 100]
    assert _text(values, values, 2) == ["  ⣰", "⣀⣼⣿"]


def test_a_full_device_leaves_the_topmost_dot_free() -> None:
    assert _text([100, 100], [100, 100], 1) == ["⣶"]


def test_the_part_above_the_least_is_lighter() -> None:
    top, bottom = _graph([25, 25, 90, 90], [90, 90, 90, 90], 2)
    assert [(span.text, span.role) for span in top] == [("⣤", "band"), ("⣤", "fill")]
    assert [span.role for span in bottom] == ["fill"]


def test_unmeasured_is_blank_and_measured_is_not() -> None:
    assert _text([None, None, 0, 0], [None, None, 0, 0], 2) == ["  ", " ⣀"]


def test_ascii() -> None:
    low: Values = [100, 100, 50, 50, 20, 20, None, None]
    high: Values = [100, 100, 50, 50, 90, 90, None, None]
    assert _text(low, high, 2, ASCII) == ["# = ", "##. "]


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=lambda glyphs: glyphs.name)
@pytest.mark.parametrize("rows", range(1, 9))
def test_every_row_has_a_cell_for_two_buckets(rows: int, glyphs: Glyphs) -> None:
    low: Values = [None if value % 7 == 3 else float(value) for value in range(100)]
    high: Values = [None if value is None else value + 5 for value in low]
    lines = _text(low, high, rows, glyphs)
    assert [len(line) for line in lines] == [50] * rows
