"""Help: every key of the screen below, read from its bindings, and how the picture is read."""

from collections.abc import Iterator
from textwrap import wrap

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Label, Static

from ..draw.glyphs import Glyphs
from ..frame.keys import GROUP_TITLES, HELP, collect_keys

WIDTH = 92
"""Cells of the dialog where there is room."""
FRAME_CELLS = 5
"""Cells of its border, its padding and its scroll bar."""
MIN_SENTENCE_WIDTH = 16
STACKED_BELOW = 55
"""Cells below which a meaning stands under its key."""
INDENT = 4


class HelpScreen(ModalScreen[None]):
    """Lists the keys, grouped."""

    BINDINGS = [*HELP]

    def __init__(self, explained: Screen[object], glyphs: Glyphs) -> None:
        super().__init__()
        self._explained = explained
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        """Yield the text in a frame that scrolls."""
        with Vertical(classes="dialog -tall"):
            yield Label("vramscope: keys", classes="dialog--title")
            with VerticalScroll():
                yield Static(id="help-text")
            yield Label("Esc closes, up and down scroll", classes="dialog--hint")

    def on_mount(self) -> None:
        """Write the text for the width there is."""
        self._write()

    def on_resize(self) -> None:
        """Write the text anew for the new width."""
        self._write()

    def _write(self) -> None:
        dialog = min(WIDTH, self.app.size.width) - FRAME_CELLS
        self.query_one("#help-text", Static).update(Content("\n").join(self._lines(dialog)))

    def _lines(self, width: int) -> Iterator[Content]:
        groups = collect_keys(self._explained)
        column = 4 + max(len(key.keys) for keys in groups.values() for key in keys)
        for group, keys in groups.items():
            yield Content.styled(GROUP_TITLES.get(group, group.capitalize()), "bold")
            for key in keys:
                yield from _explain(key.keys, key.tooltip, column, width)
            yield Content("")
        yield Content.styled("Reading the picture", "bold")
        for sign, sentence in _legend(self._glyphs):
            yield from _explain(sign, sentence, column, width)

    def action_scroll(self, lines: int) -> None:
        """Scroll the text."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)


def _explain(sign: str, sentence: str, column: int, width: int) -> Iterator[Content]:
    """Yield what a key or a sign means; a sentence that is wrapped keeps to its column."""
    if width < STACKED_BELOW:
        yield Content.assemble((f"  {sign}", "bold $role-accent"))
        for line in wrap(sentence, max(MIN_SENTENCE_WIDTH, width - INDENT)):
            yield Content(" " * INDENT + line)
        return
    lines = wrap(sentence, max(MIN_SENTENCE_WIDTH, width - column))
    yield Content.assemble((f"  {sign:<{column - 2}}", "bold $role-accent"), lines[0])
    for line in lines[1:]:
        yield Content(" " * column + line)


def _legend(glyphs: Glyphs) -> Iterator[tuple[str, str]]:
    """Yield how gauges, marks and unmeasured values are read."""
    gauge = glyphs.full * 4 + glyphs.band * 2 + glyphs.empty * 4
    yield gauge, "A gauge runs from 0 to the device's total."
    split = glyphs.full * 4 + glyphs.cached * 2 + glyphs.rest + glyphs.empty * 3
    yield split, "Where training processes report: live tensors, what is cached, all else that is used."
    yield glyphs.band * 2, "Between the least and the most used within the tick."
    full, mostly, partly, stranded, free = tuple(glyphs.segment)
    yield f"{full}{mostly}{partly}", "A cell of a segment: all, most or little of it is in use."
    yield f"{stranded}{free}", "Free, and stranded beside what is in use; or to be given back."
    yield glyphs.unmeasured, "Nobody measured it; it is never shown as 0."
    for level, mark in glyphs.risks.items():
        yield mark, f"Risk of running out of memory: {level}."
