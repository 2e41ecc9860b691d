"""The screen of several sweeps: a line each; filter, order, and the facts of the chosen one."""

from collections.abc import Callable, Sequence
from typing import cast

from textual import events, on
from textual.app import ComposeResult
from textual.widgets import Input

from ...analyzers.planning.sweep.index import (
    EXPECTED,
    INDEX_COLUMNS,
    IndexColumn,
    IndexedSweep,
    SweepIndex,
    filter_sweeps,
    judge_sweep,
    sort_sweeps,
)
from ...engine.errors import UsageError
from ...engine.settings import Settings
from ...exporters.sweep.text import ALIGNMENT, HEADINGS, describe_index, row_of
from ..draw.columns import join_columns, measure_columns
from ..draw.pieces import Piece
from ..draw.spans import Line, Span
from ..frame import keys
from ..frame.keys import KEYS_OF_THE_VIEW
from ..screens.dialogs import ChoiceScreen, TextScreen
from ..screens.file_view import FileScreen, FileView, show_file
from ..widgets.filter_bar import FilterBar
from ..widgets.line_page import RowTable
from ..widgets.one_line import OneLine
from .screen import ReplayAsked, SweepScreen, SweepView, export_several
from .words import SweepFacts

LEAST_NAME_CELLS = 16
MOST_NAME_CELLS = 44
GAP_CELLS = 2


class SweepList(RowTable[IndexedSweep]):
    BINDINGS = [*keys.SWEEP_LIST]

    def show(self, sweeps: Sequence[IndexedSweep], absence: str) -> None:
        """List sweeps; the cursor stays with its sweep. `absence` is the text of an empty list."""
        self.absence = absence
        self.list_rows(tuple(sweeps), key=lambda sweep: sweep.name)

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        self._texts = draw_rows(self.rows, width - 2, self.glyphs.ellipsis)[1:]
        return super()._compose_lines(width, height)

    def _draw_row(self, place: int, row: IndexedSweep, width: int) -> Line:
        is_chosen = place == self.chosen
        mark = Span(self.glyphs.selected if is_chosen else " ", "accent")
        return [mark, Span(self._texts[place], "strong" if is_chosen else "text")]


def draw_rows(sweeps: Sequence[IndexedSweep], width: int, ellipsis: str) -> list[str]:
    """Return the headings and a line for each sweep; columns that do not fit are left out from the right."""
    rows = [HEADINGS[1:], *map(row_of, sweeps)]
    widths = list(measure_columns(rows))
    while len(widths) > 2 and sum(widths) + GAP_CELLS * len(widths) + LEAST_NAME_CELLS > width:
        widths.pop()
    longest = max(len(sweep.name) for sweep in sweeps) if sweeps else 0
    room = width - sum(widths) - GAP_CELLS * len(widths)
    cells = max(LEAST_NAME_CELLS, min(longest, room, MOST_NAME_CELLS))
    names = [HEADINGS[0], *(sweep.name for sweep in sweeps)]
    count = len(widths)
    return [
        join_columns([name, *row[:count]], [cells, *widths], ALIGNMENT[: count + 1], ellipsis, gap=GAP_CELLS)
        for name, row in zip(names, rows, strict=True)
    ]


# Called with the number of layouts read, and of all.
Progress = Callable[[int, int], object]
ReadSweeps = Callable[[Progress], SweepIndex]

FACTS_FROM_ROWS = 16
REPORT_WIDTH = 88
HINT = "model=, gpus>=, state=, or words; Enter keeps, Esc clears"


class SweepIndexScreen(FileScreen[SweepIndex]):
    """Lists sweeps; Enter shows one.

    Args:
        replay: Called with a layout to be replayed.
        leave: What `Esc` does at the list.
        begin: What to show first; None for the list, or the grid of the only sweep.
    """

    BINDINGS = [*keys.SWEEP_INDEX]
    NAME = "vramscope sweep"
    DEFAULT_CSS = """
    SweepIndexScreen {
        #list { height: 1fr; }
        #facts { height: 1fr; border-top: solid $role-faint; }
    }
    """

    def __init__(
        self,
        *,
        replay: Callable[[ReplayAsked], object],
        leave: Callable[[], object],
        begin: SweepView | None = None,
    ) -> None:
        super().__init__()
        self._replay = replay
        self._leave = leave
        self._begin = begin
        self.index: SweepIndex | None = None
        self._column: IndexColumn = "sweep"
        self._is_inverted = False
        self._filter_text = ""
        self._listed: list[IndexedSweep] = []
        self._filter = FilterBar(hint=HINT, example="e.g. model=485B state=oom", id="filter")
        self._heading = OneLine(id="heading")
        self.list = SweepList(id="list")
        self._facts = SweepFacts(id="facts")

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._verdict
        yield self._filter
        yield self._heading
        yield self.list
        yield self._facts
        yield self._keys

    def on_mount(self) -> None:
        self._keys.hide(KEYS_OF_THE_VIEW)
        self.list.focus()

    def show(self, found: SweepIndex) -> None:
        """List sweeps; the only one, or the one that the user left for a replay, is shown at once."""
        self.index = found
        self._list()
        if self._begin is not None:
            self._open(found.sweeps, self._begin)
        elif len(found.sweeps) == 1:
            self._open(found.sweeps, SweepView(found.sweeps[0].name))

    def _open(self, sweeps: Sequence[IndexedSweep], view: SweepView) -> None:
        app = self.terminal_app
        app.show_further(SweepScreen(sweeps, view, replay=self._replay, leave=app.step_back))

    def _list(self) -> None:
        """List what passes the filter, in the chosen order."""
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
        sweep = self.list.current
        number = f"{total:,} sweeps" if len(self._listed) == total else f"{len(self._listed):,} of {total:,}"
        sign = " (reversed)" if self._is_inverted else ""
        filtered = f"   filter {self._filter_text}" if self._filter_text else ""
        self._title.set_pieces(
            [Piece("vramscope sweep  ", "accent"), Piece(f"{number}{filtered}", "muted")],
            [Piece(f"by {self._column}{sign}", "muted")],
        )
        verdict = "" if sweep is None else judge_sweep(sweep.grid).fit(max(1, width - 2))
        self._verdict.set_pieces([Piece(verdict, "strong")])
        self._heading.set_pieces(
            [Piece(draw_rows(self._listed, width - 2, self.glyphs.ellipsis)[0], "muted")]
        )
        self._facts.display = self.size.height >= FACTS_FROM_ROWS and sweep is not None
        if sweep is not None:
            self._facts.show([sweep], [sweep.best])

    @on(events.Resize)
    def fit(self) -> None:
        self._write_lines()

    @on(RowTable.Chosen)
    def follow_cursor(self, message: RowTable.Chosen) -> None:
        message.stop()
        self._write_lines()

    @on(RowTable.Opened)
    def open_chosen(self, message: RowTable.Opened) -> None:
        message.stop()
        if self.list.current is not None:
            self._open(self._listed, SweepView(self.list.current.name))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: a key typed into the filter is text."""
        return action != "filter" or not isinstance(self.focused, Input)

    def action_filter(self) -> None:
        self._filter.open()

    @on(FilterBar.TextChanged)
    def filter_sweeps(self, message: FilterBar.TextChanged) -> None:
        message.stop()
        self._filter_text = message.text
        self._list()

    @on(FilterBar.Closed)
    def end_filter(self, message: FilterBar.Closed) -> None:
        message.stop()
        self.list.focus()

    def action_choose_sort(self) -> None:
        def sort(name: str | None) -> None:
            if name is not None:
                self._is_inverted = name == self._column and not self._is_inverted
                self._column = cast("IndexColumn", name)
                self._list()

        choices: dict[str, str] = {
            name: f"{name}  (reverse)" if name == self._column else name for name in INDEX_COLUMNS
        }
        self.app.push_screen(ChoiceScreen("Sort sweeps by", choices, chosen=self._column), sort)

    def action_shift_sort(self, places: int) -> None:
        at = INDEX_COLUMNS.index(self._column) + places
        self._column = INDEX_COLUMNS[at % len(INDEX_COLUMNS)]
        self._list()

    def action_invert_sort(self) -> None:
        self._is_inverted = not self._is_inverted
        self._list()

    def action_report(self) -> None:
        if self.index is not None:
            shown = SweepIndex(tuple(self._listed), self.index.notes)
            text = describe_index(shown, REPORT_WIDTH, found=len(self.index.sweeps))
            self.app.push_screen(TextScreen("Sweeps", "\n".join([text, *self.index.notes])))

    def action_export_figure(self) -> None:
        if self._listed:
            export_several(self, self._listed)

    def action_leave(self) -> None:
        if self._filter_text:
            self._filter.action_clear()
        else:
            self._leave()


def view_sweeps(
    read: ReadSweeps, asked: list[ReplayAsked], *, begin: SweepView | None = None, notice: str = ""
) -> FileView[SweepIndexScreen, SweepIndex]:
    """Return the view of sweeps, which ends with the layout to be replayed."""

    def leave_for_replay(layout: ReplayAsked) -> None:
        asked.append(layout)
        view.app.exit()

    def show_notice(_: SweepIndex) -> None:
        if notice:
            view.app.notify(notice, severity="error")

    view = FileView(
        lambda app: SweepIndexScreen(replay=leave_for_replay, leave=app.exit, begin=begin),
        lambda: read(
            lambda done, total: view.report_progress(
                f"reading sweeps: {done:,} of {total:,} layouts; q leaves"
            )
        ),
        lambda _: "looking for sweeps; q leaves",
        then=show_notice,
    )
    return view


def show_sweeps(
    read: ReadSweeps, *, settings: Settings, begin: SweepView | None = None, notice: str = ""
) -> tuple[int, ReplayAsked | None]:
    """Show sweeps until the user quits or asks for a replay; return the exit code, and that layout.

    Raises:
        UsageError: Nothing can be drawn here.
        InputFileError: A folder cannot be read, or there is no sweep in any.
    """
    asked: list[ReplayAsked] = []
    code = show_file(view_sweeps(read, asked, begin=begin, notice=notice), settings)
    return code, asked[0] if asked else None
