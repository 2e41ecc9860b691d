"""Devices of a fleet, a cell each: only rows that are seen are made, only those that changed are painted."""

from collections.abc import Callable, Mapping, Sequence

from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...analyzers.fleet.model import FleetDevice, FleetGroup
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Role, Span, fit_line, to_strip
from ..frame import keys
from ..frame.theme import find_looks
from ..widgets.marking import MarkingWidget
from .layout import FleetLayout, arrange_groups
from .lines import DrawnCells, draw_row
from .view import CellFigure

_NOTHING = FleetLayout(0, 0, ())
DescribeLost = Callable[[int], Mapping[str, str]]
"""Returns what is said of nodes that are lost, for cells of room."""


class FleetGrid(ScrollView, MarkingWidget, can_focus=True):
    """Draws groups of devices and moves a cursor over them.

    Args:
        glyphs: Characters to draw with.
    """

    BINDINGS = [*keys.FLEET_GRID]
    DEFAULT_CSS = """
    FleetGrid { height: 1fr; width: 1fr; padding: 0 1; overflow-x: hidden; scrollbar-size-vertical: 1; }
    """

    class Moved(Message):
        """Another device is under the cursor."""

    class Opened(Message):
        """The device under the cursor is to be shown."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._cells = DrawnCells(glyphs)
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
        """What is drawn, in its order."""
        return self._groups

    @property
    def current(self) -> FleetDevice | None:
        """The device under the cursor."""
        return None if self._cursor is None else self._groups[self._cursor[0]].devices[self._cursor[1]]

    @property
    def row_count(self) -> int:
        """Rows of the whole grid."""
        return len(self._layout.rows)

    def show(
        self,
        groups: Sequence[FleetGroup],
        selected: tuple[str, str] | None,
        figure: CellFigure,
        describe_lost: DescribeLost,
        absence: str,
    ) -> None:
        """Draw groups.

        Args:
            groups: In order.
            selected: Key of the device that the cursor is on; the first one where there is none such.
            figure: What a cell shows.
            describe_lost: What is said of nodes that are lost.
            absence: What is said where there is no group.
        """
        self._groups = groups
        self._figure = figure
        self._absence = absence
        self._describe_lost = describe_lost
        self._cursor = self._find(selected)
        self._draw()

    def _find(self, selected: tuple[str, str] | None) -> tuple[int, int] | None:
        """Return where a device stands, first where the cursor is."""
        if self._cursor is not None and self._cursor[0] < len(self._groups):
            group, place = self._cursor
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
        """Arrange the groups, and draw the rows that are seen."""
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
        """Draw the rows that are seen, and ask for a repaint of those that changed."""
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
        is_ascii = self._glyphs.name == "ascii"
        return fit_line(line, width, is_ascii=is_ascii, ellipsis=self._glyphs.ellipsis)

    def render_line(self, y: int) -> Strip:
        """Return one row of the widget."""
        width = self.size.width
        number = y + self.scroll_offset.y
        strip = self._strips.get(number)
        if strip is None:
            return Strip.blank(width, self.rich_style)
        return strip if strip.cell_length == width else strip.adjust_cell_length(width, self.rich_style)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Draw the rows that come into sight."""
        super().watch_scroll_y(old_value, new_value)
        if self.is_mounted and round(old_value) != round(new_value):
            self._draw_seen()

    def watch_show_vertical_scrollbar(self) -> None:
        """Make room for the scroll bar, or take its room."""
        self.call_after_refresh(self._draw)

    def notify_style_update(self) -> None:
        """Take up the looks of another theme."""
        super().notify_style_update()
        self._looks = {}
        self._drawn = {}
        self._strips = {}
        if self.is_mounted:
            self.call_next(self._draw)

    def on_resize(self) -> None:
        """Draw for the new room, and keep the cursor in it."""
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
        """Move the cursor by devices, also into the next group, or by rows."""
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
        """Move the cursor to the first device of the next group, or of the one before; round at the ends."""
        if self._cursor is not None:
            outside = -1 if places > 0 else len(self._groups)
            self._go(self._group_from(self._cursor[0], places) or self._group_from(outside, places))

    def action_page(self, pages: int) -> None:
        """Move the cursor by pages."""
        self.action_move(0, pages * max(1, self.size.height - 1))

    def action_end(self, end: int) -> None:
        """Move the cursor to the first device, or to the last one."""
        outside = -1 if not end else len(self._groups)
        self._go(self._group_from(outside, 1 if not end else -1, is_last=bool(end)))

    def action_open(self) -> None:
        """Ask for the device under the cursor."""
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
