"""The whole of a recording in one line: how full the fullest device was, above the time bar, cell by cell."""

from collections.abc import Iterator
from itertools import groupby
from math import ceil, floor

from ...engine.viewer.snapshot import ReplayOverview, ReplayState
from ..draw.glyphs import Glyphs
from ..draw.spans import Role
from .one_line import Piece, measure_pieces
from .time_bar import SpanLine, fit_bar

FULL_SHARE = 0.95
"""Share of the capacity from which a cell stands out."""


class OverviewLine(SpanLine):
    """Shows most of the fullest device over the cells of the time bar below."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(glyphs, id=id)
        self._drawn_for: tuple[object, ...] = ()
        self._drawn: list[Piece] = []

    def show(self, replay: ReplayState | None) -> None:
        """Show the overview of a replay; the line is hidden where there is none."""
        self._replay = replay
        self._arrange()

    def on_resize(self) -> None:
        """Choose anew what fits."""
        self._arrange()

    def _arrange(self) -> None:
        replay = self._replay
        if replay is None or replay.overview is None or self.size.width <= 0:
            return
        left, right, room = fit_bar(replay, self.size.width)
        self._bar_start = measure_pieces(left) + 1
        self._bar_cells = room
        key = replay.overview, replay.start_s, replay.end_s, room
        if key != self._drawn_for:
            self._drawn_for = key
            self._drawn = list(draw_overview(replay.overview, replay, room, self._glyphs))
        name = _fit_name(measure_pieces(left))
        most = _describe_most(replay.overview, measure_pieces(right))
        self.set_pieces([Piece(name, "muted"), Piece(" "), *self._drawn, Piece(" "), Piece(most, "muted")])


def draw_overview(
    overview: ReplayOverview, replay: ReplayState, width: int, glyphs: Glyphs
) -> Iterator[Piece]:
    """Yield the most of each cell's time as a level; blank where nothing was measured.

    Args:
        overview: What is drawn.
        replay: The span of the bar, of which the node may have a part.
        width: Cells.
        glyphs: Characters to draw with.
    """
    cells = [
        _draw_cell(_most_within(overview, replay, cell, width), overview, glyphs) for cell in range(width)
    ]
    for role, run in groupby(cells, key=lambda cell: cell.role):
        yield Piece("".join(cell.text for cell in run), role)


def _most_within(overview: ReplayOverview, replay: ReplayState, cell: int, width: int) -> float | None:
    """Return the most in the time of a cell; its neighbours overlap, so that no minute is left out."""
    length_s = (replay.end_s - replay.start_s) / max(1, width - 1)
    middle_s = replay.start_s + cell * length_s
    first = floor((middle_s - length_s / 2 - overview.start_s) / overview.step_s)
    last = ceil((middle_s + length_s / 2 - overview.start_s) / overview.step_s)
    known = [it for it in overview.shares[max(0, first) : max(0, last)] if it is not None]
    return max(known, default=None)


def _draw_cell(share: float | None, overview: ReplayOverview, glyphs: Glyphs) -> Piece:
    if share is None:
        return Piece(" ")
    level = min(len(glyphs.levels) - 1, int(share * len(glyphs.levels)))
    role: Role = "high" if overview.is_of_capacity and share >= FULL_SHARE else "muted"
    return Piece(glyphs.levels[level], role)


def _fit_name(width: int) -> str:
    """Return what the line shows, in as many cells as the text before the bar has."""
    names = ("fullest device, whole recording", "fullest device", "memory", "")
    return next(name for name in names if len(name) <= width).rjust(width)


def _describe_most(overview: ReplayOverview, width: int) -> str:
    """Return the most of all where it is known in percent and there is room."""
    most = max(share for share in overview.shares if share is not None)
    text = f"peak {100 * most:.0f} %" if overview.is_of_capacity else ""
    return text if len(text) <= width else ""
