"""Where groups of cells stand: side by side where each fits in one line, else below one another, wrapped."""

from collections.abc import Sequence
from typing import NamedTuple

MOST_LABEL_CELLS = 20
LEAST_BLOCK_CELLS = 10
"""Cells that a group has at least, so that words have room where a node is lost."""
GAP_CELLS = 2


class FleetBlock(NamedTuple):
    """A run of cells of one group in one row."""

    group: int
    start: int
    stop: int
    x: int
    """Column of its label, or of what is left out there."""


class FleetLayout(NamedTuple):
    """Rows of blocks, top to bottom."""

    label_cells: int
    """Cells of a label with its blank; 0 where there is none."""
    block_cells: int
    """Cells of the devices of a block."""
    rows: tuple[tuple[FleetBlock, ...], ...]

    def find(self, group: int, offset: int) -> tuple[int, int]:
        """Return the row and column of a device; the first where there is none such."""
        for y, row in enumerate(self.rows):
            for block in row:
                if block.group == group and block.start <= offset < max(block.stop, block.start + 1):
                    return y, block.x + self.label_cells + offset - block.start
        return 0, 0

    def device_at(self, x: int, y: int) -> tuple[int, int] | None:
        """Return group and place of the device nearest to a column of a row; None for an empty row."""
        found: tuple[int, tuple[int, int]] | None = None
        for block in self.rows[y] if 0 <= y < len(self.rows) else ():
            if block.start == block.stop:
                continue
            first = block.x + self.label_cells
            at = min(max(x, first), first + block.stop - block.start - 1)
            if found is None or abs(at - x) < found[0]:
                found = abs(at - x), (block.group, block.start + at - first)
        return None if found is None else found[1]


def arrange_groups(names: Sequence[str], sizes: Sequence[int], width: int) -> FleetLayout:
    """Return where groups stand.

    Args:
        names: What each group is called.
        sizes: Devices of each.
        width: Cells of room.
    """
    label = min(max(map(len, names), default=0), MOST_LABEL_CELLS, max(0, width // 2 - 1))
    label += 1 if label else 0
    most = max(sizes, default=0)
    room = max(1, width - label)
    cells = min(room, max(most, LEAST_BLOCK_CELLS if label else 1))
    columns = max(1, (width + GAP_CELLS) // (label + cells + GAP_CELLS))
    rows: list[tuple[FleetBlock, ...]] = []
    if most > cells:
        for group, size in enumerate(sizes):
            starts = range(0, max(1, size), cells)
            rows += [(FleetBlock(group, start, min(size, start + cells), 0),) for start in starts]
        return FleetLayout(label, cells, tuple(rows))
    step = label + cells + GAP_CELLS
    for first in range(0, len(sizes), columns):
        its = range(first, min(len(sizes), first + columns))
        rows.append(tuple(FleetBlock(group, 0, sizes[group], (group - first) * step) for group in its))
    return FleetLayout(label, cells, tuple(rows))
