"""The nodes that are lost, and why: a few rows, as many as the height of the screen lets them have."""

from collections.abc import Sequence

from rich.segment import Segment
from textual.strip import Strip

from ...analyzers.fleet.model import FleetNode
from ..draw.glyphs import Glyphs
from ..frame.lost_words import word_lost
from ..frame.theme import find_look
from ..widgets.marking import MarkingWidget

ROWS_FROM = ((32, 4), (24, 3), (18, 2))
"""Height of the screen from which on so many rows are taken; below that it is one."""


class LostLines(MarkingWidget):
    """Names nodes with how long they are lost and why; reasons shorten where rows are few.

    Args:
        glyphs: Characters to draw with.
    """

    DEFAULT_CSS = """
    LostLines {
        height: 1;
        width: 1fr;
        padding: 0 1;
    }
    """

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._head = f"{glyphs.risk('medium')} lost  "
        self._told: tuple[Sequence[FleetNode], float] = ((), 0.0)
        self._rows: list[str] = []

    def show(self, lost: Sequence[FleetNode], waited_s: float) -> None:
        """Show these nodes.

        Args:
            lost: In order.
            waited_s: Seconds since they were said to be silent for so long.
        """
        self._told = (lost, waited_s)
        self._arrange()

    def on_resize(self) -> None:
        """Word them for the new width."""
        self._arrange()

    def render_line(self, y: int) -> Strip:
        """Return one row."""
        width = self.size.width
        style = self.rich_style
        if not 0 <= y < len(self._rows):
            return Strip.blank(max(0, width), style)
        head = self._head if y == 0 else " " * len(self._head)
        row = [
            Segment(head, style + find_look(self.app, "medium")),
            Segment(self._rows[y], style + find_look(self.app, "muted")),
        ]
        return Strip(row).adjust_cell_length(width, style)

    def _arrange(self) -> None:
        if not self.is_mounted or not self.is_attached:  # its screen may be leaving, and draws to the last
            return
        height = self.screen.size.height
        most = next((rows for least, rows in ROWS_FROM if height >= least), 1)
        rows = word_lost(*self._told, self.size.width - len(self._head), most)
        if rows == self._rows:
            return
        if len(rows) != len(self._rows):
            self.styles.height = max(1, len(rows))
        self._rows = rows
        self.repaint()
