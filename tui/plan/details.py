"""A table that was asked for: layers of a stage, its memory part by part, or what stands out."""

from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Span, fit_line
from ..frame import keys
from ..widgets.cursor_list import CursorList
from .columns import lay_out, measure_columns
from .planned import PlannedTable

LEAD = 2
"""Cells before the first column: the cursor."""


class PlanDetails(CursorList):
    """Lists the rows of one table.

    Args:
        glyphs: Characters to draw with.
    """

    BINDINGS = [*keys.PLAN_LINES]

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._table = PlannedTable("", (), "", ())
        self._widths: tuple[int, ...] = ()

    @property
    def _count(self) -> int:
        return len(self._table.rows)

    def show(self, table: PlannedTable) -> None:
        """List the rows of a table, from the first on."""
        self._table = table
        self._widths = measure_columns(table.heading, table.rows)
        self.chosen = 0
        self.scroll_to(y=0, animate=False)
        self._draw()

    def lay_out_heading(self, width: int) -> str:
        """Return the names of the columns at a width."""
        return " " * LEAD + self._lay_out(self._table.heading, width)

    def _lay_out(self, texts: tuple[str, ...], width: int) -> str:
        return lay_out(texts, self._widths, self._table.alignment, width - LEAD, self._glyphs.ellipsis)

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        is_ascii = self._glyphs.name == "ascii"

        def is_chosen(place: int) -> bool:
            return place == self.chosen and self.has_focus

        return [
            fit_line(
                [
                    Span(f"{self._glyphs.selected if is_chosen(place) else ' '} ", "accent"),
                    Span(self._lay_out(row, width), "strong" if is_chosen(place) else "text"),
                ],
                width,
                is_ascii=is_ascii,
            )
            for place, row in enumerate(self._table.rows)
        ]
