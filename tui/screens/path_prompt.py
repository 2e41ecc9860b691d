"""A question: which file or folder to open, which is read before the question goes away."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from ..frame import keys
from ..frame.background import do_beside

FoundT = TypeVar("FoundT")


class Answer(NamedTuple, Generic[FoundT]):
    """What was entered, and what was read there."""

    text: str
    found: FoundT


class PathPrompt(ModalScreen[Answer[FoundT] | None]):
    """Asks for a path (or a name), reads what is there on a thread, and answers with both; Escape with none.

    What is wrong with it stands below the field, and the question stays.

    Args:
        title: What is asked for.
        read: Reads what was entered; called on a thread, raises a `VramscopeError` that says what is wrong.
        text: What stands in the field at first.
        example: What is seen in an empty field.
        hint: What may be entered.
    """

    BINDINGS = [*keys.PATH_PROMPT]

    def __init__(
        self, title: str, read: Callable[[str], FoundT], *, text: str = "", example: str = "", hint: str = ""
    ) -> None:
        super().__init__()
        self._question = title
        self._read = read
        self._first_text = text
        self._example = example
        self._hint = f"{hint}; Esc cancels" if hint else "Esc cancels"
        self._is_reading = False

    def compose(self) -> ComposeResult:
        """Yield the question."""
        with Vertical(classes="dialog"):
            yield Label(self._question, classes="dialog--title", markup=False)
            field = Input(self._first_text, placeholder=self._example, compact=True)
            field.cursor_blink = False
            yield field
            yield Label(self._hint, id="prompt-hint", classes="dialog--hint", markup=False)

    def on_mount(self) -> None:
        """Give the field the keys."""
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Take back what was said of another text."""
        event.stop()
        if not self._is_reading:
            self._tell(self._hint)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Read what was entered."""
        event.stop()
        text = event.value.strip()
        if self._is_reading or not text:
            return
        self._is_reading = True
        self._tell("reading; Esc cancels")
        do_beside(
            self,
            lambda: Answer(text, self._read(text)),
            then=self._answer,
            otherwise=lambda error: self._refuse(str(error)),
        )

    def action_cancel(self) -> None:
        """Answer with nothing; what is being read is left to itself."""
        self.dismiss(None)

    def _refuse(self, reason: str) -> None:
        if self.is_current:
            self._is_reading = False
            self._tell(reason)

    def _answer(self, answer: Answer[FoundT]) -> None:
        if self.is_current:
            self.dismiss(answer)

    def _tell(self, text: str) -> None:
        self.query_one("#prompt-hint", Label).update(text)
