"""The notes in full: what limits the figures, what was looked for and not found, what was left out."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Label, Static


class NotesScreen(ModalScreen[None]):
    """Lists the notes as they stood when they were asked for."""

    BINDINGS = [
        Binding("escape,i,q,enter,1", "dismiss", "close", id="notes-close", tooltip="Close the notes."),
        Binding("down,j", "scroll(1)", "down", show=False, id="notes-down", tooltip="Scroll down."),
        Binding("up,k", "scroll(-1)", "up", show=False, id="notes-up", tooltip="Scroll up."),
    ]

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
