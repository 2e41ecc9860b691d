"""Blocks of memory: a tree as an icicle, segments as a map."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from ...analyzers.modules import IcicleCell
from ...engine.model import Segment, SegmentMap
from ...engine.model.sample import FREE
from ...engine.units import KIB, MIB
from .glyphs import Glyphs
from .spans import Line, Role, Span, clean_text, fit_text, line_width

# Cells from which a block shows its name.
NAME_FROM_CELLS = 4


class HitBox(NamedTuple):
    """Place of a block, for clicks."""

    row: int
    first: int
    # The cell after its last.
    end: int
    cell: IcicleCell


class Icicle(NamedTuple):
    lines: tuple[Line, ...]
    boxes: tuple[HitBox, ...]
    # Blocks left out because they are narrower than half a cell.
    narrow: int


def draw_icicle(
    cells: Sequence[IcicleCell], width: int, glyphs: Glyphs, chosen: tuple[str, ...] | None = None
) -> Icicle:
    """Return the drawing of a layout: a row for each of its levels.

    Blocks begin and end on whole cells, so that names can stand in them and a click means one; only the end
    of
    the last block of a row, which has no neighbour, is drawn to an eighth of a cell.

    Args:
        cells: From `lay_out_icicle`, or a subset with one path prefix, from the same root.
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
    """Return a block: its name where there is room, then its fill, which differs between neighbours."""
    cells = box.end - box.first
    looks: tuple[tuple[str, Role], ...] = ((glyphs.full, "fill"), (glyphs.cached, "band"))
    fill, role = looks[number % 2]
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


def _end_exactly(line: Line, box: HitBox, width: int, glyphs: Glyphs) -> Line:
    """Return a row whose last block ends to an eighth of a cell, where it ends with a fill."""
    text, role = line[-1]
    steps = len(glyphs.partial) + 1
    eighths = int((box.cell.end * width - box.end) * steps // 1)
    if eighths > 0:
        return [*line, Span(glyphs.partial[eighths - 1], role)] if box.end < width else line
    if eighths < 0 and steps + eighths > 0 and text.endswith((glyphs.full, glyphs.cached)):
        return [*line[:-1], Span(text[:-1] + glyphs.partial[steps + eighths - 1], role)]
    return line


# Cells at the left that name the pool.
LABEL_CELLS = 14
LEAST_CELL_BYTES = 256 * KIB
MOST_CELL_BYTES = 4096 * MIB
# Live part of a cell from which it counts as full, up to which as empty, and above which as mostly full.
FULL_SHARE = 0.995
EMPTY_SHARE = 0.005
HALF_SHARE = 0.5


class SegmentPool(NamedTuple):
    title: str
    segments: tuple[Segment, ...]


def group_segments(segments: Sequence[Segment]) -> list[SegmentPool]:
    """Return the segments by pool: private pools last, expandable segments separately."""
    groups: dict[str, list[Segment]] = {}
    for segment in segments:
        groups.setdefault(_title_of(segment), []).append(segment)
    order = ("large", "expandable", "small", "small expand", "private")
    return [SegmentPool(title, tuple(groups[title])) for title in order if title in groups]


def _title_of(segment: Segment) -> str:
    if segment.is_private:
        return "private"
    if segment.is_expandable:
        return "expandable" if segment.pool == "large" else "small expand"
    return segment.pool


def choose_cell_bytes(pools: Sequence[SegmentPool], width: int, rows: int) -> int:
    """Return the bytes of a cell: the smallest power of two with which the pools fit into `rows` rows.

    If none fits because each segment needs a cell of its own, return the smallest size after which a larger
    one
    saves no row.
    """
    needed: list[int] = []
    cell_bytes = LEAST_CELL_BYTES
    while cell_bytes <= MOST_CELL_BYTES:
        needed.append(sum(-(-_count_row(pool.segments, cell_bytes) // max(1, width)) for pool in pools))
        if needed[-1] <= rows:
            return cell_bytes
        cell_bytes *= 2
    return LEAST_CELL_BYTES << needed.index(min(needed))


def _count_row(segments: Sequence[Segment], cell_bytes: int) -> int:
    """Return the cells that segments take side by side, with the blanks around those of several cells."""
    taken = 0
    was_long = False
    for segment in segments:
        cells = count_cells(segment, cell_bytes)
        taken += cells + (1 if taken and (cells > 1 or was_long) else 0)
        was_long = cells > 1
    return taken


def count_cells(segment: Segment, cell_bytes: int) -> int:
    return max(1, round(segment.total_bytes / cell_bytes))


def draw_segment_map(
    segment_map: SegmentMap, width: int, rows: int, glyphs: Glyphs
) -> tuple[list[Line], int]:
    """Return the map as lines, and the bytes of a cell.

    Cells are sized for `rows` rows; with more segments than cells in them, the map is longer.
    """
    room = max(1, width - LABEL_CELLS)
    pools = group_segments(segment_map.segments)
    cell_bytes = choose_cell_bytes(pools, room, rows)
    lines: list[Line] = []
    for pool in pools:
        for number, row in enumerate(_wrap(pool.segments, cell_bytes, room, glyphs)):
            label = f" {pool.title if number == 0 else ''}".ljust(LABEL_CELLS)[: max(0, width)]
            lines.append([Span(label, "muted"), *row])
    return lines, cell_bytes


def _wrap(segments: Sequence[Segment], cell_bytes: int, width: int, glyphs: Glyphs) -> Iterator[Line]:
    """Yield the segments of a pool in rows; one longer than its row continues in the next."""
    row: list[tuple[str, Role]] = []
    was_long = False
    for segment in segments:
        looks = _style_segment(segment, count_cells(segment, cell_bytes), glyphs)
        is_long = len(looks) > 1
        if row and (is_long or was_long):
            row.append((" ", "text"))
        was_long = is_long
        row += looks
        while len(row) > width:
            yield _join(row[:width])
            row = row[width:]
            if row[:1] == [(" ", "text")]:
                row = row[1:]
    if row:
        yield _join(row)


def _join(cells: Sequence[tuple[str, Role]]) -> Line:
    line: Line = []
    for glyph, role in cells:
        if line and line[-1].role == role:
            line[-1] = Span(line[-1].text + glyph, role)
        else:
            line.append(Span(glyph, role))
    return line


def _style_segment(segment: Segment, count: int, glyphs: Glyphs) -> list[tuple[str, Role]]:
    shares = _measure_cells(segment, count)
    # What is free in an expandable segment is given back page by page, independent of its neighbours.
    is_stranded = not segment.is_expandable and any(share > 0 for share in shares)
    return [_style_cell(share, glyphs, is_stranded=is_stranded) for share in shares]


def _style_cell(share: float, glyphs: Glyphs, *, is_stranded: bool) -> tuple[str, Role]:
    full, mostly, partly, stranded, free = tuple(glyphs.segment)
    if share >= FULL_SHARE:
        return full, "fill"
    if share <= EMPTY_SHARE:
        return (stranded, "medium") if is_stranded else (free, "faint")
    if share > HALF_SHARE:
        return mostly, "fill"
    return partly, "medium" if is_stranded else "fill"


def _measure_cells(segment: Segment, count: int) -> list[float]:
    """Return which part of each of `count` equal cells is in use."""
    cell_bytes = segment.total_bytes / count if segment.total_bytes else 1.0
    in_use = [0.0] * count
    start = 0.0
    for size_bytes, state in segment.blocks:
        end = start + size_bytes
        if state != FREE:
            first = int(start / cell_bytes)
            last = min(count - 1, int(end / cell_bytes))
            for index in range(min(first, count - 1), last + 1):
                low = max(start, index * cell_bytes)
                high = min(end, (index + 1) * cell_bytes)
                in_use[index] += max(0.0, high - low)
        start = end
    return [share / cell_bytes for share in in_use]
