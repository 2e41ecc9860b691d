"""The candidates of a plan, one a line: sorted, filtered, one of them marked to hold others against it."""

from collections.abc import Sequence
from typing import NamedTuple

from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Role, Span, fit_line
from ..frame import keys
from ..widgets.cursor_list import CursorList
from .columns import lay_out, measure_columns
from .planned import Candidate, PlannedColumn

LEAD = 3
"""Cells before the first column: the cursor and the mark."""


class PlanOrder(NamedTuple):
    """What candidates are sorted by."""

    column: int | None = None
    """None for the order of the plan."""
    is_inverted: bool = False

    def sort(self, candidates: Sequence[Candidate]) -> list[int]:
        """Return the places of candidates in this order; what is not known stands last either way."""
        places = list(range(len(candidates)))
        if self.column is None:
            return places[::-1] if self.is_inverted else places
        column = self.column
        known = [place for place in places if candidates[place].values[column] is not None]
        known.sort(key=lambda place: _key(candidates[place].values[column]), reverse=self.is_inverted)
        return known + [place for place in places if candidates[place].values[column] is None]


def _key(value: float | str | None) -> tuple[str, float]:
    return (value, 0.0) if isinstance(value, str) else ("", value or 0.0)


class PlanTable(CursorList):
    """Lists candidates.

    Args:
        glyphs: Characters to draw with.
    """

    BINDINGS = [*keys.PLAN_LIST]

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._columns: tuple[PlannedColumn, ...] = ()
        self._candidates: tuple[Candidate, ...] = ()
        self.places: list[int] = []
        """Places in the plan of the candidates that are listed, in their order."""
        self._widths: tuple[int, ...] = ()
        self._marked: int | None = None

    @property
    def _count(self) -> int:
        return len(self.places)

    @property
    def place(self) -> int | None:
        """Place in the plan of the candidate under the cursor; None where no line is shown."""
        return self.places[self.chosen] if self.chosen < len(self.places) else None

    def hold(self, columns: tuple[PlannedColumn, ...], candidates: tuple[Candidate, ...]) -> None:
        """Take the candidates of a plan, in its order."""
        self._columns = columns
        self._candidates = candidates
        self._widths = measure_columns([each.name for each in columns], [it.cells for it in candidates])

    def show(self, places: Sequence[int], marked: int | None) -> None:
        """List candidates by their places in the plan; the cursor stays with its candidate.

        Args:
            places: In the order in which they are listed.
            marked: The one that others are held against, or None.
        """
        kept = self.place
        self.places = list(places)
        self._marked = marked
        self.choose(self.places.index(kept) if kept in self.places else 0)

    def select(self, place: int) -> None:
        """Put the cursor on a candidate that is listed."""
        self.choose(self.places.index(place))

    def lay_out_heading(self, width: int) -> str:
        """Return the names of the columns at a width."""
        return " " * LEAD + self._lay_out([column.name for column in self._columns], width)

    def _lay_out(self, texts: Sequence[str], width: int) -> str:
        sides = "".join("l" if column.is_left else "r" for column in self._columns)
        return lay_out(texts, self._widths, sides, width - LEAD, self._glyphs.ellipsis)

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        is_ascii = self._glyphs.name == "ascii"
        if not self.places:
            text = " nothing matches the filter" if self._candidates else ""
            return [fit_line([Span(text, "muted")], width, is_ascii=is_ascii)]
        return [
            fit_line(self._draw_row(line, self._candidates[place], width), width, is_ascii=is_ascii)
            for line, place in enumerate(self.places)
        ]

    def _draw_row(self, line: int, candidate: Candidate, width: int) -> Line:
        is_chosen = line == self.chosen
        is_marked = self.places[line] == self._marked
        role: Role = "text"
        if is_chosen:
            role = "strong"
        elif candidate.note in ("over", "refused"):
            role = "muted"
        return [
            Span(self._glyphs.selected if is_chosen else " ", "accent" if self.has_focus else "muted"),
            Span("c " if is_marked else "  ", "accent"),
            Span(self._lay_out(candidate.cells, width), role),
        ]
