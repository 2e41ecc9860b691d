"""An icicle in cells: one level a row, lengths as the bytes, each block with its name where there is room."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from ...analyzers.breakdown import IcicleCell
from .glyphs import Glyphs
from .spans import Line, Role, Span, clean_text, fit_text, line_width

NAME_FROM_CELLS = 4
"""Cells from which a block bears its name."""


class HitBox(NamedTuple):
    """Where a block lies: who clicks there means it."""

    row: int
    first: int
    """Its first cell."""
    end: int
    """The cell after its last."""
    cell: IcicleCell


class Icicle(NamedTuple):
    """Lines of one width, and what lies where on them."""

    lines: tuple[Line, ...]
    boxes: tuple[HitBox, ...]
    """Row by row, left to right; they do not overlap."""
    narrow: int
    """Blocks that are left out because they are narrower than half a cell."""


def draw_icicle(
    cells: Sequence[IcicleCell], width: int, glyphs: Glyphs, chosen: tuple[str, ...] | None = None
) -> Icicle:
    """Return the drawing of a layout: a row for each of its levels.

    Blocks begin and end on whole cells, so that names can stand in them and clicks mean one; only the end of
    the last block of a row, beyond which nothing lies, is drawn to an eighth of a cell.

    Args:
        cells: Of `lay_out_icicle`, or those of them that begin with some path, from the same root.
        width: Cells across.
        glyphs: Characters to draw with.
        chosen: Path of the block under the cursor.
    """
    rows = max((cell.depth for cell in cells), default=-1) + 1
    boxes: list[HitBox] = []
    narrow = 0
    for row in range(rows):
        for cell in sorted((it for it in cells if it.depth == row), key=lambda it: it.start):
            box = HitBox(row, round(cell.start * width), round(cell.end * width), cell)
            if box.end > box.first:
                boxes.append(box)
            else:
                narrow += 1
    lines = tuple(
        _draw_row([box for box in boxes if box.row == row], width, glyphs, chosen) for row in range(rows)
    )
    return Icicle(lines, tuple(boxes), narrow)


def _draw_row(boxes: Sequence[HitBox], width: int, glyphs: Glyphs, chosen: tuple[str, ...] | None) -> Line:
    line: Line = []
    at = 0
    for number, box in enumerate(boxes):
        if box.first > at:
            line.append(Span(" " * (box.first - at)))
        line += _draw_block(box, number, glyphs, is_chosen=box.cell.path == chosen)
        at = box.end
    if boxes:
        line = _end_exactly(line, boxes[-1], width, glyphs)
        at = line_width(line)
    return [*line, Span(" " * (width - at))] if at < width else line


def _draw_block(box: HitBox, number: int, glyphs: Glyphs, *, is_chosen: bool) -> Line:
    """Return a block: its name where there is room, and then its fill, of which neighbours differ."""
    cells = box.end - box.first
    fill, role = _fill(number, glyphs)
    lead = glyphs.selected if is_chosen else fill
    if cells < NAME_FROM_CELLS:
        return [Span(lead, "cursor" if is_chosen else role), Span(fill * (cells - 1), role)][: cells or 1]
    name = clean_text(box.cell.name, is_ascii=glyphs.name == "ascii")
    name = fit_text(name, min(cell_len(name), cells - 2), glyphs.ellipsis)
    rest = fill * (cells - 2 - cell_len(name))
    return [
        Span(lead, "cursor" if is_chosen else role),
        Span(name, "cursor" if is_chosen else "strong"),
        Span(f" {rest}", role),
    ]


def _fill(number: int, glyphs: Glyphs) -> tuple[str, Role]:
    return (glyphs.full, "fill") if number % 2 == 0 else (glyphs.cached, "band")


def _end_exactly(line: Line, box: HitBox, width: int, glyphs: Glyphs) -> Line:
    """Return a row whose last block ends to an eighth of a cell, where its end is a fill."""
    text, role = line[-1]
    steps = len(glyphs.partial) + 1
    eighths = int((box.cell.end * width - box.end) * steps // 1)
    if eighths > 0:
        return [*line, Span(glyphs.partial[eighths - 1], role)] if box.end < width else line
    if eighths < 0 and steps + eighths > 0 and text.endswith((glyphs.full, glyphs.cached)):
        return [*line[:-1], Span(text[:-1] + glyphs.partial[steps + eighths - 1], role)]
    return line
