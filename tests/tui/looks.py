"""What a test reads off a running app."""

from vramscope.tui.app import VramscopeApp
from vramscope.tui.screens.terminal_app import TerminalApp
from vramscope.tui.widgets.title_line import TitleLine


def notices(app: TerminalApp) -> list[str]:
    return app.notices.texts


def shown_screen(app: VramscopeApp) -> type[object]:
    return type(app.screen)


def shown_text(app: TerminalApp) -> str:
    """Return what is on the screen, without frames and with wrapped sentences in one piece."""
    lines = [strip.text.replace("│", " ") for strip in app.screen._compositor.render_strips()]
    return " ".join(" ".join(lines).split())


def title(app: VramscopeApp) -> str:
    return app.live.query_one(TitleLine).text
