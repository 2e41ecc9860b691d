"""A small menu: the column to sort processes by."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList

from ...engine.settings import SortColumn
from ..frame import keys
from ..widgets.marked_list import MarkedList
from .process_rows import SORTABLE, SortOrder, column_named


class SortScreen(ModalScreen[SortOrder | None]):
    """Asks for a column; the one in use, chosen again, is inverted."""

    BINDINGS = [*keys.SORT]

    def __init__(self, order: SortOrder) -> None:
        super().__init__()
        self._order = order

    def compose(self) -> ComposeResult:
        """Yield the columns."""
        with Vertical(classes="dialog -narrow"):
            yield Label("Sort processes by", classes="dialog--title")
            yield MarkedList((name, self._describe(name)) for name in SORTABLE)
            yield Label("Enter chooses, Esc cancels", classes="dialog--hint")

    def _describe(self, name: SortColumn) -> str:
        title = column_named(name).title
        word = title if len(title) <= 3 else title.lower()
        return f"{word}  (invert)" if name == self._order.column else word

    def on_mount(self) -> None:
        """Put the cursor on the column in use."""
        options = self.query_one(MarkedList)
        options.highlighted = SORTABLE.index(self._order.column)
        options.focus()

    def action_move(self, places: int) -> None:
        """Move the cursor."""
        self.query_one(MarkedList).move(places)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Answer with the order chosen."""
        name = SORTABLE[event.option_index]
        is_same = name == self._order.column
        self.dismiss(SortOrder(name, not self._order.is_inverted if is_same else False))
