"""A question: which moment of a recording to go to."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from ...engine.errors import UsageError
from ...engine.replay.player import EXPECTED, parse_moment
from ...engine.viewer.snapshot import ReplayState
from ..frame import keys


class GoToScreen(ModalScreen[str | None]):
    """Asks for a moment and gives it back as it was written; Escape gives back none.

    Args:
        replay: Where the replay is, to tell what is no moment of it.
    """

    BINDINGS = [*keys.GO_TO]

    def __init__(self, replay: ReplayState) -> None:
        super().__init__()
        self._replay = replay

    def compose(self) -> ComposeResult:
        """Yield the question."""
        with Vertical(classes="dialog"):
            yield Label("Go to", classes="dialog--title")
            field = Input(placeholder="such as: 35%", compact=True)
            field.cursor_blink = False
            yield field
            yield Label(f"{EXPECTED}; Esc cancels", id="goto-hint", classes="dialog--hint", markup=False)

    def on_mount(self) -> None:
        """Give the field the keys."""
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer with the moment, or say why it is none."""
        event.stop()
        try:
            parse_moment(event.value, self._replay)
        except UsageError as error:
            self.query_one("#goto-hint", Label).update(str(error))
            return
        self.dismiss(event.value)
