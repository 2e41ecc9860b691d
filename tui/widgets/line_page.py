"""A page of lines that scrolls: drawn line by line, repainted only where a line changed."""

from rich.style import Style
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ..draw.spans import Line, Role, to_strip
from ..frame.theme import find_looks
from .marking import MarkingWidget


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
