"""Bars in one line: a gauge of one level, and several parts one after another."""

from collections.abc import Sequence
from typing import NamedTuple

from ...engine.model import AllocatorReading, MemoryReading
from ...engine.units import GIB, MIB
from .glyphs import Glyphs
from .spans import Line, Role, Span, line_width


def draw_gauge(
    memory: MemoryReading, scale: float | None, width: int, glyphs: Glyphs, role: Role = "fill"
) -> Line:
    """Return a bar of `width` cells: solid up to the least of the tick, lighter up to the most.

    Without a least or most, the newest value stands in; without any, or without a `scale` in bytes, the bar
    is
    one mark for "unmeasured". `role` is that of the solid part.
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
    """Return a gauge whose solid part is split: live tensors, then cached, then everything else that is used.

    `memory`, `scale` and `role` are as for `draw_gauge`; without reserved bytes nothing is split.
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
    """Return the whole cells of a bar that a value fills; at least one where there is anything."""
    filled = round(min(1.0, max(0.0, value / scale)) * width)
    return max(filled, 1) if value > 0 else 0


def _steps(value: float, scale: float, width: int, steps: int) -> int:
    filled = round(min(1.0, max(0.0, value / scale)) * width * steps)
    return max(filled, 1) if value > 0 else 0


def level_glyph(share: float | None, glyphs: Glyphs) -> str:
    if share is None:
        return glyphs.unmeasured
    top = len(glyphs.levels) - 1
    return glyphs.levels[min(top, max(0, int(share * (top + 1))))]


# Below this, numbers are in MiB.
SMALL_WHOLE_BYTES = 4 * GIB


class Part(NamedTuple):
    name: str
    value_bytes: int | None
    glyph: str
    role: Role
    # Whether it is the exact value; else it is a lower bound.
    is_exact: bool = True


def draw_stacked_bar(parts: Sequence[Part], scale_bytes: int, width: int, glyphs: Glyphs) -> Line:
    """Return the parts side by side on a scale from 0 to `scale_bytes`; what is left is empty.

    A part that is there has at least one cell; unknown parts take none.
    """
    line: Line = []
    end_bytes = 0
    taken = 0
    for part in parts:
        if not part.value_bytes or part.value_bytes < 0 or scale_bytes <= 0:
            continue
        end_bytes += part.value_bytes
        end = min(width, max(taken + 1, round(end_bytes / scale_bytes * width)))
        if end > taken:
            line.append(Span(part.glyph * (end - taken), part.role))
            taken = end
    return [*line, Span(glyphs.empty * (width - taken), "faint")] if taken < width else line


def describe_sum(whole: Part, parts: Sequence[Part], width: int, glyphs: Glyphs) -> list[Line]:
    """Return `used 78.1 = █ allocated 75.0 + ▓ cached 0.8 + …` in as many lines as it needs."""
    rounded = round_parts(whole.value_bytes, [part.value_bytes for part in parts], glyphs)
    figures = [
        figure if part.is_exact or part.value_bytes is None else f"{glyphs.at_least}{figure}"
        for part, figure in zip((whole, *parts), rounded, strict=True)
    ]
    pieces: list[Line] = [[Span(f"{whole.name} ", "muted"), Span(figures[0], "strong")]]
    for number, (part, figure) in enumerate(zip(parts, figures[1:], strict=True)):
        sign = "= " if number == 0 else "+ "
        pieces.append(
            [
                Span(sign, "faint"),
                *([Span(part.glyph, part.role), Span(" ")] if part.glyph else []),
                Span(f"{part.name} ", "muted"),
                Span(figure),
            ]
        )
    return wrap_pieces(pieces, width)


def round_parts(whole: int | None, parts: Sequence[int | None], glyphs: Glyphs) -> list[str]:
    """Return the whole and its parts as numbers of one unit; known parts of a known whole add up exactly.

    The remainder goes to the parts that lost most by rounding (the method of the largest remainder).
    """
    known = [value for value in (whole, *parts) if value is not None]
    is_small = max(known, default=0) < SMALL_WHOLE_BYTES
    unit, places = (MIB, 0) if is_small else (GIB // 10, 1)
    total = None if whole is None else round(whole / unit)
    counts = [None if value is None else int(value // unit) for value in parts]
    if total is not None and None not in parts and sum(v for v in parts if v is not None) == whole:
        missing = total - sum(count for count in counts if count is not None)
        remainders = sorted(
            (-(value % unit), index) for index, value in enumerate(parts) if value is not None
        )
        for _, index in remainders[: max(0, missing)]:
            counts[index] = (counts[index] or 0) + 1
    else:
        counts = [None if value is None else round(value / unit) for value in parts]
    return [
        glyphs.unmeasured if count is None else _format(count, places, is_small=is_small)
        for count in (total, *counts)
    ]


def _format(count: int, places: int, *, is_small: bool) -> str:
    return f"{count:,} MiB" if is_small else f"{count / 10:,.{places}f}"


def wrap_pieces(pieces: Sequence[Line], width: int) -> list[Line]:
    """Return pieces in lines of at most `width` cells, a blank between neighbours; none is cut in two."""
    lines: list[Line] = []
    taken = 0
    for piece in pieces:
        cells = line_width(piece)
        if lines and taken + 1 + cells <= width:
            lines[-1] += [Span(" "), *piece]
            taken += 1 + cells
        else:
            lines.append(list(piece))
            taken = cells
    return lines
