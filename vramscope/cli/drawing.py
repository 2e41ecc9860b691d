"""Whether a verb can draw a screen here; loads nothing that draws."""

from vramscope.engine.errors import UsageError
from vramscope.engine.settings import Settings


def can_draw(settings: Settings) -> bool:
    """Return whether there is a terminal for a screen; a poor one gets the text as a pipe does."""
    from vramscope.tui.frame.launch import check_terminal

    try:
        check_terminal(settings)
    except UsageError:
        return False
    return True
