"""One curve on scales that are told: bytes from a base that need not be 0, seconds from the left."""

from collections.abc import Sequence

from .glyphs import Glyphs
from .history_graph import dots_of, draw_history, history_levels
from .spans import Line, Role


def draw_curve(
    offsets_s: Sequence[float],
    values: Sequence[float],
    *,
    base: float,
    top: float,
    span_s: float,
    shape: tuple[int, int],
    glyphs: Glyphs,
    role: Role = "fill",
) -> list[Line]:
    """Return a filled curve, as many rows as `shape` says, each exactly as wide.

    Args:
        offsets_s: When each value began to hold, from 0 on; never going back.
        values: As many values.
        base: Value at the bottom.
        top: Value at the top.
        span_s: Seconds across.
        shape: Cells and rows.
        glyphs: Characters to draw with.
        role: Role of what is filled.
    """
    cells, rows = shape
    if cells <= 0 or rows <= 0:
        return []
    least, most = _cut(offsets_s, values, span_s, 2 * cells)
    lows = [None if low is None else max(0.0, low - base) for low in least]
    highs = [None if high is None else max(0.0, high - base) for high in most]
    levels = history_levels(lows, highs, max(1e-9, top - base), dots_of(rows, glyphs))
    return draw_history(levels, rows, glyphs, role)


def _cut(
    offsets_s: Sequence[float], values: Sequence[float], span_s: float, count: int
) -> tuple[list[float | None], list[float | None]]:
    """Return least and most of each bucket; a value holds until the next, and the last one to its bucket."""
    least: list[float | None] = [None] * count
    most: list[float | None] = [None] * count
    held: float | None = None
    at = 0
    for bucket in range(count):
        end_s = (bucket + 1) * span_s / count
        found = [] if held is None or at == len(values) else [held]
        while at < len(values) and (offsets_s[at] < end_s or bucket == count - 1):
            held = values[at]
            found.append(held)
            at += 1
        if found:
            least[bucket], most[bucket] = min(found), max(found)
    return least, most
