"""The lists of a plan: the candidates, and the layers or parts of a stage."""

from collections.abc import Sequence
from typing import NamedTuple

from ..draw.columns import join_columns, measure_columns
from ..draw.spans import Line, Role, Span
from ..frame import keys
from ..widgets.line_page import RowTable
from .planned import Candidate, PlannedColumn, PlannedTable

# Cells before the first column: the cursor and the mark.
LEAD = 3


class PlanOrder(NamedTuple):
    """What candidates are sorted by."""

    # None for the order of the plan.
    column: int | None = None
    is_inverted: bool = False

    def sort(self, candidates: Sequence[Candidate]) -> list[int]:
        """Return the places of candidates in this order; unknown values are last either way."""
        places = list(range(len(candidates)))
        if self.column is None:
            return places[::-1] if self.is_inverted else places
        column = self.column
        known = [place for place in places if candidates[place].values[column] is not None]
        known.sort(key=lambda place: _key(candidates[place].values[column]), reverse=self.is_inverted)
        return known + [place for place in places if candidates[place].values[column] is None]


def _key(value: float | str | None) -> tuple[str, float]:
    return (value, 0.0) if isinstance(value, str) else ("", value or 0.0)


class PlanTable(RowTable[int]):
    """Lists candidates, each by its place in the plan."""

    BINDINGS = [*keys.PLAN_LIST]
    _columns: tuple[PlannedColumn, ...] = ()
    _candidates: tuple[Candidate, ...] = ()
    _widths: tuple[int, ...] = ()
    _marked: int | None = None

    def hold(self, columns: tuple[PlannedColumn, ...], candidates: tuple[Candidate, ...]) -> None:
        """Set the candidates of a plan, in its order."""
        self._columns = columns
        self._candidates = candidates
        self._widths = measure_columns([[each.name for each in columns], *(it.cells for it in candidates)])
        self.absence = "nothing matches the filter" if candidates else " "

    def show(self, places: Sequence[int], marked: int | None) -> None:
        """List candidates by their places in the plan; the cursor stays with its candidate.

        Others are compared with `marked`.
        """
        kept = self.current
        self.rows = list(places)
        self._marked = marked
        self.choose(self.rows.index(kept) if kept in self.rows else 0)

    def select(self, place: int) -> None:
        self.choose(self.rows.index(place))

    def lay_out_heading(self, width: int) -> str:
        return " " * LEAD + self._lay_out([column.name for column in self._columns], width)

    def _lay_out(self, texts: Sequence[str], width: int) -> str:
        sides = "".join("l" if column.is_left else "r" for column in self._columns)
        return join_columns(texts, self._widths, sides, self.glyphs.ellipsis, room=width - LEAD)

    def _draw_row(self, place: int, row: int, width: int) -> Line:
        candidate = self._candidates[row]
        is_chosen = place == self.chosen
        role: Role = "text"
        if is_chosen:
            role = "strong"
        elif candidate.note in ("over", "refused"):
            role = "muted"
        return [
            Span(self.glyphs.selected if is_chosen else " ", "accent" if self.has_focus else "muted"),
            Span("c " if row == self._marked else "  ", "accent"),
            Span(self._lay_out(candidate.cells, width), role),
        ]


# Cells before the first column: the cursor.
DETAIL_LEAD = 2


class PlanDetails(RowTable[tuple[str, ...]]):
    BINDINGS = [*keys.PLAN_LINES]
    _table = PlannedTable("", (), "", ())
    _widths: tuple[int, ...] = ()

    def show(self, table: PlannedTable) -> None:
        self._table = table
        self._widths = measure_columns([table.heading, *table.rows])
        self.list_rows(table.rows)

    def lay_out_heading(self, width: int) -> str:
        return " " * DETAIL_LEAD + self._lay_out(self._table.heading, width)

    def _lay_out(self, texts: tuple[str, ...], width: int) -> str:
        sides = self._table.alignment
        return join_columns(texts, self._widths, sides, self.glyphs.ellipsis, room=width - DETAIL_LEAD)

    def _draw_row(self, place: int, row: tuple[str, ...], width: int) -> Line:
        is_chosen = self.is_marked(place)
        return [
            Span(f"{self.glyphs.selected if is_chosen else ' '} ", "accent"),
            Span(self._lay_out(row, width), "strong" if is_chosen else "text"),
        ]
