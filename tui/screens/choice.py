"""A small menu: one of a few words, chosen by Enter."""

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList

from ..frame import keys
from ..widgets.marked_list import MarkedList


class ChoiceScreen(ModalScreen[str | None]):
    """Asks for one of a few things; Escape chooses none.

    Args:
        title: What is asked.
        choices: Id and text of each.
        chosen: Id that the cursor begins at; None for the first.
    """

    BINDINGS = [*keys.CHOICE]

    def __init__(self, title: str, choices: Mapping[str, str], *, chosen: str | None = None) -> None:
        super().__init__()
        self._question = title
        self._choices = dict(choices)
        self._chosen = chosen

    def compose(self) -> ComposeResult:
        """Yield the choices."""
        with Vertical(classes="dialog -question"):
            yield Label(self._question, classes="dialog--title", markup=False)
            yield MarkedList(self._choices.items())
            yield Label("Enter chooses, Esc cancels", classes="dialog--hint")

    def on_mount(self) -> None:
        """Put the cursor on the choice in use."""
        options = self.query_one(MarkedList)
        options.highlighted = 0 if self._chosen is None else list(self._choices).index(self._chosen)
        options.focus()

    def action_move(self, places: int) -> None:
        """Move the cursor."""
        self.query_one(MarkedList).move(places)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Answer with the choice."""
        self.dismiss(event.option_id)
