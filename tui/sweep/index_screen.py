"""The screen of several sweeps: one line each; filter, order, and what the chosen one says."""

from collections.abc import Sequence
from typing import cast

from textual import events, on
from textual.app import ComposeResult
from textual.message import Message
from textual.widgets import Input

from ...analyzers.planning.sweep.index import (
    INDEX_COLUMNS,
    IndexColumn,
    IndexedSweep,
    SweepIndex,
    sort_sweeps,
)
from ...analyzers.planning.sweep.index_filter import EXPECTED, filter_sweeps
from ...analyzers.planning.sweep.verdict import judge_sweep
from ...engine.errors import UsageError
from ...exporters.sweep.index_text import describe_index
from .. import keys
from ..draw.glyphs import Glyphs
from ..inspect.text import TextScreen
from ..keys import KEYS_OF_THE_VIEW
from ..screens.choice import ChoiceScreen
from ..terminal.compositor import ThriftyScreen
from ..widgets.cursor_list import CursorList
from ..widgets.filter_bar import FilterBar
from ..widgets.key_line import KeyLine
from ..widgets.one_line import OneLine, Piece
from .export import SweepExport
from .facts import SweepFacts
from .list import SweepList, draw_rows

FACTS_FROM_ROWS = 16
REPORT_WIDTH = 88
HINT = "model=, gpus>=, state=, or words; Enter keeps, Esc clears"


class SweepIndexScreen(ThriftyScreen[None]):
    """Lists sweeps; Enter shows one.

    Args:
        glyphs: Characters to draw with.
        export: Writes figures.
    """

    BINDINGS = [*keys.SWEEP_INDEX]
    DEFAULT_CSS = """
    SweepIndexScreen {
        layout: vertical;
        #verdict { background: $surface; }
        #keys { background: $surface; }
        #list { height: 1fr; }
        #facts { height: 1fr; border-top: solid $role-faint; }
    }
    """

    class SweepChosen(Message):
        """A sweep is to be shown, among those that are listed."""

        def __init__(self, sweeps: Sequence[IndexedSweep], name: str) -> None:
            super().__init__()
            self.sweeps = sweeps
            self.name = name

    def __init__(self, glyphs: Glyphs, export: SweepExport) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._export = export
        self.index: SweepIndex | None = None
        """All sweeps, once they were read."""
        self._column: IndexColumn = "sweep"
        self._is_inverted = False
        self._filter_text = ""
        self._listed: list[IndexedSweep] = []
        self._title = OneLine(id="title")
        self._verdict = OneLine(id="verdict")
        self._filter = FilterBar(hint=HINT, example="such as: model=485B state=oom", id="filter")
        self._heading = OneLine(id="heading")
        self.list = SweepList(glyphs, id="list")
        self._facts = SweepFacts(glyphs, id="facts")
        self._keys = KeyLine(id="keys")

    def compose(self) -> ComposeResult:
        """Yield the parts, top to bottom."""
        yield self._title
        yield self._verdict
        yield self._filter
        yield self._heading
        yield self.list
        yield self._facts
        yield self._keys

    def on_mount(self) -> None:
        """Give the list the keys."""
        self._keys.hide(KEYS_OF_THE_VIEW)
        self.list.focus()

    def wait(self, sentence: str) -> None:
        """Say that the sweeps are being read."""
        self._title.set_pieces([Piece("vramscope sweep", "accent")])
        self._verdict.set_pieces([Piece(sentence)])

    def show(self, index: SweepIndex) -> None:
        """List sweeps."""
        self.index = index
        self._list()

    def _list(self) -> None:
        """List what the filter lets pass, in the order that was chosen."""
        if self.index is None:
            return
        try:
            self._listed = filter_sweeps(
                sort_sweeps(self.index.sweeps, self._column, is_inverted=self._is_inverted), self._filter_text
            )
            absence = f"No sweep matches{'; Esc shows all' if self._filter_text else ' --filter'}."
        except UsageError:
            self._listed = []
            absence = f"expected {EXPECTED}"
        self.list.show(self._listed, absence)
        self._write_lines()

    def _write_lines(self) -> None:
        if self.index is None:
            return
        width = self.size.width
        total = len(self.index.sweeps)
        sweep = self.list.sweep
        number = f"{total:,} sweeps" if len(self._listed) == total else f"{len(self._listed):,} of {total:,}"
        sign = " (inverted)" if self._is_inverted else ""
        filtered = f"   filter {self._filter_text}" if self._filter_text else ""
        self._title.set_pieces(
            [Piece("vramscope sweep  ", "accent"), Piece(f"{number}{filtered}", "muted")],
            [Piece(f"by {self._column}{sign}", "muted")],
        )
        verdict = "" if sweep is None else judge_sweep(sweep.grid).fit(max(1, width - 2))
        self._verdict.set_pieces([Piece(verdict, "strong")])
        self._heading.set_pieces(
            [Piece(draw_rows(self._listed, width - 2, self._glyphs.ellipsis)[0], "muted")]
        )
        self._facts.display = self.size.height >= FACTS_FROM_ROWS and sweep is not None
        if sweep is not None:
            self._facts.show([sweep], [sweep.best])

    @on(events.Resize)
    def fit_anew(self) -> None:
        """Write the lines anew."""
        self._write_lines()

    @on(CursorList.Chosen)
    def follow_cursor(self, message: CursorList.Chosen) -> None:
        """Say what the chosen sweep says."""
        message.stop()
        self._write_lines()

    @on(CursorList.Opened)
    def open_chosen(self, message: CursorList.Opened) -> None:
        """Have the chosen sweep shown."""
        message.stop()
        if self.list.sweep is not None:
            self.post_message(self.SweepChosen(self._listed, self.list.sweep.name))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: what is typed into the filter is no key."""
        return action != "filter" or not isinstance(self.focused, Input)

    def action_filter(self) -> None:
        """Open the filter."""
        self._filter.open()

    @on(FilterBar.TextChanged)
    def filter_sweeps(self, message: FilterBar.TextChanged) -> None:
        """Filter while typing."""
        message.stop()
        self._filter_text = message.text
        self._list()

    @on(FilterBar.Closed)
    def end_filter(self, message: FilterBar.Closed) -> None:
        """Give the keys to what was filtered."""
        message.stop()
        self.list.focus()

    def action_choose_sort(self) -> None:
        """Ask for what to sort by."""

        def sort(name: str | None) -> None:
            if name is not None:
                self._is_inverted = name == self._column and not self._is_inverted
                self._column = cast("IndexColumn", name)
                self._list()

        choices: dict[str, str] = {
            name: f"{name}  (invert)" if name == self._column else name for name in INDEX_COLUMNS
        }
        self.app.push_screen(ChoiceScreen("Sort sweeps by", choices, chosen=self._column), sort)

    def action_shift_sort(self, places: int) -> None:
        """Sort by the column before, or the next one."""
        at = INDEX_COLUMNS.index(self._column) + places
        self._column = INDEX_COLUMNS[at % len(INDEX_COLUMNS)]
        self._list()

    def action_invert_sort(self) -> None:
        """Sort the other way round."""
        self._is_inverted = not self._is_inverted
        self._list()

    def action_report(self) -> None:
        """Show the table and what each sweep says as text."""
        if self.index is not None:
            shown = SweepIndex(tuple(self._listed), self.index.notes)
            text = describe_index(shown, REPORT_WIDTH, found=len(self.index.sweeps))
            self.app.push_screen(TextScreen("Sweeps", "\n".join([text, *self.index.notes])))

    def action_export_figure(self) -> None:
        """Write the listed sweeps as small multiples."""
        if self._listed:
            self._export.write_several(self, self._listed)

    async def action_leave(self) -> None:
        """Drop the filter, or go out."""
        if self._filter_text:
            self._filter.action_clear()
        else:
            await self.run_action("app.step_back")
