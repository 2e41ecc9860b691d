"""Dialogs: a choice, the help, notes, a path to read, a text that scrolls."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Generic, NamedTuple, TypeVar, cast

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, Label, OptionList, Static
from textual.widgets.option_list import Option

from ..draw.glyphs import Glyphs
from ..frame import keys
from ..frame.background import run_in_background
from ..frame.keys import GROUP_TITLES, collect_keys
from ..terminal.compositor import HasGlyphs

MARK = "▸ "


class MarkedList(OptionList):
    """Marks the line under the cursor; `j` and `k` of the screens move it by `move`."""

    def __init__(self, lines: Iterable[tuple[str, str]]) -> None:
        """Make the list; lines are pairs of id and text."""
        self._texts = dict(lines)
        options = [Option(" " * len(MARK) + text, id=id) for id, text in self._texts.items()]
        super().__init__(*options, compact=True, markup=False)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        for id, text in self._texts.items():
            prefix = MARK if id == event.option_id else " " * len(MARK)
            self.replace_option_prompt(id, prefix + text)

    def rename(self, texts: Mapping[str, str]) -> None:
        """Give the lines of these ids other texts."""
        self._texts.update(texts)
        for at, (id, text) in enumerate(self._texts.items()):
            prefix = MARK if at == self.highlighted else " " * len(MARK)
            self.replace_option_prompt(id, prefix + text)

    def move(self, places: int) -> None:
        (self.action_cursor_down if places > 0 else self.action_cursor_up)()


class ChoiceScreen(ModalScreen[str | None]):
    """Asks for one of a few things (text by id), the cursor on `chosen` or the first; Escape chooses none."""

    BINDINGS = [*keys.CHOICE]

    def __init__(self, title: str, choices: Mapping[str, str], *, chosen: str | None = None) -> None:
        super().__init__()
        self._question = title
        self._choices = dict(choices)
        self._chosen = chosen

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -question"):
            yield Label(self._question, classes="dialog--title", markup=False)
            yield MarkedList(self._choices.items())
            yield Label("Enter chooses, Esc cancels", classes="dialog--hint")

    def on_mount(self) -> None:
        options = self.query_one(MarkedList)
        options.highlighted = 0 if self._chosen is None else list(self._choices).index(self._chosen)
        options.focus()

    def action_move(self, places: int) -> None:
        self.query_one(MarkedList).move(places)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)


# Cells of the dialog where there is room.
WIDTH = 92
# Cells of its border, its padding and its scroll bar.
FRAME_CELLS = 5
MIN_SENTENCE_WIDTH = 16
# Below this width, a meaning is under its key.
STACKED_BELOW = 55
INDENT = 4


# Rows of a scrolling dialog besides its text: border, title, hint, and a free row on each side of the text.
FRAME_ROWS = 6


class _ScrollingDialog(ModalScreen[None]):
    """A dialog with a text that can be longer than it.

    Its `VerticalScroll` has no focus: of the presses that come before a frame its own keys follow only one.
    """

    def on_resize(self) -> None:
        # As high as its text, but no higher than leaves the hint below it in sight.
        self.query_one(VerticalScroll).styles.max_height = max(1, self.size.height - FRAME_ROWS)

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False, immediate=True)

    def action_page(self, pages: int) -> None:
        self.action_scroll(pages * max(1, self.query_one(VerticalScroll).size.height - 1))


class HelpScreen(_ScrollingDialog):
    """Lists the keys, grouped."""

    BINDINGS = [*keys.HELP]

    def __init__(self, explained: Screen[object]) -> None:
        super().__init__()
        self._explained = explained

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -tall"):
            yield Label("vramscope: keys", classes="dialog--title")
            with VerticalScroll(can_focus=False):
                yield Static(id="help-text")
            yield Label("Esc closes, up and down scroll", classes="dialog--hint")

    def on_mount(self) -> None:
        self._write()

    def on_resize(self) -> None:
        self._write()

    def _write(self) -> None:
        dialog = min(WIDTH, self.app.size.width) - FRAME_CELLS
        self.query_one("#help-text", Static).update(Content("\n").join(self._lines(dialog)))

    def _lines(self, width: int) -> Iterator[Content]:
        groups = collect_keys(self._explained)
        column = 4 + max(len(key.keys) for entries in groups.values() for key in entries)
        for group, entries in groups.items():
            yield Content.styled(GROUP_TITLES.get(group, group.capitalize()), "bold")
            for key in entries:
                yield from _explain(key.keys, key.tooltip, column, width)
            yield Content("")
        yield Content.styled("Symbols", "bold")
        for sign, sentence in _legend(cast(HasGlyphs, self.app).glyphs):
            yield from _explain(sign, sentence, column, width)


def _explain(sign: str, sentence: str, column: int, width: int) -> Iterator[Content]:
    """Yield the meaning of a key or a sign; a wrapped sentence keeps to its column."""
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
    """Yield how to read gauges, marks and unmeasured values."""
    gauge = glyphs.full * 4 + glyphs.band * 2 + glyphs.empty * 4
    yield gauge, "A gauge runs from 0 to the device's total."
    split = glyphs.full * 4 + glyphs.cached * 2 + glyphs.rest + glyphs.empty * 3
    yield split, "With training processes that report: live tensors, cached, other used memory."
    yield glyphs.band * 2, "Between the least and the most memory used within the tick."
    full, mostly, partly, stranded, free = tuple(glyphs.segment)
    yield f"{full}{mostly}{partly}", "Part of a segment: all, most or little of it is in use."
    yield f"{stranded}{free}", "Free memory of a segment: stranded, or can be given back."
    yield glyphs.unmeasured, "Not measured; never shown as 0."
    for level, mark in glyphs.risks.items():
        yield mark, f"Risk of running out of memory: {level}."


class NotesScreen(_ScrollingDialog):
    BINDINGS = [*keys.NOTES_DIALOG]

    def __init__(self, notes: Sequence[str]) -> None:
        super().__init__()
        self._notes = tuple(notes)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -listing"):
            yield Label("Notes", classes="dialog--title")
            with VerticalScroll(can_focus=False):
                for note in self._notes or ("No notes.",):
                    yield Static(note, classes="dialog--note", markup=False)
            yield Label("Esc closes, up and down scroll", classes="dialog--hint")


FoundT = TypeVar("FoundT")


class Answer(NamedTuple, Generic[FoundT]):
    """The path entered, and what was read there."""

    text: str
    found: FoundT


class PathPrompt(ModalScreen[Answer[FoundT] | None]):
    """Asks for a path (or a name), reads it on a thread, and answers with both; Escape answers with None.

    An error is shown below the field, and the question stays.

    Args:
        title: The question.
        read: Reads what was entered; called on a thread, raises a `VramscopeError` that says what is wrong.
        text: Initial text of the field.
        example: Placeholder of an empty field.
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
        with Vertical(classes="dialog"):
            yield Label(self._question, classes="dialog--title", markup=False)
            field = Input(self._first_text, placeholder=self._example, compact=True)
            field.cursor_blink = False
            yield field
            yield Label(self._hint, id="prompt-hint", classes="dialog--hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Remove the error of the previous text."""
        event.stop()
        if not self._is_reading:
            self._write_hint(self._hint)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        text = event.value.strip()
        if self._is_reading or not text:
            return
        self._is_reading = True
        self._write_hint("reading; Esc cancels")
        run_in_background(
            self,
            lambda: Answer(text, self._read(text)),
            then=self._answer,
            # What is typed here has the flags of a command line.
            otherwise=lambda error: self._report_error(error.describe("flag")),
        )

    def action_cancel(self) -> None:
        """Answer with None; a read in progress is abandoned."""
        self.dismiss(None)

    def _report_error(self, reason: str) -> None:
        if self.is_current:
            self._is_reading = False
            self._write_hint(reason)

    def _answer(self, answer: Answer[FoundT]) -> None:
        if self.is_current:
            self.dismiss(answer)

    def _write_hint(self, text: str) -> None:
        self.query_one("#prompt-hint", Label).update(text)


# Width of the texts in it, where there is room.
REPORT_WIDTH = 86
_LEAST_WIDTH = 40
# Cells for the frame and the scroll bar.
_FRAME_CELLS = 6


class TextScreen(_ScrollingDialog):
    """Shows a text as it is, or what a function returns for the width that there is."""

    BINDINGS = [*keys.TEXT]

    def __init__(self, heading: str, text: str | Callable[[int], str]) -> None:
        super().__init__()
        self._heading = heading
        self._text = text

    @property
    def _fitted(self) -> str:
        if isinstance(self._text, str):
            return self._text
        return self._text(max(_LEAST_WIDTH, min(REPORT_WIDTH, self.app.size.width - _FRAME_CELLS)))

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -listing"):
            yield Label(self._heading, classes="dialog--title", markup=False)
            with VerticalScroll(can_focus=False):
                yield Static(self._fitted, id="text", markup=False)
            yield Label("Esc closes, up and down scroll", classes="dialog--hint")

    def on_resize(self) -> None:
        self.query_one("#text", Static).update(self._fitted)
