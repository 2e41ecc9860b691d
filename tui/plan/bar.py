"""The bar of a planned stage: its memory by kind, the capacity as a line, and what was measured as a mark."""

from collections.abc import Sequence
from typing import NamedTuple

from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Role, Span
from ..draw.stacked_bar import Part, draw_stacked_bar
from .planned import KindBytes, MemoryKind

KINDS: tuple[MemoryKind, ...] = ("weights", "gradients", "optimizer", "activations", "other")


class Mark(NamedTuple):
    """Something that stands on a bar at a number of bytes."""

    size_bytes: int
    glyph: str
    role: Role


def show_kind(kind: MemoryKind, glyphs: Glyphs) -> tuple[str, Role]:
    """Return the character and the role of one kind of memory."""
    looks: dict[MemoryKind, tuple[str, Role]] = {
        "weights": (glyphs.full, "fill"),
        "gradients": (glyphs.cached, "accent"),
        "optimizer": (glyphs.band, "band"),
        "activations": (glyphs.hatched, "text"),
        "other": (glyphs.rest, "muted"),
    }
    return looks[kind]


def draw_planned_bar(
    kinds: Sequence[KindBytes], scale_bytes: int, width: int, glyphs: Glyphs, marks: Sequence[Mark] = ()
) -> Line:
    """Return what a stage holds, kind by kind, on a scale from 0 to `scale_bytes`.

    Args:
        kinds: Left to right; those of no bytes take no cell.
        scale_bytes: Bytes at the right end.
        width: Cells to fill.
        glyphs: Characters to draw with.
        marks: What stands on the bar; of two on one cell the last is seen.
    """
    parts = [Part(kind, size, *show_kind(kind, glyphs)) for kind, size in kinds]
    line = draw_stacked_bar(parts, scale_bytes, width, glyphs)
    for mark in marks:
        line = _put(line, _find_cell(mark.size_bytes, scale_bytes, width), mark)
    return line


def _find_cell(size_bytes: int, scale_bytes: int, width: int) -> int:
    """Return the cell in which a number of bytes ends; the last one for what lies beyond the scale."""
    if scale_bytes <= 0:
        return width
    return max(0, min(width - 1, round(size_bytes / scale_bytes * width) - 1))


def _put(line: Line, cell: int, mark: Mark) -> Line:
    """Return a line with one of its cells, each a character wide, replaced."""
    put: Line = []
    at = 0
    for text, role in line:
        place = cell - at
        if 0 <= place < len(text):
            pieces = (Span(text[:place], role), Span(mark.glyph, mark.role), Span(text[place + 1 :], role))
            put += [piece for piece in pieces if piece.text]
        else:
            put.append(Span(text, role))
        at += len(text)
    return put
