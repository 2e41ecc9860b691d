"""Where each device stands and how large it is drawn, from the room and the number of devices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rich.cells import cell_len

from ...engine.model import DeviceSample
from .device_compact import MAXIMUM_ROWS, ROOM_FOR_HISTORY
from .device_grid import DETAIL_ROWS, cell_width
from .device_line import MINIMUM_WIDTH

Density = Literal["large", "compact", "line", "cell", "dot"]
"""From a panel with its own graph down to a single character."""

MANY_DEVICES = 16
"""Beyond this, devices that do not fit are drawn as cells instead of scrolled."""
INDENT = 2
"""Cells by which a MIG instance stands in under its GPU."""


class Placement(NamedTuple):
    """The rectangle of one device."""

    number: int
    """Place of the device in the list."""
    density: Density
    x: int
    y: int
    width: int
    height: int
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """All devices in their places."""

    placements: tuple[Placement, ...]
    height: int
    """Rows of everything, which may be more than there is room for."""
    node_width: int = 0
    """Cells at the left of each row of dots that name the node."""
    detail_y: int | None = None
    """Row from which the selected device is shown in words; None where panels do that."""


def arrange(devices: Sequence[DeviceSample], width: int, height: int, node: str = "") -> Layout:
    """Return the largest layout that shows every device; where none does, the smallest, to be scrolled.

    Args:
        devices: The devices in order, MIG instances right after their GPU.
        width: Cells of room.
        height: Rows of room.
        node: Name of the node, which heads its row of dots.
    """
    if not devices or width <= 0:
        return Layout((), 0)
    shown = {device.uuid for device in devices}
    is_child = [device.parent_uuid in shown for device in devices]
    parents = len(devices) - sum(is_child)
    rows_each = (height - sum(is_child)) // parents if parents else 0
    if rows_each >= 2:
        return _stack(is_child, width, rows_each)
    if len(devices) <= height:
        return _stack(is_child, width, 1)
    is_few = len(devices) <= MANY_DEVICES
    found = _grid(devices, is_child, width, height, node, detail_rows=0 if is_few else DETAIL_ROWS)
    return found if found.height <= height or not is_few else _stack(is_child, width, 1)


def _stack(is_child: Sequence[bool], width: int, rows_each: int) -> Layout:
    """Return devices one below the other, MIG instances as single rows under their GPU."""
    density, rows, pitch = _panel(width, rows_each)
    placements: list[Placement] = []
    y = 0
    for index, child in enumerate(is_child):
        if child:
            y -= pitch - rows if not is_child[index - 1] else 0
            placements.append(Placement(index, "line", 0, y, width, 1, INDENT))
            last = index + 1 == len(is_child) or not is_child[index + 1]
            y += 1 + (pitch - rows if last else 0)
        else:
            placements.append(Placement(index, density, 0, y, width, rows))
            y += pitch
    return Layout(tuple(placements), y - (pitch - rows))


def _panel(width: int, rows_each: int) -> tuple[Density, int, int]:
    """Return density, rows and distance of panels for which there are `rows_each` rows each."""
    if rows_each == 1:
        return "line", 1, 1
    is_narrow = width < ROOM_FOR_HISTORY
    if rows_each >= (6 if is_narrow else 7):
        return "large", rows_each - 1, rows_each
    rows = rows_each if rows_each <= 3 else rows_each - 1
    rows = min(rows, MAXIMUM_ROWS)
    return "compact", rows, min(rows_each, rows + 1)


def _grid(
    devices: Sequence[DeviceSample],
    is_child: Sequence[bool],
    width: int,
    height: int,
    node: str,
    *,
    detail_rows: int,
) -> Layout:
    """Return devices in columns of rows, in cells, or in dots, whichever is the largest that fits."""
    room = height - detail_rows
    label_width = max(cell_len(device.label) for device in devices)
    columns = -(-len(devices) // room) if room > 0 else len(devices)
    if columns * (MINIMUM_WIDTH + 4) <= width:
        return _columns_of_lines(is_child, width, columns, -(-len(devices) // columns), detail_rows)
    cell = cell_width(label_width)
    columns = max(1, width // cell)
    rows = -(-len(devices) // columns)
    if rows <= room:
        return _cells(len(devices), "cell", columns, cell, 0, detail_rows)
    node_width = min(cell_len(node), width // 3) + 1 if node else 0
    return _cells(len(devices), "dot", max(1, width - node_width), 1, node_width, detail_rows)


def _columns_of_lines(
    is_child: Sequence[bool], width: int, columns: int, rows: int, detail_rows: int
) -> Layout:
    """Return single rows in several columns, read downwards."""
    pitch = width // columns
    placements = tuple(
        Placement(
            index,
            "line",
            index // rows * pitch,
            index % rows,
            pitch - (2 if columns > 1 else 0),
            1,
            INDENT if child else 0,
        )
        for index, child in enumerate(is_child)
    )
    return Layout(placements, rows + detail_rows, detail_y=rows + 1 if detail_rows else None)


def _cells(
    count: int, density: Density, columns: int, cell: int, node_width: int, detail_rows: int
) -> Layout:
    """Return cells of one width in rows, read to the right."""
    rows = -(-count // columns)
    placements = tuple(
        Placement(index, density, node_width + index % columns * cell, index // columns, cell, 1)
        for index in range(count)
    )
    return Layout(placements, rows + detail_rows, node_width, rows + 1 if detail_rows else None)
