"""All devices of a node: how large each can be, and the picture of all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rich.cells import cell_len

from ...engine.history import History
from ...engine.model import DeviceSample
from ...engine.viewer.snapshot import Snapshot
from ..draw.glyphs import Glyphs
from ..draw.numbers import moment_text
from ..draw.spans import Line, Span, fit_line, fit_text
from ..widgets.device_view import DeviceView, SharedWidths, build_views, measure_widths
from .device_graphs import DeviceGraphs, TimeSpan, bucket_length, choose_window
from .device_lines import (
    DETAIL_ROWS,
    MAXIMUM_ROWS,
    MINIMUM_WIDTH,
    ROOM_FOR_HISTORY,
    cell_width,
    choose_columns,
    compact_shape,
    draw_cell,
    draw_compact,
    draw_dots,
    draw_large,
    draw_line,
    fullest,
    large_shape,
    time_axis,
)

# From a panel with its own graph down to a single character.
Density = Literal["large", "compact", "line", "cell", "dot"]

# More devices than this that do not fit are drawn as cells instead of scrolled.
MANY_DEVICES = 16
# Cells by which a MIG instance is indented under its GPU.
INDENT = 2


class Placement(NamedTuple):
    number: int
    density: Density
    x: int
    y: int
    width: int
    height: int
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    placements: tuple[Placement, ...]
    # Rows of everything, which may be more than there is room for.
    height: int
    # Cells at the left of each row of dots for the name of the node.
    node_width: int = 0
    # Row from which the selected device is described in words; None where panels do that.
    detail_y: int | None = None


def arrange(devices: Sequence[DeviceSample], width: int, height: int, node: str = "") -> Layout:
    """Return the largest layout that shows every device; where none does, the smallest, to be scrolled."""
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


def minimum_height(device_count: int, width: int) -> int:
    """Return the rows in which every device is visible."""
    if device_count <= MANY_DEVICES:
        return device_count
    return DETAIL_ROWS + -(-device_count // max(1, width // 12))


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
    """Return density, rows and distance of panels of `rows_each` rows each."""
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
    rows = -(-count // columns)
    placements = tuple(
        Placement(index, density, node_width + index % columns * cell, index // columns, cell, 1)
        for index in range(count)
    )
    return Layout(placements, rows + detail_rows, node_width, rows + 1 if detail_rows else None)


DeviceFilter = Callable[[DeviceSample], bool]

EMPTY = Layout((), 0)
DETAIL = Placement(-1, "compact", 0, 0, 0, 2)


class DevicePicture:
    """Draws a node's devices; caches the drawings so that a device that did not change costs nothing."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self._graphs = DeviceGraphs(glyphs)
        self._drawn: dict[tuple[str, Placement], tuple[tuple[object, ...], list[Line]]] = {}
        self._used: set[tuple[str, Placement]] = set()
        self._history: History | None = None
        self._window_s = 0.0
        self.layout = EMPTY
        # Devices that are shown, in order.
        self.devices: list[DeviceSample] = []

    def draw(
        self,
        snapshot: Snapshot,
        history: History,
        width: int,
        height: int,
        *,
        selected: str | None = None,
        device_filter: DeviceFilter | None = None,
        window_s: float = 600.0,
    ) -> list[Line]:
        """Return the rows of the picture, each exactly `width` cells wide; maybe more than `height`."""
        known = snapshot.sample.devices if snapshot.sample else ()
        node = snapshot.sample.node if snapshot.sample else ""
        self.devices = order_devices(known, device_filter)
        self._used = set()
        self.layout = arrange(self.devices, width, height, node)
        if width <= 0 or height <= 0:
            return []
        if not self.devices:
            hint: Line = [Span(" no device matches the filter", "muted")] if known else []
            return [self._fit(hint, width)]
        views = build_views(snapshot, self.devices, history, selected)
        rows = self._rows(self._painter(snapshot, history, views, window_s), views, width, node)
        self._drawn = {key: drawn for key, drawn in self._drawn.items() if key in self._used}
        self._graphs.keep({device.uuid for device in self.devices})
        return rows

    def _painter(
        self, snapshot: Snapshot, history: History, views: list[DeviceView], window_s: float
    ) -> "_Painter":
        """Collect what the drawings of a snapshot's devices share; they all show the same time."""
        sample = snapshot.sample
        now_s = sample.time_s if sample else 0.0
        if history is not self._history:
            self._history = history
            self._window_s = 0.0
        is_live = sample is None or sample.clock == "wall"
        is_replay = sample is not None and snapshot.replay is not None
        # The oldest tick of a window that is full is not searched again: it can only get older.
        if self._window_s < window_s:
            seen_s = max((history.span_s(view.device.uuid) for view in views), default=0.0)
            self._window_s = choose_window(seen_s, window_s, is_live=is_live, shown_s=self._window_s)
        return _Painter(
            glyphs=self._glyphs,
            graphs=self._graphs,
            history=history,
            span=TimeSpan(
                now_s,
                min(self._window_s, window_s),
                sample.interval_s if sample else 1.0,
                is_live,
                moment_text(now_s, sample.clock) if sample is not None and is_replay else None,
            ),
            widths=measure_widths(views),
        )

    def device_at(self, x: int, y: int) -> str | None:
        """Return the UUID of the device that is drawn at a cell."""
        for place in self.layout.placements:
            if place.x <= x < place.x + place.width and place.y <= y < place.y + place.height:
                return self.devices[place.number].uuid
        return None

    def place_of(self, uuid: str | None) -> Placement | None:
        for place in self.layout.placements:
            if self.devices[place.number].uuid == uuid:
                return place
        return None

    def neighbor(self, uuid: str | None, across: int, down: int) -> str | None:
        """Return the device next to another; the same one at the edge, the first for None.

        `across` counts to the right and `down` downwards; negative ones go the other way.
        """
        here = self.place_of(uuid)
        if here is None:
            return self.devices[0].uuid if self.devices else None
        places = self.layout.placements
        if down:
            column = sorted((p.y, p.number) for p in places if p.x == here.x)
            at = column.index((here.y, here.number))
            return self.devices[column[min(len(column) - 1, max(0, at + down))][1]].uuid
        row = sorted((p.x, p.number) for p in places if p.y == here.y)
        at = row.index((here.x, here.number))
        return self.devices[row[min(len(row) - 1, max(0, at + across))][1]].uuid

    def _rows(self, painter: "_Painter", views: list[DeviceView], width: int, node: str) -> list[Line]:
        """Return every row, put together from the pieces of its devices."""
        pieces: list[list[tuple[int, int, Line]]] = [[] for _ in range(self.layout.height)]
        dots = [place for place in self.layout.placements if place.density == "dot"]
        for place in self.layout.placements:
            if place.density != "dot":
                for number, line in enumerate(self._paint(painter, views[place.number], place)):
                    pieces[place.y + number].append((place.x, place.width, line))
        for y in sorted({place.y for place in dots}):
            row = [views[place.number] for place in dots if place.y == y]
            label = fit_text(node if y == 0 else "", self.layout.node_width - 1, self._glyphs.ellipsis)
            pieces[y].append((0, width, [Span(label + " ", "muted"), *draw_dots(row, self._glyphs)]))
        if self.layout.detail_y is not None:
            view = next((view for view in views if view.is_selected), None) or fullest(views)
            detail = DETAIL._replace(y=self.layout.detail_y, width=width)
            for number, line in enumerate(self._paint(painter, view, detail)):
                pieces[detail.y + number].append((0, width, line))
        return [self._compose(row, width) for row in pieces]

    def _compose(self, row: list[tuple[int, int, Line]], width: int) -> Line:
        if len(row) == 1 and row[0][0] == 0:
            return self._fit(row[0][2], width)
        line: Line = []
        at = 0
        for x, piece_width, piece in row:
            if x > at:
                line.append(Span(" " * (x - at)))
            line += self._fit(piece, piece_width)
            at = x + piece_width
        return self._fit(line, width)

    def _fit(self, line: Line, width: int) -> Line:
        return fit_line(
            line,
            width,
            is_ascii=self._glyphs.unmeasured.isascii(),
            ellipsis=self._glyphs.ellipsis if width > 1 else "",
        )

    def _paint(self, painter: "_Painter", view: DeviceView, place: Placement) -> list[Line]:
        """Return the lines of one device, redrawn only where something in them changed."""
        graph = painter.graph(view, place)
        key: tuple[object, ...] = (view, painter.widths, painter.span.window_s, place)
        slot = (view.device.uuid, place)
        self._used.add(slot)
        drawn = self._drawn.get(slot)
        if drawn is not None and drawn[0][-1] is graph and drawn[0][:-1] == key:
            return drawn[1]
        lines = painter.paint(view, place, graph)
        self._drawn[slot] = ((*key, graph), lines)
        return lines


@dataclass(frozen=True)
class _Painter:
    glyphs: Glyphs
    graphs: DeviceGraphs
    history: History
    span: TimeSpan
    widths: SharedWidths

    def graph(self, view: DeviceView, place: Placement) -> list[Line]:
        """Return the history of a device in the shape of its place."""
        return self.graphs.draw(self.history, view, self._shape(place), self.span)

    def paint(self, view: DeviceView, place: Placement, graph: list[Line]) -> list[Line]:
        if place.density == "large":
            cells = self._shape(place)[0]
            span_s = 2 * cells * bucket_length(self.span.window_s, max(1, cells), self.span.interval_s)
            axis = time_axis(cells, span_s, self.glyphs, self.span.moment)
            return draw_large(
                view, self.widths, graph, place.width, place.height, axis=axis, glyphs=self.glyphs
            )
        if place.density == "compact":
            return draw_compact(view, self.widths, graph, place.width, place.height, glyphs=self.glyphs)
        if place.density == "cell":
            return [draw_cell(view, self.widths, self.glyphs)]
        columns = choose_columns(place.width, self.widths)
        row = graph[0] if graph else []
        return [draw_line(view, self.widths, columns, row, glyphs=self.glyphs, indent=place.indent)]

    def _shape(self, place: Placement) -> tuple[int, int]:
        """Return the cells and rows of the graph in a place."""
        if place.density == "large":
            return large_shape(place.width, place.height, self.widths)
        if place.density == "compact":
            return compact_shape(place.width, place.height, self.widths)
        if place.density == "line":
            return choose_columns(place.width, self.widths).graph - 2, 1
        return 0, 0


def order_devices(
    devices: Sequence[DeviceSample], device_filter: DeviceFilter | None = None
) -> list[DeviceSample]:
    """Return the devices to show, MIG instances right after their GPU."""
    shown = [device for device in devices if device_filter is None or device_filter(device)]
    uuids = {device.uuid for device in shown}
    ordered: list[DeviceSample] = []
    for device in shown:
        if device.parent_uuid not in uuids:
            ordered.append(device)
            ordered += [child for child in shown if child.parent_uuid == device.uuid]
    return ordered
