"""Graphs of levels over time, drawn with blocks or braille."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from .glyphs import Glyphs
from .spans import Line, Role, Span

# Braille dots of a column filled from below with 0 to 4 dots (Unicode, chapter 21.1).
_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)

# Dots from the bottom of a bucket's least and most; 0 where nothing was measured.
Levels = tuple[int, int]


def history_levels(
    minimum: Sequence[float | None], maximum: Sequence[float | None], scale: float, dots: int
) -> list[Levels]:
    """Return each bucket's least and most as a number of dots out of `dots`."""
    if scale <= 0:
        return [(0, 0)] * len(minimum)
    factor = dots / scale
    levels: list[Levels] = []
    for low, high in zip(minimum, maximum, strict=True):
        if low is None or high is None:
            levels.append((0, 0))
            continue
        least = int(low * factor + 0.5)
        most = int(high * factor + 0.5)
        if least < 1:
            least = 1
        elif least > dots:
            least = dots
        if most < least:
            most = least
        elif most > dots:
            most = dots
        levels.append((least, most))
    return levels


def dots_of(rows: int, glyphs: Glyphs) -> int:
    """Return how many dots high a graph of `rows` rows is.

    In braille the topmost dot stays free, so that a full device does not run into the graph above it.
    """
    return max(1, rows * 4 - 1) if glyphs.is_braille else rows * (len(glyphs.history) - 1)


def draw_history(levels: Sequence[Levels], rows: int, glyphs: Glyphs, role: Role = "fill") -> list[Line]:
    """Return `rows` lines, top first, of half as many cells as there are levels.

    Levels are an even number of buckets, oldest first, out of `dots_of(rows, glyphs)`.
    """
    columns = [
        _cell_column(levels[index], levels[index + 1], rows, glyphs.history, glyphs.history_band)
        for index in range(0, len(levels) - 1, 2)
    ]
    return [_join_points([column[row] for column in columns], role) for row in range(rows)]


def _join_points(cells: Sequence[tuple[str, bool]], role: Role) -> Line:
    line: Line = []
    band_role: Role = "band" if role == "fill" else "muted"
    start = 0
    for index in range(1, len(cells) + 1):
        if index == len(cells) or cells[index][1] is not cells[start][1]:
            text = "".join([cell[0] for cell in cells[start:index]])
            line.append(Span(text, role if cells[start][1] else band_role))
            start = index
    return line


# Each cell once: there are only a few hundred different ones, but every cached column would hold copies.
_KNOWN_CELLS: dict[tuple[str, bool], tuple[str, bool]] = {}


@lru_cache(maxsize=2048)
def _cell_column(
    left: Levels, right: Levels, rows: int, history: str, band: str
) -> tuple[tuple[str, bool], ...]:
    """Return the cells of two buckets from the top down, each with whether it is solid."""
    if history:
        cells = [_block_cell(left, right, row, history, band) for row in reversed(range(rows))]
    else:
        cells = [_braille_cell(left, right, row) for row in reversed(range(rows))]
    return tuple([_KNOWN_CELLS.setdefault(cell, cell) for cell in cells])


def _braille_cell(left: Levels, right: Levels, row: int) -> tuple[str, bool]:
    """Return one cell of four by two dots, `row` rows above the bottom."""
    base = 4 * row
    most = [min(4, max(0, level[1] - base)) for level in (left, right)]
    if not any(most):
        return " ", True
    is_solid = left[0] > base or right[0] > base
    return chr(0x2800 + _LEFT[most[0]] + _RIGHT[most[1]]), is_solid


def _block_cell(left: Levels, right: Levels, row: int, history: str, band: str) -> tuple[str, bool]:
    """Return one cell for two buckets: their least and most together, `row` rows above the bottom."""
    top = len(history) - 1
    base = top * row
    measured = [level for level in (left, right) if level[1]]
    if not measured:
        return " ", True
    low = min(top, max(0, max(level[0] for level in measured) - base))
    if low:
        return history[low], True
    return (band, False) if max(level[1] for level in measured) > base else (" ", True)


EIGHTHS = 8


class Layers(NamedTuple):
    """One bucket: the bytes at which each layer ends; None where unmeasured."""

    allocated_min: float | None
    allocated_max: float | None
    reserved: float | None
    used_min: float | None
    used_max: float | None


def draw_layers(
    buckets: Sequence[Layers], scale: float, rows: int, glyphs: Glyphs, role: Role = "fill"
) -> list[Line]:
    """Return `rows` lines, top first, of one cell a bucket, oldest first; `scale` is the bytes at the top.

    `role` is that of live tensors.
    """
    columns = [_draw_column(bucket, scale, rows, glyphs.name == "unicode") for bucket in buckets]
    looks = _looks(glyphs, role)
    return [_join([looks[column[row]] for column in columns]) for row in range(rows)]


def _measure(bucket: Layers, scale: float, rows: int) -> tuple[int, ...]:
    """Return the ends of the layers in eighths of a row, none below the one under it."""
    ends: list[int] = []
    for value in bucket:
        share = 0.0 if value is None or scale <= 0 else min(1.0, max(0.0, value / scale))
        level = round(share * rows * EIGHTHS)
        if value:
            level = max(level, 1)
        ends.append(max(level, ends[-1] if ends else 0))
    return tuple(ends)


@lru_cache(maxsize=1024)  # of the one device that is shown in full
def _draw_column(bucket: Layers, scale: float, rows: int, has_tips: bool) -> tuple[int, ...]:
    """Return, from the top down, the layer of each cell; the tip of the lowest one in negative eighths."""
    ends = _measure(bucket, scale, rows)
    tip = ends[0] % EIGHTHS if has_tips else 0
    whole = ends[0] // EIGHTHS if has_tips else _round(ends[0])
    column = []
    for row in range(rows):
        if row < whole:
            column.append(1)
        elif row == whole and tip:
            column.append(-tip)
        else:
            column.append(next((n + 1 for n in range(1, len(ends)) if _round(ends[n]) > row), 0))
    return tuple(reversed(column))


def _round(eighths: int) -> int:
    """Return whole rows; at least one where there is anything."""
    return max(1, (eighths + EIGHTHS // 2) // EIGHTHS) if eighths else 0


def _looks(glyphs: Glyphs, role: Role) -> dict[int, tuple[str, Role]]:
    """Return glyph and role of nothing, of every layer from the bottom up, and of the tips of the lowest."""
    band: Role = "band" if role == "fill" else role
    layers: tuple[tuple[str, Role], ...] = (
        (" ", "text"),
        (glyphs.full, role),
        (glyphs.band, role),
        (glyphs.cached, band),
        (glyphs.rest, "muted"),
        (glyphs.band, "muted"),
    )
    tips = {-eighths: (glyphs.levels[eighths - 1], role) for eighths in range(1, EIGHTHS)}
    return {**dict(enumerate(layers)), **tips}


def _join(cells: Sequence[tuple[str, Role]]) -> Line:
    line: Line = []
    start = 0
    for index in range(1, len(cells) + 1):
        if index == len(cells) or cells[index][1] != cells[start][1]:
            text = "".join([glyph for glyph, _ in cells[start:index]])
            line.append(Span(text, cells[start][1]))
            start = index
    return line
