"""A whole cut into named parts: one bar, and its figures so rounded that they add up."""

from collections.abc import Sequence
from typing import NamedTuple

from ...engine.units import GIB, MIB
from .glyphs import Glyphs
from .spans import Line, Role, Span, line_width

SMALL_WHOLE_BYTES = 4 * GIB
"""Below this, figures are told in MiB."""


class Part(NamedTuple):
    """One part of a whole."""

    name: str
    value_bytes: int | None
    """None where it is not known."""
    glyph: str
    role: Role
    is_exact: bool = True
    """Whether it is the figure; else it is the least that it can be."""


def draw_stacked_bar(parts: Sequence[Part], scale_bytes: int, width: int, glyphs: Glyphs) -> Line:
    """Return the parts side by side on a scale from 0 to `scale_bytes`; what is left is empty.

    A part that is there has one cell at least; parts that are not known take none.

    Args:
        parts: The parts, left to right.
        scale_bytes: Bytes at the right end.
        width: Cells to fill.
        glyphs: Characters to draw with.
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
    """Return `used 78.1 = █ allocated 75.0 + ▓ cached 0.8 + …` in as many lines as it needs.

    Args:
        whole: What the parts add up to.
        parts: The parts; each has its own glyph before its name.
        width: Cells across.
        glyphs: Characters to draw with.
    """
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
    """Return the whole and its parts as figures of one unit; known parts of a known whole add up exactly.

    What rounding leaves over goes to the parts that lost most by it (the method of the largest remainder).
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
