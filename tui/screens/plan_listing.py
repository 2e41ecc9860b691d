"""The candidates of a plan: which are listed, in what order, and which one others are held against."""

from textual import on

from ..compositor import ThriftyScreen
from ..drawing.glyphs import Glyphs
from ..planned import Candidate, Planned
from ..widgets.filter_bar import FilterBar
from ..widgets.plan_table import PlanOrder, PlanTable
from .choice import ChoiceScreen

AS_PLANNED = "as planned"
HINT = "words that all occur in a line; Enter keeps, Esc clears"


class PlanListing(ThriftyScreen[None]):
    """A screen with a list of candidates; who derives from it draws the rest.

    Args:
        glyphs: Characters to draw with.
    """

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self.plan: Planned | None = None
        """What is shown, once it was made."""
        self.order = PlanOrder()
        self._filter_text = ""
        self._marked: int | None = None
        self.table = PlanTable(glyphs, id="table")
        self._filter = FilterBar(hint=HINT, example="such as: exact 4", id="filter")

    def _draw(self) -> None:
        """Draw everything but the list."""
        raise NotImplementedError

    def _rearrange(self) -> None:
        """Share the rows among the parts."""
        raise NotImplementedError

    @property
    def candidate(self) -> Candidate | None:
        """The candidate under the cursor."""
        place = self.table.place
        return None if self.plan is None or place is None else self.plan.candidates[place]

    @property
    def _other(self) -> Candidate | None:
        """The marked candidate, where it is another than the one under the cursor."""
        if self.plan is None or self._marked is None or self._marked == self.table.place:
            return None
        return self.plan.candidates[self._marked]

    def _show_candidates(self) -> None:
        """List those that match, in order."""
        if self.plan is None:
            return
        words = self._filter_text.casefold().split()
        texts = [f"{each.name} {' '.join(each.cells)}".casefold() for each in self.plan.candidates]
        places = self.order.sort(self.plan.candidates)
        self.table.show(
            [place for place in places if all(word in texts[place] for word in words)], self._marked
        )
        self._rearrange()
        self._draw()

    def action_mark(self) -> None:
        """Mark the candidate under the cursor; of the marked one, take the mark away."""
        place = self.table.place
        if place is None:
            return
        self._marked = None if place == self._marked else place
        if self._marked is not None:
            self.notify("Marked: go to another plan to see both side by side.", timeout=4)
        self._show_candidates()

    def action_choose_sort(self) -> None:
        """Ask for the column to sort by."""
        plan = self.plan
        if plan is None:
            return

        def sort(name: str | None) -> None:
            if name is not None:
                self.sort_candidates(PlanOrder(None if name == AS_PLANNED else int(name)))

        choices = {AS_PLANNED: AS_PLANNED, **{str(at): it.name for at, it in enumerate(plan.columns)}}
        used = AS_PLANNED if self.order.column is None else str(self.order.column)
        self.app.push_screen(ChoiceScreen("Sort plans by", choices, chosen=used), sort)

    def sort_candidates(self, order: PlanOrder) -> None:
        """Sort as told."""
        self.order = order
        self._show_candidates()

    def action_shift_sort(self, places: int) -> None:
        """Sort by the column to the left or right; before the first is the order of the plan."""
        if self.plan is not None:
            count = len(self.plan.columns) + 1
            at = 0 if self.order.column is None else self.order.column + 1
            moved = (at + places) % count
            self.sort_candidates(self.order._replace(column=moved - 1 if moved else None))

    def action_invert_sort(self) -> None:
        """Sort the other way round."""
        self.sort_candidates(self.order._replace(is_inverted=not self.order.is_inverted))

    def action_filter(self) -> None:
        """Open the filter."""
        self._filter.open()
        self._rearrange()

    @on(FilterBar.TextChanged)
    def filter_candidates(self, message: FilterBar.TextChanged) -> None:
        """Filter while typing."""
        message.stop()
        self._filter_text = message.text
        self._show_candidates()

    @on(FilterBar.Closed)
    def end_filter(self, message: FilterBar.Closed) -> None:
        """Give the keys to what was filtered."""
        message.stop()
        self.table.focus()
        self._rearrange()
