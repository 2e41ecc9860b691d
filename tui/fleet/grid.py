"""The grid of a fleet: what the user chose, the places of devices, how they are drawn, and the cursor."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...analyzers.fleet.model import FleetDevice, FleetGroup, FleetNode, FleetSort, Grouping
from ...analyzers.risk import LEVELS
from ...analyzers.trend_words import grade_trend
from ..draw.bars import level_glyph
from ..draw.glyphs import Glyphs
from ..draw.numbers import brief_span_text
from ..draw.spans import Line, Role, Span, fit_line, fit_text, shorten_middle
from ..frame import keys
from ..frame.theme import find_looks, to_strip
from ..widgets.line_page import MarkingWidget

# What a cell shows of a device that is not at risk: how full it is, or its level of risk.
CellFigure = Literal["used", "risk"]


@dataclass
class FleetView:
    """What the user chose."""

    grouping: Grouping = "node"
    sort: FleetSort = "risk"
    filter_text: str = ""
    figure: CellFigure = "used"
    # Key of the device under the cursor; None lets the cursor follow the device most at risk.
    selected: tuple[str, str] | None = None


MOST_LABEL_CELLS = 20
# Least cells of a group, so that the words for a lost node have room.
LEAST_BLOCK_CELLS = 10
GAP_CELLS = 2


class FleetBlock(NamedTuple):
    """A run of cells of one group in one row."""

    group: int
    start: int
    stop: int
    # Column of its label, also where the label is left out.
    x: int


class FleetLayout(NamedTuple):
    """Rows of blocks, top to bottom."""

    # Cells of a label with its blank; 0 without labels.
    label_cells: int
    # Cells of the devices of a block.
    block_cells: int
    rows: tuple[tuple[FleetBlock, ...], ...]

    def find(self, group: int, offset: int) -> tuple[int, int]:
        """Return the row and column of a device; (0, 0) where there is no such device."""
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
    """Return the places of groups; `sizes` are the devices of each."""
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


_IN_DANGER = frozenset(LEVELS[LEVELS.index("medium") :])


def mark_risk(device: FleetDevice, glyphs: Glyphs) -> tuple[str, Role]:
    """Return the glyph of the risk of a device; where that is unknown, of how used memory goes."""
    if device.trend is None:
        return glyphs.risk(device.level), device.level
    return glyphs.trends[device.trend], grade_trend(device.trend) or device.level


def draw_cell(device: FleetDevice, figure: CellFigure, glyphs: Glyphs) -> tuple[str, Role]:
    """Return a device as one cell: its trouble, else how full it is or its level of risk."""
    if device.state == "lost":
        return glyphs.lost, "critical"
    if device.level in _IN_DANGER:
        return glyphs.risk(device.level), device.level
    if device.is_old:
        return glyphs.stale, "medium"
    if figure == "risk":
        return mark_risk(device, glyphs)
    share = device.used_share
    if share is None:
        return glyphs.unmeasured, "muted"
    return level_glyph(share, glyphs), "unknown" if device.level == "unknown" else "fill"


def draw_row(
    blocks: Sequence[FleetBlock],
    layout: FleetLayout,
    groups: Sequence[FleetGroup],
    lost: Mapping[str, str],
    cursor: tuple[int, int] | None,
    figure: CellFigure,
    cells: "DrawnCells",
) -> Line:
    """Return a row of the grid.

    `lost` has words in place of the cells of lost nodes; `cursor` is the group and place under the cursor.
    """
    line: Line = []
    x = 0
    glyphs = cells.glyphs
    for block in blocks:
        group = groups[block.group]
        if block.x > x:
            line.append(Span(" " * (block.x - x)))
        at = cursor[1] if cursor is not None and cursor[0] == block.group else None
        is_chosen = at is not None and block.start <= at < max(block.stop, block.start + 1)
        line += _draw_label(group, block, layout, glyphs, is_chosen=is_chosen)
        words = lost.get(group.node) if group.node is not None else None
        if words is None:
            line += cells.draw(group, block, at, figure)
            x = block.x + layout.label_cells + block.stop - block.start
        else:
            room = layout.block_cells
            line.append(Span(fit_text(words, room, glyphs.ellipsis), "medium" if at is None else "cursor"))
            x = block.x + layout.label_cells + room
    return line


def _draw_label(
    group: FleetGroup, block: FleetBlock, layout: FleetLayout, glyphs: Glyphs, *, is_chosen: bool
) -> Line:
    """Return the name of a group before its first cells; an edge marks the cursor's block."""
    if not layout.label_cells:
        return []
    name = "" if block.start else group.name
    room = layout.label_cells - 1
    name = fit_text(shorten_middle(name, room, glyphs.ellipsis), room, glyphs.ellipsis)
    return (
        [Span(name, "strong"), Span(glyphs.selected, "accent")] if is_chosen else [Span(f"{name} ", "muted")]
    )


class DrawnCells:
    """Draws the cells of groups; only groups with a changed device are drawn again."""

    def __init__(self, glyphs: Glyphs) -> None:
        self.glyphs = glyphs
        self._drawn: dict[tuple[str, int, int], tuple[tuple[FleetDevice, ...], CellFigure, Line]] = {}

    def draw(self, group: FleetGroup, block: FleetBlock, at: int | None, figure: CellFigure) -> Line:
        """Return the cells of a block, neighbours of one look as one span; `at` is the cursor's place, if
        any.
        """
        if at is not None:
            return self._draw(group, block, at, figure)
        key = group.name, block.start, block.stop
        known = self._drawn.get(key)
        if known is None or known[0] is not group.devices or known[1] != figure:
            known = self._drawn[key] = group.devices, figure, self._draw(group, block, None, figure)
        return known[2]

    def keep(self, names: Collection[str]) -> None:
        self._drawn = {key: it for key, it in self._drawn.items() if key[0] in names}

    def _draw(self, group: FleetGroup, block: FleetBlock, at: int | None, figure: CellFigure) -> Line:
        line: Line = []
        run: str = ""
        look: Role = "cursor"
        for place in range(block.start, block.stop):
            glyph, role = draw_cell(group.devices[place], figure, self.glyphs)
            role = "cursor" if place == at else role
            if role != look and run:
                line.append(Span(run, look))
                run = ""
            run = run + glyph
            look = role
        if run:
            line.append(Span(run, look))
        return line


def describe_silence(node: FleetNode, waited_s: float, room: int) -> str:
    """Return the words in place of the cells of a lost node, as long as `room` cells allow.

    `waited_s` is the seconds since the node's silence was last updated.
    """
    if node.silent_s is None:
        return "lost"
    age = brief_span_text(node.silent_s + waited_s)
    return f"lost {age}" if len(age) + 5 <= room else age


_NOTHING = FleetLayout(0, 0, ())
# Returns the words for lost nodes, for cells of room.
DescribeLost = Callable[[int], Mapping[str, str]]


class FleetGrid(ScrollView, MarkingWidget, can_focus=True):
    """Draws groups of devices and moves a cursor over them."""

    BINDINGS = [*keys.FLEET_GRID]
    DEFAULT_CSS = """
    FleetGrid { height: 1fr; width: 1fr; padding: 0 1; overflow-x: hidden; scrollbar-size-vertical: 1; }
    """

    class Moved(Message):
        pass

    class Opened(Message):
        """The device under the cursor is to be shown."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._cells = DrawnCells(self.glyphs)
        self._groups: Sequence[FleetGroup] = ()
        self._absence = ""
        self._figure: CellFigure = "used"
        self._describe_lost: DescribeLost = lambda _: {}
        self._layout = _NOTHING
        self._arranged_for: tuple[object, ...] = ()
        self._cursor: tuple[int, int] | None = None
        self._drawn: dict[int, Line] = {}
        self._strips: dict[int, Strip] = {}
        self._looks: dict[Role, Style] = {}

    @property
    def groups(self) -> Sequence[FleetGroup]:
        return self._groups

    @property
    def current(self) -> FleetDevice | None:
        return None if self._cursor is None else self._groups[self._cursor[0]].devices[self._cursor[1]]

    @property
    def row_count(self) -> int:
        return len(self._layout.rows)

    def show(
        self,
        groups: Sequence[FleetGroup],
        selected: tuple[str, str] | None,
        figure: CellFigure,
        describe_lost: DescribeLost,
        absence: str,
    ) -> None:
        """Draw groups, with the cursor on the device with the key `selected`, else on the first.

        `describe_lost` gives the words for lost nodes, `absence` those for a grid without groups.
        """
        self._groups = groups
        self._figure = figure
        self._absence = absence
        self._describe_lost = describe_lost
        self._cursor = self._find(selected)
        self._draw()

    def _find(self, selected: tuple[str, str] | None) -> tuple[int, int] | None:
        if self._cursor is not None and self._cursor[0] < len(self._groups):
            group, place = self._cursor
            # The cursor's own place first: most draws change no device.
            its = self._groups[group].devices
            if place < len(its) and its[place].key == selected:
                return self._cursor
        first = None
        for number, group_of in enumerate(self._groups):
            for place, device in enumerate(group_of.devices):
                if device.key == selected:
                    return number, place
                first = first or (number, place)
        return first

    def _draw(self) -> None:
        width = self.scrollable_content_region.width
        if not self.is_mounted or width <= 0:
            return
        names = [it.name for it in self._groups]
        sizes = [len(it.devices) for it in self._groups]
        if (width, names, sizes) != self._arranged_for:
            self._arranged_for = (width, names, sizes)
            self._layout = arrange_groups(names, sizes, width)
            self._cells.keep(frozenset(names))
        size = Size(width, max(1, len(self._layout.rows)))
        if size != self.virtual_size:
            self.virtual_size = size
            self._scroll_update(size)
        self._draw_seen()

    def _draw_seen(self) -> None:
        """Draw the rows in sight, and repaint those that changed."""
        top = self.scroll_offset.y
        height = self.scrollable_content_region.height
        lost = self._describe_lost(self._layout.block_cells)
        drawn = {number: self._draw_line(number, lost) for number in range(top, top + height)}
        changed = [number for number, line in drawn.items() if self._drawn.get(number) != line]
        if not self._looks:
            self._looks = find_looks(self)
        strips = {number: self._strips[number] for number in drawn if number in self._strips}
        strips.update({number: to_strip(drawn[number], self._looks) for number in changed})
        self._drawn = drawn
        self._strips = strips
        regions = [Region(0, number - top, self.size.width, 1) for number in changed]
        if regions:
            self.repaint(*regions)

    def _draw_line(self, number: int, lost: Mapping[str, str]) -> Line:
        width = self.scrollable_content_region.width
        line: Line = []
        if number < len(self._layout.rows):
            blocks = self._layout.rows[number]
            cursor = self._cursor
            line = draw_row(blocks, self._layout, self._groups, lost, cursor, self._figure, self._cells)
        elif not number:
            line = [Span(self._absence, "muted")]
        is_ascii = self.glyphs.name == "ascii"
        return fit_line(line, width, is_ascii=is_ascii)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        number = y + self.scroll_offset.y
        strip = self._strips.get(number)
        if strip is None:
            return Strip.blank(width, self.rich_style)
        return strip if strip.cell_length == width else strip.adjust_cell_length(width, self.rich_style)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self.is_mounted and round(old_value) != round(new_value):
            self._draw_seen()

    def watch_show_vertical_scrollbar(self) -> None:
        self.call_after_refresh(self._draw)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._looks = {}
        self._drawn = {}
        self._strips = {}
        if self.is_mounted:
            self.call_next(self._draw)

    def on_resize(self) -> None:
        self._draw()
        self.call_after_refresh(self._keep_in_sight)

    def _keep_in_sight(self) -> None:
        if self._cursor is None:
            return
        row, _ = self._layout.find(*self._cursor)
        top = self.scroll_offset.y
        height = max(1, self.size.height)
        if not top <= row < top + height:
            self.scroll_to(y=row if row < top else row - height + 1, animate=False)

    def _go(self, place: tuple[int, int] | None) -> None:
        if place is None or place == self._cursor:
            return
        self._cursor = place
        self._draw_seen()
        self._keep_in_sight()
        self.post_message(self.Moved())

    def action_move(self, columns: int, rows: int) -> None:
        if self._cursor is None:
            return
        if rows:
            row, x = self._layout.find(*self._cursor)
            self._go(self._near(x, row + rows, 1 if rows > 0 else -1))
            return
        group, place = self._cursor
        if 0 <= place + columns < len(self._groups[group].devices):
            self._go((group, place + columns))
        else:
            self._go(self._group_from(group, 1 if columns > 0 else -1, is_last=columns < 0))

    def _near(self, x: int, row: int, step: int) -> tuple[int, int] | None:
        """Return the device nearest to a column of a row, or of the next row that has one."""
        row = max(0, min(row, len(self._layout.rows) - 1))
        while 0 <= row < len(self._layout.rows):
            if (found := self._layout.device_at(x, row)) is not None:
                return found
            row += step
        return None

    def _group_from(self, group: int, step: int, *, is_last: bool = False) -> tuple[int, int] | None:
        """Return the first or last device of the next group that has one."""
        group += step
        while 0 <= group < len(self._groups):
            if count := len(self._groups[group].devices):
                return group, count - 1 if is_last else 0
            group += step
        return None

    def step_group(self, places: int) -> None:
        """Move the cursor to the first device of the next group, or of the previous; wraps around."""
        if self._cursor is not None:
            outside = -1 if places > 0 else len(self._groups)
            self._go(self._group_from(self._cursor[0], places) or self._group_from(outside, places))

    def action_page(self, pages: int) -> None:
        self.action_move(0, pages * max(1, self.size.height - 1))

    def action_end(self, end: int) -> None:
        outside = -1 if not end else len(self._groups)
        self._go(self._group_from(outside, 1 if not end else -1, is_last=bool(end)))

    def action_open(self) -> None:
        if self.current is not None:
            self.post_message(self.Opened())

    def on_click(self, event: events.Click) -> None:
        """Select the device that was clicked; open it on a double click."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        self._go(self._layout.device_at(offset.x, offset.y + self.scroll_offset.y))
        if event.chain > 1:
            self.action_open()
