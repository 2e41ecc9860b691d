"""Help: every key of the screen below, read from its bindings, and how the picture is read."""

from collections.abc import Iterator

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Label, Static

from ..drawing.glyphs import Glyphs
from ..key_help import GROUP_TITLES, collect_keys

KEYS_WIDTH = 14


class HelpScreen(ModalScreen[None]):
    """Lists the keys, grouped."""

    BINDINGS = [
        Binding(
            "escape,question_mark,f1,q,enter,1",
            "dismiss",
            "close",
            id="help-close",
            tooltip="Close the help.",
        ),
        Binding("down,j", "scroll(1)", "down", show=False, id="help-down", tooltip="Scroll down."),
        Binding("up,k", "scroll(-1)", "up", show=False, id="help-up", tooltip="Scroll up."),
    ]

    def __init__(self, explained: Screen[object], glyphs: Glyphs) -> None:
        super().__init__()
        self._explained, self._glyphs = explained, glyphs

    def compose(self) -> ComposeResult:
        """Yield the text in a frame that scrolls."""
        with Vertical(classes="dialog -tall"):
            yield Label("vramscope: keys", classes="dialog--title")
            with VerticalScroll():
                yield Static(Content("\n").join(self._lines()))
            yield Label("Esc closes, up and down scroll", classes="dialog--hint")

    def _lines(self) -> Iterator[Content]:
        for group, keys in collect_keys(self._explained).items():
            yield Content.styled(GROUP_TITLES.get(group, group.capitalize()), "bold")
            for key in keys:
                yield Content.assemble((f"  {key.keys:<{KEYS_WIDTH}}", "bold $role-accent"), key.tooltip)
            yield Content("")
        yield Content.styled("Reading the picture", "bold")
        yield from map(Content, _legend(self._glyphs))

    def action_scroll(self, lines: int) -> None:
        """Scroll the text."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)


def _legend(glyphs: Glyphs) -> Iterator[str]:
    """Yield how gauges, marks and unmeasured values are read."""
    risks = "  ".join(f"{mark} {level}" for level, mark in glyphs.risks.items())
    gauge = glyphs.full * 4 + glyphs.band * 2 + glyphs.empty * 4
    yield f"  {gauge}       A gauge runs from 0 to the device's total."
    yield f"  {glyphs.band * 2}               Between the least and the most used within the tick."
    yield f"  {glyphs.unmeasured}                Nobody measured it; it is never shown as 0."
    yield f"  Risk of running out of memory: {risks}"
