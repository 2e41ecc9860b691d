"""History in layers on one scale: live tensors, what the allocator holds beyond them, what else is used.

A cell is one bucket of time. From the bottom: solid up to the least allocated of the bucket, the band up to
its most, then the cache up to what is reserved, then the rest up to the least used, and again the band up to
the most used.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from .glyphs import Glyphs
from .spans import Line, Role, Span

EIGHTHS = 8


class Layers(NamedTuple):
    """One bucket: the bytes at which each layer ends; None where nothing was measured."""

    allocated_min: float | None
    allocated_max: float | None
    reserved: float | None
    used_min: float | None
    used_max: float | None


def draw_layers(
    buckets: Sequence[Layers], scale: float, rows: int, glyphs: Glyphs, role: Role = "fill"
) -> list[Line]:
    """Return `rows` lines, top first, of one cell a bucket.

    Args:
        buckets: Oldest first.
        scale: Bytes at the top.
        rows: Height of the graph.
        glyphs: Characters to draw with.
        role: Role of what live tensors fill.
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
    """Return whole rows; one at least where there is anything."""
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
    """Return one row of cells with neighbours of one role in one span."""
    line: Line = []
    start = 0
    for index in range(1, len(cells) + 1):
        if index == len(cells) or cells[index][1] != cells[start][1]:
            text = "".join([glyph for glyph, _ in cells[start:index]])
            line.append(Span(text, cells[start][1]))
            start = index
    return line
