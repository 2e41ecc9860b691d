"""Tools over a view: what a key opens, each in the file `tool.py` of its room."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..frame.keys import TOOLS

if TYPE_CHECKING:
    from ...engine.viewer.snapshot import Snapshot
    from ..app import VramscopeApp
    from ..screens.dialogs import Answer

FoundT = TypeVar("FoundT")


class Tool:
    """Opens a screen over the view. Loaded with the view, so it imports the screen when it opens it."""

    # Reads what the tool shows; set by who starts the view. Raises a `VramscopeError`.
    read: Callable[..., Any] | None = None

    def __init__(self, app: "VramscopeApp") -> None:
        self._app = app

    @property
    def is_offered(self) -> bool:
        """Whether its key is offered."""
        return True

    @property
    def takes_steps(self) -> bool:
        """Whether `[`, `]`, Tab and Shift+Tab move in its screen now, not in the view below."""
        return False

    def show(self) -> None:
        """Do what its key does."""
        raise NotImplementedError

    def observe(self, snapshots: "Sequence[Snapshot]") -> None:
        """Called with every snapshot, before it is drawn."""

    def forget(self) -> None:
        """Called when the view turns to another run, or to an earlier moment of a replay."""


class PromptTool(Tool, Generic[FoundT]):
    """A prompt asks for words, a thread reads what they name, and a screen shows it."""

    QUESTION = ""
    EXAMPLE = ""
    HINT = ""
    # The last input.
    text = "."

    @property
    def is_offered(self) -> bool:
        return self.read is not None

    def show(self) -> None:
        self.ask()

    def ask(self) -> None:
        if self.read is not None:
            self._prompt(self.read, self.HINT)

    def _prompt(self, read: Callable[[str], FoundT], hint: str) -> None:
        from ..screens.dialogs import PathPrompt

        prompt = PathPrompt(self.QUESTION, read, text=self.text, example=self.EXAMPLE, hint=hint)
        self._app.push_screen(prompt, self._open_answer)

    def _open_answer(self, answer: "Answer[FoundT] | None") -> None:
        if answer is not None:
            self.text = answer.text
            self.open(answer.found)

    def open(self, found: FoundT) -> None:
        raise NotImplementedError


def make_tools(app: "VramscopeApp") -> dict[str, Tool]:
    """Return the tools by their rooms: of each, `TOOL` of its file `tool.py`."""
    return {room: import_module(f"..{room}.tool", __package__).TOOL(app) for room in TOOLS}
