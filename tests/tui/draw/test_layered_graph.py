"""Layers on one scale: tensors, cache and the rest are told apart by glyph, swings by their band."""

from vramscope.tui.draw.glyphs import ASCII, UNICODE, Glyphs
from vramscope.tui.draw.graphs import Layers, draw_layers
from vramscope.tui.draw.spans import line_text

UNMEASURED = Layers(None, None, None, None, None)


def _draw(*buckets: Layers, rows: int = 8, glyphs: Glyphs = UNICODE) -> list[str]:
    return [line_text(line) for line in draw_layers(buckets, 80.0, rows, glyphs)]


def test_layers_stand_on_each_other_in_one_scale() -> None:
    column = "".join(_draw(Layers(20, 30, 50, 60, 70)))
    assert column == " ▒▄▓▓▒██"
    assert "".join(_draw(Layers(20, 30, 50, 60, 70), glyphs=ASCII)) == " =:%%=##"


def test_the_tip_of_the_tensors_is_drawn_in_eighths() -> None:
    assert [_draw(Layers(floor, floor, floor, floor, floor), rows=1)[0] for floor in (0, 1, 40, 70, 80)] == [
        " ",
        "▁",
        "▄",
        "▇",
        "█",
    ]


def test_what_was_not_measured_is_blank_and_little_is_not_nothing() -> None:
    assert _draw(UNMEASURED, rows=2) == [" ", " "]
    assert _draw(Layers(0.01, 0.01, 0.01, 0.01, 0.01), rows=2) == [" ", "▁"]
    assert _draw(Layers(None, None, None, 0.01, 0.01), rows=2) == [" ", "▄"]


def test_figures_that_contradict_each_other_never_leave_the_scale() -> None:
    assert _draw(Layers(900, 1, 5, 2, 1), rows=3) == ["█", "█", "█"]
    assert [line_text(line) for line in draw_layers([Layers(1, 1, 1, 1, 1)], 0.0, 2, UNICODE)] == [" ", "▁"]
