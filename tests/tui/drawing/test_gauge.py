"""The gauge runs from nothing to the capacity; the band of a tick is lighter than the line."""

import pytest

from vramscope.engine.model import MemoryReading
from vramscope.tui.drawing.gauge import draw_gauge, level_glyph
from vramscope.tui.drawing.glyphs import ASCII, UNICODE, Glyphs
from vramscope.tui.drawing.spans import line_text, line_width


def _gauge(memory: MemoryReading, scale: float | None, width: int, glyphs: Glyphs = UNICODE) -> str:
    return line_text(draw_gauge(memory, scale, width, glyphs))


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        (0, "░░░░░░░░░░"),
        (1, "▏░░░░░░░░░"),
        (50, "█████░░░░░"),
        (55, "█████▌░░░░"),
        (100, "██████████"),
        (300, "██████████"),
    ],
)
def test_the_line_is_what_is_used_of_the_capacity(used: int, expected: str) -> None:
    assert _gauge(MemoryReading(used_bytes=used), 100, 10) == expected


def test_the_band_is_lighter_and_follows_the_line() -> None:
    memory = MemoryReading(used_bytes=60, used_min_bytes=50, used_max_bytes=80)
    assert _gauge(memory, 100, 10) == "█████▒▒▒░░"
    assert _gauge(memory, 100, 10, ASCII) == "#####===.."


def test_what_nobody_measured_is_not_drawn_as_empty() -> None:
    assert _gauge(MemoryReading(), 100, 10) == "—         "
    assert _gauge(MemoryReading(used_bytes=5), None, 10, ASCII) == "-         "


@pytest.mark.parametrize("width", range(40))
def test_the_width_is_exact(width: int) -> None:
    for used in range(0, 101, 7):
        memory = MemoryReading(used_bytes=used, used_min_bytes=max(0, used - 9), used_max_bytes=used + 13)
        for glyphs in (UNICODE, ASCII):
            assert line_width(draw_gauge(memory, 100, width, glyphs)) == width


def test_a_single_cell_has_a_level() -> None:
    assert [level_glyph(share, UNICODE) for share in (0.0, 0.5, 0.99, 1.0, 7.0, None)] == list("▁▅███—")
    assert level_glyph(0.77, ASCII) == "7"
