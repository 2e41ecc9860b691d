"""The notes in full: what limits the figures, what was looked for and not found, what was left out."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Label, Static

from ..frame import keys


class NotesScreen(ModalScreen[None]):
    """Lists the notes as they stood when they were asked for."""

    BINDINGS = [*keys.NOTES_DIALOG]

    def __init__(self, notes: Sequence[str]) -> None:
        super().__init__()
        self._notes = tuple(notes)

    def compose(self) -> ComposeResult:
        """Yield the notes in a frame that scrolls."""
        with Vertical(classes="dialog -listing"):
            yield Label("Notes", classes="dialog--title")
            with VerticalScroll():
                for note in self._notes or ("There is nothing to note.",):
                    yield Static(note, classes="dialog--note", markup=False)
            yield Label("Esc closes, up and down scroll", classes="dialog--hint")

    def action_scroll(self, lines: int) -> None:
        """Scroll the text."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)
