"""A text that was asked for, in a dialog that scrolls: a whole stack, the report, what failed."""

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Label, Static

from ..frame import keys


class TextScreen(ModalScreen[None]):
    """Shows a text as it is.

    Args:
        heading: What it is.
        text: Its lines.
    """

    BINDINGS = [*keys.TEXT]

    def __init__(self, heading: str, text: str) -> None:
        super().__init__()
        self._heading = heading
        self._text = text

    def compose(self) -> ComposeResult:
        """Yield the text in a frame that scrolls."""
        with Vertical(classes="dialog -listing"):
            yield Label(self._heading, classes="dialog--title", markup=False)
            with VerticalScroll():
                yield Static(self._text, markup=False)
            yield Label("Esc closes, up and down scroll", classes="dialog--hint")

    def action_scroll(self, lines: int) -> None:
        """Scroll the text."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        """Scroll by the height of the window."""
        scroll = self.query_one(VerticalScroll)
        scroll.scroll_relative(y=pages * max(1, scroll.size.height - 1), animate=False)
