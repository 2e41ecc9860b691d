"""Widgets drawn line by line: repainted where a line changed, scrolled, or with a cursor."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

from rich.style import Style
from textual import events
from textual.dom import NoScreen
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Role, Span, fit_line
from ..frame.theme import find_looks, to_strip
from ..terminal.compositor import HasGlyphs, ThriftyScreen
from ..terminal.strip_caches import KeptLinesCache, KeptSpansCache


class MarkingWidget(Widget):
    """A widget that marks its changes for the next drawing instead of asking for one by a message."""

    @cached_property
    def glyphs(self) -> Glyphs:
        return cast(HasGlyphs, self.app).glyphs

    def repaint(self, *regions: Region) -> None:
        """Repaint regions, or everything without any."""
        try:
            screen = self.screen
        except NoScreen:
            return  # it is being removed
        if isinstance(screen, ThriftyScreen) and screen.is_drawing and self._is_mounted:
            self._set_dirty(*regions)
            screen.mark(self)
        else:
            self.refresh(*regions)


class LinePage(ScrollView, MarkingWidget, can_focus=True):
    """Shows lines of exactly its width; subclasses return them in `_compose_lines`, also those below the
    window.
    """

    DEFAULT_CSS = "LinePage { overflow-x: hidden; scrollbar-size-vertical: 1; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        has_own_lines = type(self).render_line is not LinePage.render_line
        self._kept = (
            KeptLinesCache(self._render_each)
            if has_own_lines
            else KeptSpansCache(self._list_lines, self._find_looks)
        )
        self._styles_cache = self._kept
        self._lines: list[Line] = []
        # Cells of each line.
        self._width = 0
        self._looks: dict[Role, Style] = {}

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        raise NotImplementedError

    def fit(self, line: Line, width: int) -> Line:
        glyphs = self.glyphs
        return fit_line(line, width, is_ascii=glyphs.name == "ascii")

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        (line,), _ = self._list_lines([y])
        if line is None:
            return Strip.blank(width, self.rich_style)
        return to_strip(line, self._find_looks()).adjust_cell_length(width, self.rich_style)

    def _render_each(self, rows: Sequence[int]) -> list[Strip]:
        return [self.render_line(y) for y in rows]

    def _list_lines(self, rows: Sequence[int]) -> tuple[list[Line | None], int]:
        """Return rows of the window, and how wide they are."""
        lines = self._lines
        top = self.scroll_offset.y
        return [lines[top + y] if 0 <= top + y < len(lines) else None for y in rows], self._width

    def _find_looks(self) -> dict[Role, Style]:
        if not self._looks:
            self._looks = find_looks(self)
        return self._looks

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._looks = {}
        self._lines = []
        self._kept.forget()
        if self.is_mounted:
            self.call_next(self._draw)

    def on_resize(self) -> None:
        self._draw()

    def watch_show_vertical_scrollbar(self) -> None:
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        if not self.is_mounted:
            return
        width, height = self.scrollable_content_region.size
        # Where the bar has the only column, no lines at all would make it go, come again, and so without end.
        width = max(width, int(self.show_vertical_scrollbar))
        lines = self._compose_lines(width, height)
        old = self._lines
        changed = [y for y, line in enumerate(lines) if y >= len(old) or old[y] != line]
        changed += range(len(lines), len(old))
        self._lines = lines
        self._width = width
        size = Size(width, len(lines))
        if size != self.virtual_size:
            self.virtual_size = size
            self._scroll_update(size)
        self._repaint(changed)

    def _repaint(self, rows: list[int]) -> None:
        """Repaint rows, in as few regions as they need, from where the content begins."""
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


RowT = TypeVar("RowT")


class RowTable(LinePage, Generic[RowT]):
    """Rows with a cursor, a line each; subclasses draw one of them in `_draw_row`."""

    class Chosen(Message):
        def __init__(self, of: "RowTable[Any]") -> None:
            super().__init__()
            self.of = of

        @property
        def control(self) -> "RowTable[Any]":
            return self.of

    class Opened(Chosen):
        """The row under the cursor is to be shown in full."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: Sequence[RowT] = ()
        # Place of the cursor.
        self.chosen = 0
        # Text where there are no rows; may be empty.
        self.absence = ""

    @property
    def current(self) -> RowT | None:
        return self.rows[self.chosen] if self.chosen < len(self.rows) else None

    def list_rows(self, rows: Sequence[RowT], key: Callable[[RowT], object] | None = None) -> None:
        """Show rows; the cursor stays with the row of the same key, and goes to the first without `key`."""
        before = self.current
        self.rows = rows
        if key is None:
            self.chosen = 0
            self.scroll_to(y=0, animate=False)
        elif before is not None:
            wanted = key(before)
            self.chosen = next((at for at, row in enumerate(rows) if key(row) == wanted), self.chosen)
        self.chosen = max(0, min(self.chosen, len(rows) - 1))
        self._draw()

    def _draw_row(self, place: int, row: RowT, width: int) -> Line:
        """Return a row, of whatever length."""
        raise NotImplementedError

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        if not self.rows:
            line = [Span(f" {self.absence}", "muted")]
            return [fit_line(line, width, is_ascii=self.glyphs.name == "ascii")] if self.absence else []
        return [self.fit(self._draw_row(place, row, width), width) for place, row in enumerate(self.rows)]

    def is_marked(self, place: int) -> bool:
        """Return whether the cursor is on a row and moves with the keys."""
        return place == self.chosen and self.has_focus

    def choose(self, place: int) -> None:
        """Put the cursor on the nearest row to a place, and scroll it into sight."""
        moved = max(0, min(place, len(self.rows) - 1))
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
        super().on_resize()
        self.call_after_refresh(self._keep_in_sight)

    def on_focus(self) -> None:
        self._draw()

    def on_blur(self) -> None:
        self._draw()

    def action_move(self, places: int) -> None:
        self.choose(self.chosen + places)

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 1))

    def action_open(self) -> None:
        if self.rows:
            self.post_message(self.Opened(self))

    def on_click(self, event: events.Click) -> None:
        place = event.y + self.scroll_offset.y
        if place < len(self.rows):
            self.choose(place)
            if event.chain > 1:
                self.action_open()
