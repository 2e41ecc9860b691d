"""The filter bar: a line to type into, above the process table while it is in use."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Label

from ..frame import keys

HINT = "in user, PID, pod, job, command; Enter keeps, Esc clears"
# Cells for the label and the words.
LEAST_WORDS_CELLS = 22


class FilterBar(Horizontal):
    """Asks for words to filter by; Enter keeps them, Esc clears them."""

    DEFAULT_CSS = """
    FilterBar {
        height: 1;
        display: none;
        background: $surface;
        Label { width: auto; padding: 0 1; color: $role-accent; }
        .filter-bar--hint { color: $role-muted; }
        &.-narrow .filter-bar--hint { display: none; }
        Input { width: 1fr; height: 1; border: none; padding: 0; background: $surface; }
    }
    """

    BINDINGS: ClassVar = [*keys.FILTER_BAR]

    def __init__(self, *, hint: str = HINT, example: str = "e.g. rank 7", id: str | None = None) -> None:
        super().__init__(id=id)
        self._hint = hint
        self._example = example

    class TextChanged(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Closed(Message):
        pass

    def compose(self) -> ComposeResult:
        yield Label("filter /")
        field = Input(placeholder=self._example, compact=True)
        field.cursor_blink = False
        yield field
        yield Label(self._hint, classes="filter-bar--hint")

    def on_resize(self) -> None:
        """Leave the hint out where the words would have no room."""
        self.set_class(self.size.width < len(self._hint) + LEAST_WORDS_CELLS, "-narrow")

    def open(self) -> None:
        self.display = True
        # At once and not after the next refresh: whoever types fast means the filter already.
        self.screen.set_focus(self.query_one(Input))

    def action_clear(self) -> None:
        self.query_one(Input).value = ""
        self._close()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.TextChanged(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._close()

    def _close(self) -> None:
        self.display = False
        self.post_message(self.Closed())
