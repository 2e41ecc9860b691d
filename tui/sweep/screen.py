"""The screen of a sweep: a verdict, the grid, the marked layout; or two sweeps side by side."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.message import Message
from textual.screen import Screen
from textual.strip import Strip

from ...analyzers.planning.sweep import STATE_WORDS, Place, SweepCell, SweepGrid
from ...analyzers.planning.sweep.index import IndexedSweep, judge_sweep
from ...engine.errors import VramscopeError
from ...engine.files.base.input_file import show_path
from ...exporters.sweep.text import describe_figure, describe_sweep
from ..draw.pieces import Piece
from ..frame import keys
from ..frame.background import run_in_background
from ..frame.keys import KEYS_OF_THE_VIEW
from ..frame.theme import role_rules
from ..screens.dialogs import TextScreen
from ..terminal.compositor import ThriftyScreen
from ..widgets.line_page import MarkingWidget
from ..widgets.one_line import KeyLine, OneLine
from .lines import (
    COLUMN_CELLS,
    MODE_WORDS,
    Look,
    Part,
    ShownGrid,
    SweepMode,
    Window,
    cell_rules,
    draw_edge,
    draw_lines,
    look_classes,
    prepare_grid,
)
from .words import SweepFacts, name_sweeps

if TYPE_CHECKING:
    from ..screens.terminal_app import TerminalApp


# A sentence with names of files takes longer to read.
NOTE_S = 8.0


def export_one(screen: Screen[None], sweep: IndexedSweep) -> None:
    """Write the heat map of a sweep: PDF, SVG, PNG, CSV and a text version."""

    def write(base: Path) -> Sequence[Path]:
        from ...exporters.sweep.look import SweepLook
        from ...exporters.sweep.page import write_heat_map

        return write_heat_map(sweep.grid, sweep.findings, base, SweepLook())[1]

    _start(screen, write)


def export_several(screen: Screen[None], sweeps: Sequence[IndexedSweep]) -> None:
    """Write several sweeps as small multiples."""

    def write(base: Path) -> Sequence[Path]:
        from ...exporters.sweep.look import SweepLook
        from ...exporters.sweep.page import write_multiples

        return write_multiples(sweeps, base, SweepLook())

    _start(screen, write)


def _start(screen: Screen[None], write: Callable[[Path], Sequence[Path]]) -> None:
    app = cast("TerminalApp", screen.app)
    folder = app.export_folder or Path.cwd()
    base = folder / f"vramscope-sweep-{datetime.fromtimestamp(app.clock.wall_s()):%Y%m%d-%H%M%S}"
    screen.notify("Drawing the figure…", timeout=3)

    def notify_written(paths: Sequence[Path]) -> None:
        endings = ", ".join(path.name.removeprefix(base.name) for path in paths)
        message = f"Wrote {base.name} ({endings}) to {show_path(folder)}"
        screen.notify(message, timeout=NOTE_S)

    def refuse(error: VramscopeError) -> None:
        screen.notify(f"Not exported: {error}", severity="error", timeout=NOTE_S)

    run_in_background(screen, lambda: write(base), then=notify_written, otherwise=refuse)


_PREFIX = "sweep-grid"


class SweepGridView(MarkingWidget, can_focus=True):
    """Draws a grid and moves a mark in it."""

    BINDINGS = [*keys.SWEEP_GRID]
    COMPONENT_CLASSES = look_classes(_PREFIX)
    DEFAULT_CSS = (
        f"SweepGridView {{ height: 1fr; width: 1fr; \n{role_rules(_PREFIX)}\n{cell_rules(_PREFIX)}\n}}"
    )

    class Moved(Message):
        def __init__(self, view: "SweepGridView") -> None:
            super().__init__()
            self.view = view

    class Opened(Moved):
        """The marked cell is to be replayed."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: ShownGrid | None = None
        self._mode: SweepMode = "memory"
        self._first: Mapping[Place, SweepCell] | None = None
        self._row = self._column = self._top = self._left = 0
        self._is_marked = True
        self._lines: list[list[Part]] = []
        self._strips: list[Strip] = []
        self._looks: dict[Look, Style] = {}

    @property
    def marked(self) -> SweepCell | None:
        """The cell under the mark; None where this grid does not have that place."""
        shown = self._shown if self._is_marked else None
        return None if shown is None else self.cells[shown.rows[self._row], shown.columns[self._column]]

    @property
    def cells(self) -> Mapping[Place, SweepCell]:
        """The drawn cells, by TP and PP."""
        return {} if self._shown is None else self._shown.drawn.cells

    def show(self, grid: SweepGrid, place: Place | None = None) -> None:
        """Draw a grid with the mark at a place, or at the best layout where the grid does not have that
        place.
        """
        shown = self._shown = prepare_grid(grid)
        self._top = self._left = self._row = self._column = 0
        if place is not None and place in shown.drawn.cells:
            self.mark(place)
        elif shown.best is not None:
            self.mark(shown.best.place)
        self._draw()

    def set_mode(self, mode: SweepMode, first: Mapping[Place, SweepCell] | None = None) -> None:
        """Set what cells show; `first` has the cells that `difference` subtracts."""
        self._mode = mode
        self._first = first
        self._draw()

    def mark(self, place: Place) -> None:
        """Put the mark on a place; without one in this grid, there is no mark."""
        self._is_marked = place in self.cells
        if self._shown is not None and self._is_marked:
            self._row = self._shown.rows.index(place[0])
            self._column = self._shown.columns.index(place[1])
        self._draw()

    def describe_part(self) -> str:
        """Return which rows and columns are visible; empty where all are."""
        shown = self._shown
        window = self._fit()
        if shown is None or window is None:
            return ""
        ranges = []
        for name, values, start, size in (
            ("TP", shown.rows, window.top, window.down),
            ("PP", shown.columns, window.left, window.across),
        ):
            if size < len(values):
                last = values[min(start + size, len(values)) - 1]
                ranges.append(f"{name} {values[start]}–{last} of {values[-1]}")
        return ", ".join(ranges)

    def measure_rows(self, *, is_spaced: bool) -> int:
        """Return the rows that the whole grid takes, with lines for the staircase or without."""
        rows = 0 if self._shown is None else len(self._shown.rows)
        return 1 + (2 * rows if is_spaced else rows)

    def on_resize(self) -> None:
        self._draw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._looks = {}
        self._lines = []
        if self.is_mounted:
            self.call_next(self._draw)

    def action_move(self, columns: int, rows: int) -> None:
        if self._shown is None:
            return
        before = (self._row, self._column) if self._is_marked else None
        self._is_marked = True
        self._row = max(0, min(self._row + rows, len(self._shown.rows) - 1))
        self._column = max(0, min(self._column + columns, len(self._shown.columns) - 1))
        if before != (self._row, self._column):
            self._draw()
            self.post_message(self.Moved(self))

    def action_page(self, pages: int) -> None:
        window = self._fit()
        if window is not None:
            self.action_move(0, pages * max(1, window.down - 1))

    def action_end(self, end: int) -> None:
        """Mark the first cell of the row, or the last one."""
        self.action_move(keys.FAR if end else -keys.FAR, 0)

    def action_go_best(self) -> None:
        if self._shown is not None and self._shown.best is not None:
            self.mark(self._shown.best.place)
            self.post_message(self.Moved(self))

    def action_open(self) -> None:
        if self._shown is not None:
            self.post_message(self.Opened(self))

    def on_click(self, event: events.Click) -> None:
        """Mark the clicked cell; a double click replays it."""
        shown = self._shown
        window = self._fit()
        if shown is None or window is None or event.y < 1 or event.x < shown.label_cells:
            return
        row = window.top + (event.y - 1) // window.lines_a_row
        column = window.left + (event.x - shown.label_cells) // COLUMN_CELLS
        self.action_move(column - self._column, row - self._row)
        if event.chain > 1:
            self.action_open()

    def _fit(self) -> Window | None:
        shown, (width, height) = self._shown, self.size
        if shown is None or height < 1:
            return None
        step = 2 if self.measure_rows(is_spaced=True) <= height else 1
        down = max(1, min(len(shown.rows), (height - 1) // step))
        across = max(1, min(len(shown.columns), (width - shown.label_cells) // COLUMN_CELLS))
        self._top = max(0, min(max(self._top, self._row - down + 1), self._row, len(shown.rows) - down))
        self._left = max(
            0, min(max(self._left, self._column - across + 1), self._column, len(shown.columns) - across)
        )
        place = (self._row, self._column) if self._is_marked else (-1, -1)
        return Window(self._top, self._left, down, across, step, *place, self._mode, self._first)

    def _draw(self) -> None:
        shown = self._shown
        window = self._fit()
        if shown is None or window is None or not self.is_mounted:
            return
        lines = draw_lines(shown, window, self.glyphs)
        if not self._looks:
            self._looks = {
                cast("Look", name.removeprefix(f"{_PREFIX}--")): self.get_component_rich_style(name)
                for name in self.COMPONENT_CLASSES
            }
        if lines != self._lines:
            self._lines = lines
            self._strips = [self._to_strip(line) for line in lines]
            self.repaint()

    def _to_strip(self, line: list[Part]) -> Strip:
        segments = []
        for text, look, is_chosen, is_underlined in line:
            style = self._looks[look]
            if is_chosen:
                style += Style(bold=True, reverse=not style.reverse)
            if is_underlined:
                style += Style(underline=True)
            segments.append(Segment(text, style))
        return Strip(segments)

    def render_line(self, y: int) -> Strip:
        if 0 <= y < len(self._strips):
            return self._strips[y].adjust_cell_length(self.size.width, self.rich_style)
        return Strip.blank(self.size.width, self.rich_style)


TITLE_FROM_ROWS = 9
LEGEND_FROM_ROWS = 12
ROOMY_FACTS = 8
LEAST_GRID_ROWS = 3
LEAST_FACTS_ROWS = 2
# Width from which two grids are side by side instead of one above the other.
SIDE_BY_SIDE_FROM_CELLS = 100


class SweepView(NamedTuple):
    """What the user looks at, to return to it after a replay."""

    # Name of the sweep.
    name: str
    place: Place | None = None
    mode: SweepMode = "memory"


class ReplayAsked(NamedTuple):
    """A layout to be replayed, with all others of its grid."""

    view: SweepView
    # All layouts of the grid, in the order of TP and PP.
    cells: Sequence[SweepCell]
    # Place of the marked one among them.
    at: int


class SweepScreen(ThriftyScreen[None]):
    """One sweep, or two side by side.

    Args:
        sweeps: Those that can be shown.
        view: Which one, and which cell of it.
        replay: Called with a layout to be replayed.
        leave: What `Esc` does where there is one sweep.
    """

    BINDINGS = [*keys.SWEEP]
    DEFAULT_CSS = """
    SweepScreen {
        layout: vertical;
        #verdict { background: $surface; }
        #keys { background: $surface; }
        #grids { layout: horizontal; height: 8; }
        #grids.-stacked { layout: vertical; }
        #grids Vertical { width: 1fr; height: 1fr; }
        #facts { height: 1fr; }
    }
    """

    def __init__(
        self,
        sweeps: Sequence[IndexedSweep],
        view: SweepView,
        *,
        replay: Callable[[ReplayAsked], object],
        leave: Callable[[], object],
    ) -> None:
        super().__init__()
        self._sweeps = tuple(sweeps)
        self._view = view
        self._replay = replay
        self._leave = leave
        self._headings = name_sweeps(self._sweeps)
        self._at = next((at for at, sweep in enumerate(sweeps) if sweep.name == view.name), 0)
        self._second_at: int | None = None
        self._mode: SweepMode = view.mode
        self._title = OneLine(id="title")
        self._verdict = OneLine(id="verdict")
        self.grid = SweepGridView(id="grid")
        self.second = SweepGridView(id="second")
        self._heads = OneLine(classes="head"), OneLine(classes="head")
        self._panes = (Vertical(self._heads[0], self.grid), Vertical(self._heads[1], self.second))
        self._grids = Container(*self._panes, id="grids")
        self._legend = OneLine(id="legend")
        self.facts = SweepFacts(id="facts")
        self._keys = KeyLine(id="keys")

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._verdict
        yield self._grids
        yield self._legend
        yield self.facts
        yield self._keys

    def on_mount(self) -> None:
        self._keys.hide(KEYS_OF_THE_VIEW)
        self.second.can_focus = False
        self.grid.focus()
        self._show_sweeps(self._view.place)

    @property
    def view(self) -> SweepView:
        marked = self.grid.marked
        return SweepView(self.sweep.name, None if marked is None else marked.place, self._mode)

    @property
    def sweep(self) -> IndexedSweep:
        """The sweep that is shown, the first of two."""
        return self._sweeps[self._at]

    @property
    def _shown(self) -> list[IndexedSweep]:
        return [self.sweep] if self._second_at is None else [self.sweep, self._sweeps[self._second_at]]

    def _show_sweeps(self, place: Place | None) -> None:
        """Draw one sweep or two, with the mark at a place."""
        self.grid.show(self.sweep.grid, place)
        marked = self.grid.marked
        if self._second_at is not None and marked is not None:
            self.second.show(self._sweeps[self._second_at].grid)
            self.second.mark(marked.place)
        self._set_modes()
        self._fit()

    def _set_modes(self) -> None:
        is_difference = self._mode == "difference"
        self.grid.set_mode("memory" if is_difference else self._mode)
        self.second.set_mode(self._mode, self.grid.cells if is_difference else None)

    def _fit(self) -> None:
        is_pair = self._second_at is not None
        height = self.size.height
        is_stacked = is_pair and self.size.width < SIDE_BY_SIDE_FROM_CELLS
        self._title.display = height >= TITLE_FROM_ROWS
        self._legend.display = height >= LEGEND_FROM_ROWS
        self._panes[1].display = is_pair
        for head in self._heads:
            head.display = is_pair
        self._grids.set_class(is_stacked, "-stacked")
        room = height - 2 - self._title.display - self._legend.display
        self._grids.styles.height = self._choose_rows(room, panes=1 + is_stacked)
        self._write_lines()

    def _choose_rows(self, room: int, *, panes: int) -> int:
        """Return the rows of the grids: spaced if the facts then have enough, else dense, else what
        is left.
        """
        views = [self.grid, self.second][: 1 + (self._second_at is not None)]
        heads = panes if self._second_at is not None else 0
        for is_spaced, facts in ((True, ROOMY_FACTS), (False, LEAST_FACTS_ROWS)):
            wanted = heads + panes * max(view.measure_rows(is_spaced=is_spaced) for view in views)
            if wanted + facts <= room:
                return wanted
        return max(LEAST_GRID_ROWS, room - (ROOMY_FACTS if room > 3 * ROOMY_FACTS else LEAST_FACTS_ROWS))

    def _write_lines(self) -> None:
        width = self.size.width
        number = f"{self._at + 1} of {len(self._sweeps)}" if len(self._sweeps) > 1 else ""
        self._title.set_pieces(
            [Piece("vramscope sweep  ", "accent"), Piece(self._headings[self._at], "muted")],
            [Piece(number, "muted")] if number else [],
        )
        self._verdict.set_pieces([Piece(judge_sweep(self.sweep.grid).fit(max(1, width - 2)), "strong")])
        places = [self._at] if self._second_at is None else [self._at, self._second_at]
        for number_shown, (head, at) in enumerate(zip(self._heads, places, strict=False), 1):
            head.set_pieces([Piece(f"{number_shown} ", "accent"), Piece(self._headings[at], "muted")])
        self._write_legend()
        self._write_facts()

    def _write_legend(self) -> None:
        part = self.grid.describe_part()
        ended, unknown = (draw_edge(is_known, self.glyphs, is_upright=False) for is_known in (True, False))
        left = [
            Piece(MODE_WORDS[self._mode], "accent"),
            Piece("  ▸◂ best  ! ran, theory said no", "muted"),
            Piece(f"  {ended} border of OOM  {unknown} unknown", "muted"),
        ]
        self._legend.set_pieces(left, [Piece(part, "text")] if part else [])

    def _write_facts(self) -> None:
        views = [self.grid, self.second]
        shown = self._shown
        self.facts.show(shown, [view.marked for view in views[: len(shown)]])

    @on(events.Resize)
    def fit_rows(self) -> None:
        self._fit()

    @on(SweepGridView.Moved)
    def follow_mark(self, message: SweepGridView.Moved) -> None:
        """Mark the same cell in the other grid, and show its facts."""
        message.stop()
        marked = message.view.marked
        other = self.grid if message.view is self.second else self.second
        if marked is not None and self._second_at is not None:
            other.mark(marked.place)
        self._write_legend()
        self._write_facts()

    @on(SweepGridView.Opened)
    def ask_for_replay(self, message: SweepGridView.Opened) -> None:
        """Have the marked layout replayed, or notify why it cannot be."""
        message.stop()
        marked = self.grid.marked
        if marked is None:
            return
        if marked.path is None:
            outcome = STATE_WORDS[marked.state].outcome
            notice = f"TP {marked.tp} PP {marked.pp}: {outcome}, no trace to replay"
            self.notify(notice, timeout=4)
            return
        cells = list(self.grid.cells.values())
        self._replay(ReplayAsked(self.view, cells, cells.index(marked)))

    def action_show_mode(self, mode: str) -> None:
        if mode == "difference" and self._second_at is None:
            self.action_compare()
            if self._second_at is None:
                return
        self._mode = "memory" if mode == self._mode else cast("SweepMode", mode)
        self._set_modes()
        self._write_legend()

    def action_step_sweep(self, places: int) -> None:
        """Show another sweep, or replace the second of two."""
        if len(self._sweeps) < 2 or (self._second_at is not None and len(self._sweeps) < 3):
            self.notify("There is no other sweep.", timeout=3)
            return
        place = self.view.place
        if self._second_at is None:
            self._at = (self._at + places) % len(self._sweeps)
        else:
            others = [at for at in range(len(self._sweeps)) if at != self._at]
            self._second_at = others[(others.index(self._second_at) + places) % len(others)]
        self._show_sweeps(place)

    def action_compare(self) -> None:
        """Show the next sweep next to this one, or remove it."""
        if self._second_at is not None:
            self._second_at = None
            self._mode = "memory" if self._mode == "difference" else self._mode
        elif len(self._sweeps) < 2:
            self.notify("There is no other sweep to compare with.", timeout=3)
            return
        else:
            self._second_at = (self._at + 1) % len(self._sweeps)
        self._show_sweeps(self.view.place)

    def action_report(self) -> None:
        self.app.push_screen(TextScreen(self.sweep.name, describe_whole(self.sweep)))

    def action_export_figure(self) -> None:
        if self._second_at is None:
            export_one(self, self.sweep)
        else:
            export_several(self, self._shown)

    def action_leave(self) -> None:
        if self._second_at is not None:
            self.action_compare()
        else:
            self._leave()


def describe_whole(sweep: IndexedSweep) -> str:
    return f"{describe_sweep(sweep)}\n\n{describe_figure(sweep.grid, sweep.findings)}"
