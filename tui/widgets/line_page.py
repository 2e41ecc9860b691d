"""Widgets drawn line by line: repainted where a line changed, scrolled, or with a cursor."""

from functools import cached_property
from typing import cast

from rich.style import Style
from textual import events
from textual.dom import NoScreen
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Role, to_strip
from ..frame.theme import find_looks
from ..terminal.compositor import DrawingApp, ThriftyScreen


class MarkingWidget(Widget):
    """A widget that marks what changed instead of asking, by a message, to be asked again later."""

    @cached_property
    def glyphs(self) -> Glyphs:
        """Characters to draw with."""
        return cast(DrawingApp, self.app).glyphs

    def repaint(self, *regions: Region) -> None:
        """Have regions painted anew, or everything where there are none."""
        try:
            screen = self.screen
        except NoScreen:
            return  # it is being taken down
        if isinstance(screen, ThriftyScreen) and screen.is_drawing and self._is_mounted:
            self._set_dirty(*regions)
            screen.mark(self)
        else:
            self.refresh(*regions)


class LinePage(ScrollView, MarkingWidget, can_focus=True):
    """Shows lines of exactly its width; who derives from it says which in `_compose_lines`."""

    DEFAULT_CSS = "LinePage { overflow-x: hidden; scrollbar-size-vertical: 1; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._strips: list[Strip] = []
        self._looks: dict[Role, Style] = {}

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        """Return every line, also those below the window.

        Args:
            width: Cells that each line fills.
            height: Rows that are seen at once.
        """
        raise NotImplementedError

    def render_line(self, y: int) -> Strip:
        """Return one row of the widget."""
        width = self.size.width
        number = y + self.scroll_offset.y
        if not 0 <= number < len(self._strips):
            return Strip.blank(width, self.rich_style)
        strip = self._strips[number]
        # The widget's own style is worked out anew at every look.
        return strip if strip.cell_length == width else strip.adjust_cell_length(width, self.rich_style)

    def notify_style_update(self) -> None:
        """Take up the looks of another theme."""
        super().notify_style_update()
        self._looks = {}
        self._lines = []
        if self.is_mounted:
            self.call_next(self._draw)

    def on_resize(self) -> None:
        """Draw for the new room."""
        self._draw()

    def watch_show_vertical_scrollbar(self) -> None:
        """Make room for the scroll bar, or take its room."""
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        """Draw everything, and ask for a repaint of the lines that changed."""
        if not self.is_mounted:
            return
        width, height = self.scrollable_content_region.size
        # Where the bar has the only column, no lines at all would let it go, come again, and so without end.
        width = max(width, int(self.show_vertical_scrollbar))
        lines = self._compose_lines(width, height)
        if not self._looks:
            self._looks = find_looks(self)
        old = self._lines
        changed = [y for y, line in enumerate(lines) if y >= len(old) or old[y] != line]
        changed += range(len(lines), len(old))
        strips = self._strips[: len(lines)] + [Strip([])] * (len(lines) - len(self._strips))
        for y in changed:
            if y < len(lines):
                strips[y] = to_strip(lines[y], self._looks)
        self._lines = lines
        self._strips = strips
        size = Size(width, len(lines))
        if size != self.virtual_size:
            self.virtual_size = size
            self._scroll_update(size)
        self._repaint(changed)

    def _repaint(self, rows: list[int]) -> None:
        """Ask for a repaint of rows, in as few regions as they need, from where the content begins."""
        (width, height), scrolled = self.size, self.scroll_offset.y
        regions: list[Region] = []
        for row in rows:
            y = row - scrolled
            if not 0 <= y < height:
                continue
            if regions and regions[-1].bottom == y:
                regions[-1] = regions[-1].grow((0, 0, 1, 0))
            else:
                regions.append(Region(0, y, width, 1))
        if regions:
            self.repaint(*regions)


class CursorList(LinePage):
    """Moves a cursor over lines; who derives from it draws them, and counts them in `_count`."""

    class Chosen(Message):
        """Another line is under the cursor."""

        def __init__(self, of: "CursorList") -> None:
            super().__init__()
            self.of = of

        @property
        def control(self) -> "CursorList":
            """The list."""
            return self.of

    class Opened(Chosen):
        """What is under the cursor is to be shown in full."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.chosen = 0
        """Place of the cursor."""

    @property
    def _count(self) -> int:
        """Lines that the cursor can go to."""
        raise NotImplementedError

    def choose(self, place: int) -> None:
        """Put the cursor on a line, as near as there is one, and into sight."""
        moved = max(0, min(place, self._count - 1))
        if moved != self.chosen:
            self.chosen = moved
            self.post_message(self.Chosen(self))
        self._draw()
        self._keep_in_sight()

    def _keep_in_sight(self) -> None:
        top = self.scroll_offset.y
        height = max(1, self.size.height)
        if not top <= self.chosen < top + height:
            self.scroll_to(y=self.chosen if self.chosen < top else self.chosen - height + 1, animate=False)

    def on_resize(self) -> None:
        """Draw for the new room, and keep the cursor in it."""
        super().on_resize()
        self.call_after_refresh(self._keep_in_sight)

    def on_focus(self) -> None:
        """Draw the cursor."""
        self._draw()

    def on_blur(self) -> None:
        """Draw the cursor no more."""
        self._draw()

    def action_move(self, places: int) -> None:
        """Move the cursor by lines."""
        self.choose(self.chosen + places)

    def action_page(self, pages: int) -> None:
        """Move the cursor by pages."""
        self.action_move(pages * max(1, self.size.height - 1))

    def action_open(self) -> None:
        """Ask for the whole of what is under the cursor."""
        if self._count:
            self.post_message(self.Opened(self))

    def on_click(self, event: events.Click) -> None:
        """Choose the line; a second click opens it."""
        place = event.y + self.scroll_offset.y
        if place < self._count:
            self.choose(place)
            if event.chain > 1:
                self.action_open()
