"""Sets of glyphs are complete and keep to what the terminal can show."""

from dataclasses import fields

import pytest
from rich.cells import cell_len

from vramscope.tui.draw.glyphs import ASCII, UNICODE, Glyphs


def _characters(glyphs: Glyphs) -> str:
    values = [getattr(glyphs, field.name) for field in fields(glyphs) if field.name not in ("name", "degree")]
    texts = [value for value in values if isinstance(value, str)]
    return "".join([*texts, *glyphs.risks.values()])


def test_ascii_has_seven_bits_only() -> None:
    assert _characters(ASCII).isascii()
    assert ASCII.degree.isascii()


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=lambda glyphs: glyphs.name)
def test_every_glyph_is_one_cell(glyphs: Glyphs) -> None:
    assert all(cell_len(character) == 1 for character in _characters(glyphs))


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=lambda glyphs: glyphs.name)
def test_risks_differ_without_colour(glyphs: Glyphs) -> None:
    levels = ["low", "medium", "high", "critical", "unknown"]
    assert len({glyphs.risk(level) for level in levels}) == 5
    assert glyphs.risk("a level of a newer version") == glyphs.risk("unknown")
