"""Below the grid of a sweep: the marked layout, and what the sweep as a whole says."""

from collections.abc import Sequence

from ...analyzers.planning.sweep import SweepCell
from ...analyzers.planning.sweep.index import IndexedSweep
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, fit_line
from ..widgets.line_page import LinePage
from .words import describe_all, describe_pair


class SweepFacts(LinePage, can_focus=False):
    """Says what is known of one layout and of its sweep; the wheel scrolls it.

    Args:
        glyphs: Characters to draw with.
    """

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._sweeps: Sequence[IndexedSweep] = ()
        self._cells: Sequence[SweepCell | None] = ()

    def show(self, sweeps: Sequence[IndexedSweep], cells: Sequence[SweepCell | None]) -> None:
        """Say what is known of a layout.

        Args:
            sweeps: One, whose findings follow; or two that stand side by side.
            cells: The layout under the mark in each.
        """
        self._sweeps = tuple(sweeps)
        self._cells = tuple(cells)
        self._draw()

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        if not self._sweeps or width < 4:
            return []
        is_ascii = self._glyphs.name == "ascii"
        ellipsis = self._glyphs.ellipsis
        if len(self._sweeps) == 1:
            lines = describe_all(self._sweeps[0], self._cells[0], width, self._glyphs)
        else:
            lines = describe_pair(self._sweeps, self._cells, width, self._glyphs)
        return [fit_line(line, width, is_ascii=is_ascii, ellipsis=ellipsis) for line in lines]
