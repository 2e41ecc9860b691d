"""The gauge: a bar that always runs from nothing to the whole capacity."""

from ...engine.model import MemoryReading
from .glyphs import Glyphs
from .spans import Line, Role, Span


def draw_gauge(
    memory: MemoryReading, scale: float | None, width: int, glyphs: Glyphs, role: Role = "fill"
) -> Line:
    """Return a bar of `width` cells: solid up to the least of the tick, lighter up to the most.

    Args:
        memory: Newest, least and most device-used bytes; the newest stands in where one is unmeasured.
        scale: Bytes at the right end.
        width: Cells to fill.
        glyphs: Characters to draw with.
        role: Role of the solid part.
    """
    if width <= 0:
        return []
    used, low, high = memory.used_bytes, memory.used_min_bytes, memory.used_max_bytes
    if used is None or not scale or scale <= 0:
        return [Span(glyphs.unmeasured.ljust(width), "faint")]
    steps = len(glyphs.partial) + 1
    solid = _steps(used if low is None else low, scale, width, steps)
    most = _steps(used if high is None else high, scale, width, steps)
    full, rest = divmod(solid, steps)
    if most - solid > steps // 2:
        band = max(1, round(most / steps) - full)
        body = [Span(glyphs.full * full, role), Span(glyphs.band * band, "band" if role == "fill" else role)]
    else:
        tip = glyphs.partial[rest - 1] if rest else ""
        body = [Span(glyphs.full * full + tip, role)]
    taken = sum(len(text) for text, _ in body)
    return [span for span in (*body, Span(glyphs.empty * (width - taken), "faint")) if span.text]


def _steps(value: float, scale: float, width: int, steps: int) -> int:
    """Return the smallest steps of a bar that a value fills; one at least where there is anything."""
    filled = round(min(1.0, max(0.0, value / scale)) * width * steps)
    return max(filled, 1) if value > 0 else 0


def level_glyph(share: float | None, glyphs: Glyphs) -> str:
    """Return one cell that stands for a share between 0 and 1."""
    if share is None:
        return glyphs.unmeasured
    top = len(glyphs.levels) - 1
    return glyphs.levels[min(top, max(0, int(share * (top + 1))))]
