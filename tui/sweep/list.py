"""The sweeps of an index: one line each, as in the table; a list with a cursor."""

from collections.abc import Sequence

from ...analyzers.planning.sweep.index import IndexedSweep
from ...exporters.sweep.text import ALIGNMENT, HEADINGS, row_of
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Span, fit_line, fit_text
from ..frame import keys
from ..widgets.cursor_list import CursorList

LEAST_NAME_CELLS = 16
MOST_NAME_CELLS = 44
GAP = "  "


class SweepList(CursorList):
    """Lists sweeps.

    Args:
        glyphs: Characters to draw with.
    """

    BINDINGS = [*keys.SWEEP_LIST]

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._sweeps: tuple[IndexedSweep, ...] = ()
        self._absence = ""

    @property
    def _count(self) -> int:
        return len(self._sweeps)

    @property
    def sweep(self) -> IndexedSweep | None:
        """The sweep under the cursor."""
        return self._sweeps[self.chosen] if self._sweeps else None

    def show(self, sweeps: Sequence[IndexedSweep], absence: str) -> None:
        """List sweeps; the cursor stays with the sweep where it is still there.

        Args:
            sweeps: In the order in which they are listed.
            absence: What is said where there is none.
        """
        name = None if self.sweep is None else self.sweep.name
        self._sweeps = tuple(sweeps)
        self._absence = absence
        at = next((at for at, sweep in enumerate(sweeps) if sweep.name == name), self.chosen)
        self.chosen = max(0, min(at, len(sweeps) - 1))
        self._draw()

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        is_ascii = self._glyphs.name == "ascii"
        ellipsis = self._glyphs.ellipsis
        if not self._sweeps:
            return [fit_line([Span(f" {self._absence}", "muted")], width, is_ascii=is_ascii)]
        return [
            fit_line(self._draw_row(at, text), width, is_ascii=is_ascii, ellipsis=ellipsis)
            for at, text in enumerate(draw_rows(self._sweeps, width - 2, ellipsis)[1:])
        ]

    def _draw_row(self, at: int, text: str) -> Line:
        is_chosen = at == self.chosen
        mark = Span(self._glyphs.selected if is_chosen else " ", "accent")
        return [mark, Span(text, "strong" if is_chosen else "text")]


def draw_rows(sweeps: Sequence[IndexedSweep], width: int, ellipsis: str) -> list[str]:
    """Return the headings and a line for each sweep; columns that do not fit are left out from the right.

    Args:
        sweeps: In the order in which they are listed.
        width: Cells of a line.
        ellipsis: What stands where a name is cut.
    """
    rows = [HEADINGS[1:], *map(row_of, sweeps)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    while len(widths) > 2 and sum(widths) + len(GAP) * len(widths) + LEAST_NAME_CELLS > width:
        widths.pop()
    longest = max(len(sweep.name) for sweep in sweeps) if sweeps else 0
    room = width - sum(widths) - len(GAP) * len(widths)
    cells = max(LEAST_NAME_CELLS, min(longest, room, MOST_NAME_CELLS))
    names = [HEADINGS[0], *(sweep.name for sweep in sweeps)]
    lines = []
    for name, row in zip(names, rows, strict=True):
        texts = [
            text.rjust(size) if side == "r" else text.ljust(size)
            for text, size, side in zip(row, widths, ALIGNMENT[1:], strict=False)
        ]
        lines.append(GAP.join([fit_text(name, cells, ellipsis), *texts]))
    return lines
