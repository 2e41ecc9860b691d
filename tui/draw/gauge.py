"""The gauge: a bar that always runs from nothing to the whole capacity."""

from ...engine.model import AllocatorReading, MemoryReading
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
    used = memory.used_bytes
    low = memory.used_min_bytes
    high = memory.used_max_bytes
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


def draw_split_gauge(
    memory: MemoryReading,
    allocator: AllocatorReading,
    scale: float | None,
    width: int,
    glyphs: Glyphs,
    role: Role = "fill",
) -> Line:
    """Return a bar whose solid part is split: live tensors, then what is cached, then all else that is used.

    Args:
        memory: Newest, least and most device-used bytes, as for `draw_gauge`.
        allocator: What the allocators on the device say; without reserved bytes nothing is split.
        scale: Bytes at the right end.
        width: Cells to fill.
        glyphs: Characters to draw with.
        role: Role of the part that live tensors fill.
    """
    used = memory.used_bytes
    allocated = allocator.allocated_bytes
    reserved = allocator.reserved_bytes
    if width <= 0 or used is None or not scale or scale <= 0 or allocated is None or reserved is None:
        return draw_gauge(memory, scale, width, glyphs, role)
    low = memory.used_min_bytes
    high = memory.used_max_bytes
    ends = (allocated, reserved, used if low is None else low, used if high is None else high)
    looks: tuple[tuple[str, Role], ...] = (
        (glyphs.full, role),
        (glyphs.cached, "band" if role == "fill" else role),
        (glyphs.rest, "muted"),
        (glyphs.band, "band" if role == "fill" else role),
    )
    solid = _cells(max(used if low is None else low, allocated), scale, width)
    line: Line = []
    taken = 0
    for number, (end, (glyph, part_role)) in enumerate(zip(ends, looks, strict=True)):
        cells = _cells(end, scale, width) if number > 2 else min(solid, _cells(end, scale, width))
        if cells > taken:
            line.append(Span(glyph * (cells - taken), part_role))
            taken = cells
    return [*line, Span(glyphs.empty * (width - taken), "faint")] if taken < width else line


def _cells(value: float, scale: float, width: int) -> int:
    """Return the whole cells of a bar that a value fills; one at least where there is anything."""
    filled = round(min(1.0, max(0.0, value / scale)) * width)
    return max(filled, 1) if value > 0 else 0


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
