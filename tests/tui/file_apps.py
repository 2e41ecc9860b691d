"""Applications that show what is read from files, as tests open them."""

from pathlib import Path
from typing import Any, TypeVar

from textual.screen import Screen

from vramscope.tui.screens.file_view import FileView
from vramscope.tui.screens.terminal_app import TerminalApp
from vramscope.tui.terminal.abilities import TerminalAbilities

from .canned import StillClock

ScreenT = TypeVar("ScreenT", bound=Screen[None])


def make_file_app(
    view: FileView[Any, Any], folder: Path | None = None, abilities: TerminalAbilities | None = None
) -> TerminalApp:
    """Return the application of a view, which exports into a folder."""
    return TerminalApp(
        abilities or TerminalAbilities(),
        view=view,
        clock=StillClock(),
        export_folder=folder,
        driver_class=None,
    )


def first_screen(app: TerminalApp, kind: type[ScreenT]) -> ScreenT:
    """Return the screen that shows what is read."""
    screen = app.screen_stack[0]
    assert isinstance(screen, kind)
    return screen


def refusal_of(app: TerminalApp) -> Exception | None:
    """Return why nothing could be shown."""
    assert app.view is not None
    return app.view.refusal
