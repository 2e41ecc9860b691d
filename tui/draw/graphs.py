"""Graphs of levels over time, drawn with blocks or braille."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
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
    known = _find_columns(rows, glyphs.history, glyphs.history_band)
    columns = [known[pair] for pair in zip(levels[::2], levels[1::2], strict=False)]
    if not columns:
        return [[] for _ in range(rows)]
    glyph_rows = zip(*(column.glyphs for column in columns), strict=True)
    mark_rows = zip(*(column.marks for column in columns), strict=True)
    return [_join_points(*row, role) for row in zip(glyph_rows, mark_rows, strict=True)]


def _join_points(cells: Sequence[str], are_solid: Sequence[bool], role: Role) -> Line:
    if all(are_solid):  # as in most rows
        return [Span("".join(cells), role)]
    line: Line = []
    band_role: Role = "band" if role == "fill" else "muted"
    start = 0
    for is_solid, run in groupby(are_solid):
        end = start + sum(1 for _ in run)
        line.append(Span("".join(cells[start:end]), role if is_solid else band_role))
        start = end
    return line


class _CellColumn(NamedTuple):
    """The cells of two buckets from the top down, and whether each is solid."""

    glyphs: tuple[str, ...]
    marks: tuple[bool, ...]


# Each glyph once: there are only a few hundred different ones, but every cached column would hold copies.
_KNOWN_GLYPHS: dict[str, str] = {}


# Different pairs of buckets in graphs of one height; when there are more, all are drawn again as they come.
MOST_COLUMNS = 1024


class _CellColumns(dict[tuple[Levels, Levels], _CellColumn]):
    """The cells of each pair of buckets, drawn when they are first looked up."""

    def __init__(self, rows: int, history: str, band: str) -> None:
        super().__init__()
        self._rows = rows
        self._history = history
        self._band = band

    def __missing__(self, pair: tuple[Levels, Levels]) -> _CellColumn:
        if len(self) >= MOST_COLUMNS:
            self.clear()
        rows = reversed(range(self._rows))
        if self._history:
            cells = [_block_cell(*pair, row, self._history, self._band) for row in rows]
        else:
            cells = [_braille_cell(*pair, row) for row in rows]
        glyphs = tuple([_KNOWN_GLYPHS.setdefault(glyph, glyph) for glyph, _ in cells])
        column = self[pair] = _CellColumn(glyphs, tuple([is_solid for _, is_solid in cells]))
        return column


@lru_cache(maxsize=4)
def _find_columns(rows: int, history: str, band: str) -> _CellColumns:
    return _CellColumns(rows, history, band)


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
