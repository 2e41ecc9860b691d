"""The screen of a sweep: what it says in one sentence, the grid, the marked layout; or two side by side."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Container, Vertical

from ...analyzers.planning.sweep import Place, SweepCell
from ...analyzers.planning.sweep.index import IndexedSweep, judge_sweep
from ...exporters.sweep.text import describe_figure, describe_sweep
from ..draw.glyphs import Glyphs
from ..frame import keys
from ..frame.keys import KEYS_OF_THE_VIEW
from ..inspect.text import TextScreen
from ..terminal.compositor import ThriftyScreen
from ..widgets.key_line import KeyLine
from ..widgets.one_line import OneLine, Piece
from .borders import draw_edge
from .export import export_one, export_several
from .facts import SweepFacts
from .grid import SweepGridView
from .tiles import MODE_WORDS, SweepMode
from .words import STATE_SENTENCES, name_sweeps

TITLE_FROM_ROWS = 9
LEGEND_FROM_ROWS = 12
ROOMY_FACTS = 8
LEAST_GRID_ROWS = 3
LEAST_FACTS_ROWS = 2
SIDE_BY_SIDE_FROM_CELLS = 100
"""Width from which two grids stand beside, and not above, each other."""


class SweepView(NamedTuple):
    """What is looked at: to come back to it."""

    name: str
    """Of the sweep."""
    place: Place | None = None
    mode: SweepMode = "memory"


class ReplayAsked(NamedTuple):
    """A layout that is to be replayed, and others with it."""

    view: SweepView
    """What is looked at."""
    cells: Sequence[SweepCell]
    """All layouts of the grid, in the order of TP and PP."""
    at: int
    """Place of the marked one among them."""


class SweepScreen(ThriftyScreen[None]):
    """One sweep, or two side by side.

    Args:
        sweeps: Those that can be shown.
        view: Which one, and which cell of it.
        glyphs: Characters to draw with.
        replay: What is done with a layout that is to be replayed.
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
        glyphs: Glyphs,
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
        self._glyphs = glyphs
        self._at = next((at for at, sweep in enumerate(sweeps) if sweep.name == view.name), 0)
        self._beside: int | None = None
        self._mode: SweepMode = view.mode
        self._title = OneLine(id="title")
        self._verdict = OneLine(id="verdict")
        self.grid = SweepGridView(glyphs, id="grid")
        self.second = SweepGridView(glyphs, id="second")
        self._heads = OneLine(classes="head"), OneLine(classes="head")
        self._panes = (Vertical(self._heads[0], self.grid), Vertical(self._heads[1], self.second))
        self._grids = Container(*self._panes, id="grids")
        self._legend = OneLine(id="legend")
        self.facts = SweepFacts(glyphs, id="facts")
        self._keys = KeyLine(id="keys")

    def compose(self) -> ComposeResult:
        """Yield the parts, top to bottom."""
        yield self._title
        yield self._verdict
        yield self._grids
        yield self._legend
        yield self.facts
        yield self._keys

    def on_mount(self) -> None:
        """Draw the sweep and give the grid the keys."""
        self._keys.hide(KEYS_OF_THE_VIEW)
        self.second.can_focus = False
        self.grid.focus()
        self._show_sweeps(self._view.place)

    @property
    def view(self) -> SweepView:
        """What is looked at."""
        marked = self.grid.marked
        return SweepView(self.sweep.name, None if marked is None else marked.place, self._mode)

    @property
    def sweep(self) -> IndexedSweep:
        """The sweep that is shown, the first of two."""
        return self._sweeps[self._at]

    @property
    def _shown(self) -> list[IndexedSweep]:
        return [self.sweep] if self._beside is None else [self.sweep, self._sweeps[self._beside]]

    def _show_sweeps(self, place: Place | None) -> None:
        """Draw one sweep or two, with the mark at a place."""
        self.grid.show(self.sweep.grid, place)
        marked = self.grid.marked
        if self._beside is not None and marked is not None:
            self.second.show(self._sweeps[self._beside].grid)
            self.second.mark(marked.place)
        self._set_modes()
        self._fit()

    def _set_modes(self) -> None:
        is_difference = self._mode == "difference"
        self.grid.set_mode("memory" if is_difference else self._mode)
        self.second.set_mode(self._mode, self.grid.cells if is_difference else None)

    def _fit(self) -> None:
        """Share the rows among the parts, and write the lines."""
        is_pair = self._beside is not None
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
        """Return the rows of the grids: spaced where facts keep theirs, else close, else what is left."""
        views = [self.grid, self.second][: 1 + (self._beside is not None)]
        heads = panes if self._beside is not None else 0
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
        places = [self._at] if self._beside is None else [self._at, self._beside]
        for number_shown, (head, at) in enumerate(zip(self._heads, places, strict=False), 1):
            head.set_pieces([Piece(f"{number_shown} ", "accent"), Piece(self._headings[at], "muted")])
        self._write_legend()
        self._write_facts()

    def _write_legend(self) -> None:
        part = self.grid.tell_part()
        ended, unknown = (draw_edge(is_known, self._glyphs, is_upright=False) for is_known in (True, False))
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
    def fit_anew(self) -> None:
        """Share the rows anew."""
        self._fit()

    @on(SweepGridView.Moved)
    def follow_mark(self, message: SweepGridView.Moved) -> None:
        """Mark the same cell in the other grid, and say what is known of it."""
        message.stop()
        marked = message.view.marked
        other = self.grid if message.view is self.second else self.second
        if marked is not None and self._beside is not None:
            other.mark(marked.place)
        self._write_legend()
        self._write_facts()

    @on(SweepGridView.Opened)
    def ask_for_replay(self, message: SweepGridView.Opened) -> None:
        """Have the marked layout replayed, or say why it cannot be."""
        message.stop()
        marked = self.grid.marked
        if marked is None:
            return
        if marked.path is None:
            told = (
                f"TP {marked.tp} PP {marked.pp}: {STATE_SENTENCES[marked.state]}, there is no trace to replay"
            )
            self.notify(told, timeout=4)
            return
        cells = list(self.grid.cells.values())
        self._replay(ReplayAsked(self.view, cells, cells.index(marked)))

    def action_show_mode(self, mode: str) -> None:
        """Show something else of each cell; the same again shows what was measured."""
        if mode == "difference" and self._beside is None:
            self.action_beside()
            if self._beside is None:
                return
        self._mode = "memory" if mode == self._mode else cast("SweepMode", mode)
        self._set_modes()
        self._write_legend()

    def action_step_sweep(self, places: int) -> None:
        """Show another sweep, or another one beside this."""
        if len(self._sweeps) < 2 or (self._beside is not None and len(self._sweeps) < 3):
            self.notify("There is no other sweep.", timeout=3)
            return
        place = self.view.place
        if self._beside is None:
            self._at = (self._at + places) % len(self._sweeps)
        else:
            others = [at for at in range(len(self._sweeps)) if at != self._at]
            self._beside = others[(others.index(self._beside) + places) % len(others)]
        self._show_sweeps(place)

    def action_beside(self) -> None:
        """Put the next sweep beside this one, or take it away."""
        if self._beside is not None:
            self._beside = None
            self._mode = "memory" if self._mode == "difference" else self._mode
        elif len(self._sweeps) < 2:
            self.notify("There is no other sweep to put beside it.", timeout=3)
            return
        else:
            self._beside = (self._at + 1) % len(self._sweeps)
        self._show_sweeps(self.view.place)

    def action_report(self) -> None:
        """Show everything as text."""
        self.app.push_screen(TextScreen(self.sweep.name, describe_whole(self.sweep)))

    def action_export_figure(self) -> None:
        """Write the figure and what goes with it."""
        if self._beside is None:
            export_one(self, self.sweep)
        else:
            export_several(self, self._shown)

    def action_leave(self) -> None:
        """Go back to one sweep, or out."""
        if self._beside is not None:
            self.action_beside()
        else:
            self._leave()


def describe_whole(sweep: IndexedSweep) -> str:
    """Return everything that is known of a sweep as text."""
    return f"{describe_sweep(sweep)}\n\n{describe_figure(sweep.grid, sweep.findings)}"
