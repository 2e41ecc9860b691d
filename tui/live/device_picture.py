"""All devices of a node: how large each can be, and the picture of all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from rich.cells import cell_len

from ...engine.history import History
from ...engine.model import DeviceSample
from ...engine.viewer.snapshot import Snapshot
from ..draw.glyphs import Glyphs
from ..draw.numbers import moment_text
from ..draw.spans import Line, Span, fit_line, fit_text
from ..widgets.device_view import DeviceView, FullnessLevels, SharedWidths, build_views, measure_widths
from .device_graphs import (
    CHART_GAP,
    CHART_NAMES,
    Chart,
    ChartChoice,
    DeviceGraphs,
    Shape,
    TimeSpan,
    share_area,
)
from .device_lines import (
    DETAIL_ROWS,
    MAXIMUM_ROWS,
    MINIMUM_WIDTH,
    OWN_AXIS_ROWS,
    ROOM_FOR_HISTORY,
    add_scale,
    cell_width,
    choose_columns,
    compact_shape,
    draw_cell,
    draw_dots,
    draw_header,
    draw_large,
    draw_line,
    draw_memory,
    draw_surround,
    facts_width,
    fullest,
    large_shape,
    read_all_but_memory,
    without_memory,
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
    # Whether the first row names the columns of the others.
    has_header: bool = False
    # Row of the time axis of panels, or of the device that is described; None where there is none.
    axis_y: int | None = None


def arrange(devices: Sequence[DeviceSample], width: int, height: int, node: str = "") -> Layout:
    """Return the largest layout that shows every device; where none does, the smallest, to be scrolled."""
    if not devices or width <= 0:
        return Layout((), 0)
    shown = {device.uuid for device in devices}
    is_child = [device.parent_uuid in shown for device in devices]
    parents = len(devices) - sum(is_child)
    rows_each = (height - sum(is_child)) // parents if parents else 0
    if rows_each >= 2:
        return _stack(is_child, width, rows_each, height)
    if len(devices) <= height:
        return _stack(is_child, width, 1, height)
    is_few = len(devices) <= MANY_DEVICES
    found = _grid(devices, is_child, width, height, node, detail_rows=0 if is_few else DETAIL_ROWS)
    return found if found.height <= height or not is_few else _stack(is_child, width, 1, height)


def minimum_height(device_count: int, width: int) -> int:
    """Return the rows in which every device is visible."""
    if device_count <= MANY_DEVICES:
        return device_count
    return DETAIL_ROWS + -(-device_count // max(1, width // 12))


def _stack(is_child: Sequence[bool], width: int, rows_each: int, height: int) -> Layout:
    """Return devices one below the other, MIG instances as single rows under their GPU.

    A row that is left is a header of single rows, or a time axis below panels.
    """
    density, rows, pitch = _panel(width, rows_each)
    has_header = density == "line" and len(is_child) < height
    placements: list[Placement] = []
    y = 1 if has_header else 0
    for index, child in enumerate(is_child):
        if child:
            y -= pitch - rows if not is_child[index - 1] else 0
            placements.append(Placement(index, "line", 0, y, width, 1, INDENT))
            last = index + 1 == len(is_child) or not is_child[index + 1]
            y += 1 + (pitch - rows if last else 0)
        else:
            placements.append(Placement(index, density, 0, y, width, rows))
            y += pitch
    y -= pitch - rows
    if density == "line" or y >= height or not _has_shared_axis(density, rows, width):
        return Layout(tuple(placements), y, has_header=has_header)
    return Layout(tuple(placements), y + 1, axis_y=y)


def _has_shared_axis(density: Density, rows: int, width: int) -> bool:
    """Return whether panels have graphs, and no room for an axis each."""
    return rows < OWN_AXIS_ROWS if density == "large" else width >= ROOM_FOR_HISTORY


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
    for header_rows in (1, 0):
        columns = -(-len(devices) // (room - header_rows)) if room > header_rows else len(devices)
        if columns * (MINIMUM_WIDTH + 4) <= width:
            rows = -(-len(devices) // columns)
            return _columns_of_lines(is_child, width, columns, rows, detail_rows, header_rows)
    cell = cell_width(label_width)
    columns = max(1, width // cell)
    rows = -(-len(devices) // columns)
    if rows <= room:
        return _cells(len(devices), "cell", columns, cell, 0, detail_rows)
    node_width = min(cell_len(node), width // 3) + 1 if node else 0
    return _cells(len(devices), "dot", max(1, width - node_width), 1, node_width, detail_rows)


def _columns_of_lines(
    is_child: Sequence[bool], width: int, columns: int, rows: int, detail_rows: int, header_rows: int
) -> Layout:
    """Return single rows in several columns, read downwards, under a header where there is a row for it."""
    pitch = width // columns
    placements = tuple(
        Placement(
            index,
            "line",
            index // rows * pitch,
            header_rows + index % rows,
            pitch - (2 if columns > 1 else 0),
            1,
            INDENT if child else 0,
        )
        for index, child in enumerate(is_child)
    )
    rows += header_rows
    return Layout(
        placements,
        rows + detail_rows,
        detail_y=rows + 1 if detail_rows else None,
        has_header=header_rows > 0,
        axis_y=_find_detail_axis(rows, width, detail_rows),
    )


def _cells(
    count: int, density: Density, columns: int, cell: int, node_width: int, detail_rows: int
) -> Layout:
    rows = -(-count // columns)
    placements = tuple(
        Placement(index, density, node_width + index % columns * cell, index // columns, cell, 1)
        for index in range(count)
    )
    axis_y = _find_detail_axis(rows, node_width + columns * cell, detail_rows)
    return Layout(
        placements, rows + detail_rows, node_width, rows + 1 if detail_rows else None, axis_y=axis_y
    )


def _find_detail_axis(rows: int, width: int, detail_rows: int) -> int | None:
    """Return the row of the time axis over the graph of the described device: the one that sets it apart."""
    return rows if detail_rows and width >= ROOM_FOR_HISTORY else None


DeviceFilter = Callable[[DeviceSample], bool]

EMPTY = Layout((), 0)
DETAIL = Placement(-1, "compact", 0, 0, 0, 2)


class DevicePicture:
    """Draws a node's devices; caches the drawings so that a device that did not change costs nothing."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self._graphs = DeviceGraphs(glyphs)
        self._levels = FullnessLevels()
        self._drawn: dict[tuple[str, Placement], _Drawn] = {}
        self._used: set[tuple[str, Placement]] = set()
        # Of each row its pieces, and the line that they make.
        self._composed: dict[int, tuple[list[_Piece], Line]] = {}
        self._width = 0
        # What drew the devices last.
        self._shown: _Painter | None = None
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
        choice: ChartChoice = "memory",
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
        views = build_views(snapshot, self.devices, history, selected, self._levels)
        painter = self._painter(snapshot, history, views, window_s, choice)
        rows = self._rows(painter, views, width, node)
        self._drawn = {key: drawn for key, drawn in self._drawn.items() if key in self._used}
        self._graphs.forget_unused()
        self._levels.keep({device.uuid for device in known})
        self._shown = painter
        return rows

    @property
    def has_room_for_both(self) -> bool:
        """Whether there is room for two graphs of a device."""
        shown = self._shown
        return shown is not None and any(
            len(share_area(shown.shape(place), "both", is_stacked=place.density == "large")) > 1
            for place in self.layout.placements
        )

    def _painter(
        self,
        snapshot: Snapshot,
        history: History,
        views: list[DeviceView],
        window_s: float,
        choice: ChartChoice,
    ) -> "_Painter":
        """Collect what the drawings of a snapshot's devices share; they all show the same time."""
        sample = snapshot.sample
        now_s = sample.time_s if sample else 0.0
        is_replay = sample is not None and snapshot.replay is not None
        widths = measure_widths(views)
        return _Painter(
            glyphs=self._glyphs,
            graphs=self._graphs,
            history=history,
            span=TimeSpan(
                now_s,
                window_s,
                sample.interval_s if sample else 1.0,
                sample is None or sample.clock == "wall",
                moment_text(now_s, sample.clock) if sample is not None and is_replay else None,
                tuple(view.device.uuid for view in views),
                sample.clock if sample else "wall",
            ),
            widths=widths,
            choice=choice if widths.has_metrics else "memory",
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
        pieces: list[list[_Piece]] = [[] for _ in range(self.layout.height)]
        dots = [place for place in self.layout.placements if place.density == "dot"]
        for place in self.layout.placements:
            if place.density != "dot":
                for number, line in enumerate(self._paint(painter, views[place.number], place)):
                    pieces[place.y + number].append(_Piece(place.x, place.width, line, is_fitted=True))
        for y in sorted({place.y for place in dots}):
            row = [views[place.number] for place in dots if place.y == y]
            label = fit_text(node if y == 0 else "", self.layout.node_width - 1, self._glyphs.ellipsis)
            line = [Span(label + " ", "muted"), *draw_dots(row, self._glyphs)]
            pieces[y].append(_Piece(0, width, line))
        if self.layout.detail_y is not None:
            view = next((view for view in views if view.is_selected), None) or fullest(views)
            detail = DETAIL._replace(y=self.layout.detail_y, width=width)
            for number, line in enumerate(self._paint(painter, view, detail)):
                pieces[detail.y + number].append(_Piece(0, width, line, is_fitted=True))
        first = self.layout.placements[0]
        if self.layout.has_header:
            header = painter.draw_header(first)
            at = {place.x: place.width for place in self.layout.placements}
            pieces[0] += [_Piece(x, cells, header) for x, cells in sorted(at.items())]
        if self.layout.axis_y is not None:
            panels = (it for it in self.layout.placements if it.density in ("large", "compact"))
            place = next(panels, DETAIL._replace(width=width))
            pieces[self.layout.axis_y].append(_Piece(0, width, painter.draw_shared_axis(place)))
        if width != self._width:
            self._width = width
            self._composed.clear()
        known = self._composed
        self._composed = {}
        for y, parts in enumerate(pieces):
            before, line = known.get(y, (None, []))
            if before != parts:  # quick: what was not drawn again is the same object
                line = self._compose(parts, width)
            self._composed[y] = parts, line
        return [line for _, line in self._composed.values()]

    def _compose(self, row: "Sequence[_Piece]", width: int) -> Line:
        if len(row) == 1 and row[0].is_fitted and row[0].width == width:
            return row[0].line
        line: Line = []
        at = 0
        for piece in row:
            if piece.x > at:
                line.append(Span(" " * (piece.x - at)))
            line += piece.line if piece.is_fitted else self._fit(piece.line, piece.width)
            at = piece.x + piece.width
        if at < width:
            line.append(Span(" " * (width - at)))
        return line

    def _fit(self, line: Line, width: int) -> Line:
        return fit_line(
            line,
            width,
            is_ascii=self._glyphs.unmeasured.isascii(),
        )

    def _paint(self, painter: "_Painter", view: DeviceView, place: Placement) -> list[Line]:
        """Return the lines of one device, redrawn only where something in them changed."""
        graphs = painter.draw_graphs(view, place)
        key = (view, painter.widths, place, self.layout.has_header, painter.draw_own_axis(place))
        slot = (view.device.uuid, place)
        self._used.add(slot)
        drawn = self._drawn.get(slot)
        if (
            drawn is not None
            and len(drawn.graphs) == len(graphs)
            and all(old is new for (_, old), (_, new) in zip(drawn.graphs, graphs, strict=True))
            and drawn.key == key
        ):
            return drawn.lines
        if place.density == "compact":
            self._drawn[slot] = painter.paint_compact(view, place, graphs, key, drawn)
        else:
            lines = painter.paint(view, place, graphs, has_header=self.layout.has_header)
            self._drawn[slot] = _Drawn(key, graphs, [self._fit(line, place.width) for line in lines])
        return self._drawn[slot].lines


_Graphs = list[tuple[Chart, list[Line]]]


class _Piece(NamedTuple):
    """Part of a row."""

    x: int
    # Cells from there on.
    width: int
    line: Line
    # Whether the line has exactly these cells, and only characters that the terminal can show.
    is_fitted: bool = False


class _Drawn(NamedTuple):
    key: tuple[object, ...]
    graphs: _Graphs
    lines: list[Line]
    # In a panel: of what was drawn around the memory, that, and all of what is next to the graph.
    surround_key: tuple[object, ...] = ()
    surround: Sequence[Line] = ()
    left: Sequence[Line] = ()


@dataclass(frozen=True)
class _Painter:
    glyphs: Glyphs
    graphs: DeviceGraphs
    history: History
    span: TimeSpan
    widths: SharedWidths
    choice: ChartChoice

    def draw_graphs(self, view: DeviceView, place: Placement) -> _Graphs:
        """Return the graphs of a device that fit into its place."""
        return [
            (chart, self.graphs.draw(self.history, view, shape, self.span, chart))
            for chart, shape in self._areas(place)
        ]

    def paint(self, view: DeviceView, place: Placement, graphs: _Graphs, *, has_header: bool) -> list[Line]:
        if place.density == "large":
            rows = [
                row
                for chart, graph in graphs
                for row in add_scale(graph, view, self.glyphs, is_utilization=chart == "utilization")
            ]
            axis = self.draw_own_axis(place)
            return draw_large(
                view, self.widths, rows, place.width, place.height, axis=axis, glyphs=self.glyphs
            )
        if place.density == "cell":
            return [draw_cell(view, self.widths, self.glyphs)]
        graph = _put_side_by_side([graph for _, graph in graphs if graph])
        columns = choose_columns(place.width, self.widths)
        row = graph[0] if graph else []
        return [
            draw_line(
                view,
                self.widths,
                columns,
                row,
                glyphs=self.glyphs,
                indent=place.indent,
                has_header=has_header,
            )
        ]

    def paint_compact(
        self,
        view: DeviceView,
        place: Placement,
        graphs: _Graphs,
        key: tuple[object, ...],
        before: "_Drawn | None",
    ) -> "_Drawn":
        """Draw a panel; lines that are as they were before stay the same objects.

        Args:
            key: Of the new drawing.
            before: The last drawing of the device in this place.
        """
        surround_key = (read_all_but_memory(view), self.widths)
        if before is not None and before.surround_key == surround_key:
            surround = before.surround
        else:
            alike = without_memory(view)
            surround = draw_surround(alike, self.widths, place.width, place.height, glyphs=self.glyphs)
        memory = draw_memory(view, self.widths, place.width, place.height, glyphs=self.glyphs)
        left = [surround[0], memory, *surround[1:]][: place.height]
        graph = _put_side_by_side([graph for _, graph in graphs if graph])
        if not graph:
            return _Drawn(key, graphs, left, surround_key, surround, left)
        cells = self.shape(place)[0]
        edge = Span(" " * (place.width - facts_width(place.width, place.height, self.widths) - cells - 2))
        lines: list[Line] = []
        old = () if before is None else before.left
        old_graph = () if before is None else _put_side_by_side([it for _, it in before.graphs if it])
        for row, (facts, history) in enumerate(zip(left, graph, strict=False)):
            is_same = row < len(old) and row < len(old_graph)
            if is_same and before is not None and facts is old[row] and history is old_graph[row]:
                lines.append(before.lines[row])
            else:
                lines.append([*facts, Span("  "), *history, edge])
        return _Drawn(key, graphs, lines, surround_key, surround, left)

    def draw_header(self, place: Placement) -> Line:
        columns = choose_columns(place.width, self.widths)
        return draw_header(self.widths, columns, self._draw_axes(place), self.glyphs)

    def draw_shared_axis(self, place: Placement) -> Line:
        """Return the time axis of all graphs that are as wide as those of a place, in their column."""
        cells = self.shape(place)[0]
        before = 2 if place.density == "large" else place.width - cells - 1
        return [Span(" " * before), *self._draw_axes(place)] if cells > 0 else []

    def draw_own_axis(self, place: Placement) -> Line:
        return self._draw_axes(place) if place.density == "large" and place.height >= OWN_AXIS_ROWS else []

    def _draw_axes(self, place: Placement) -> Line:
        """Return the time axes of the graphs of a place, with their names where it is not memory alone."""
        axes: list[Line] = []
        is_stacked = place.density == "large"
        areas = self._areas(place)
        for chart, (cells, _) in areas[:1] if is_stacked else areas:
            if cells <= 0:
                continue
            name = "" if self.choice == "memory" or (is_stacked and len(areas) > 1) else CHART_NAMES[chart]
            axes.append(self.graphs.draw_axis(self.history, cells, self.span, name))
        return [span for line in _put_side_by_side([[axis] for axis in axes]) for span in line]

    def _areas(self, place: Placement) -> list[tuple[Chart, Shape]]:
        return share_area(self.shape(place), self.choice, is_stacked=place.density == "large")

    def shape(self, place: Placement) -> Shape:
        """Return the cells and rows of the graphs in a place."""
        return _find_shape(place.density, place.width, place.height, self.widths)


@lru_cache(maxsize=16)  # the same for nearly all devices, at every tick
def _find_shape(density: Density, width: int, height: int, widths: SharedWidths) -> Shape:
    if density == "large":
        return large_shape(width, height, widths)
    if density == "compact":
        return compact_shape(width, height, widths)
    if density == "line":
        return choose_columns(width, widths).graph - 2, 1
    return 0, 0


def _put_side_by_side(graphs: Sequence[list[Line]]) -> list[Line]:
    """Return graphs of the same rows next to each other."""
    if len(graphs) < 2:
        return graphs[0] if graphs else []
    gap = Span(" " * CHART_GAP)
    return [[*left, gap, *right] for left, right in zip(*graphs, strict=True)]


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
