"""The screen of two runs: the verdict, both over each other, and every rank in a list."""

from collections.abc import Callable

from textual import events, on
from textual.app import ComposeResult

from ...analyzers.comparison import FIGURE_WORDS, Comparison, Figure
from ...engine.settings import Settings
from ...exporters.diff import describe_difference, describe_rest, order_subjects
from ..draw.glyphs import Glyphs
from ..frame import keys
from ..inspect.inspected import REPORT_WIDTH
from ..inspect.text import TextScreen
from ..screens.file_view import FileScreen, FileView, show_file
from ..widgets.one_line import OneLine, Piece
from .list import DifferenceList, draw_heading
from .picture import DifferencePicture

Progress = Callable[[float | None, int], object]
"""Takes the share that was read, from 0 to 1 where it is known, and how many samples."""
Compare = Callable[[Progress], Comparison]

HEAD_ROWS = 2
FOOT_ROWS = 2
LEAST_LIST_ROWS = 2
LEAST_PICTURE_ROWS = 2
LEAST_ROWS_FOR_FACTS = 12


class DifferenceScreen(FileScreen[Comparison]):
    """Two runs, one rank or device at a time.

    Args:
        glyphs: Characters to draw with.
    """

    BINDINGS = [*keys.DIFFERENCE]
    NAME = "vramscope diff"
    DEFAULT_CSS = """
    DifferenceScreen {
        #picture { height: 1fr; }
        #list { height: 4; }
    }
    """

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self.comparison: Comparison | None = None
        """The runs, once they were read."""
        self._order: list[int] = []
        self._figure: Figure | None = None
        self.picture = DifferencePicture(glyphs, id="picture")
        self._heading = OneLine(id="heading")
        self.list = DifferenceList(glyphs, id="list")
        self._facts = OneLine(id="facts")

    def compose(self) -> ComposeResult:
        """Yield the parts, top to bottom."""
        yield self._title
        yield self._verdict
        yield self.picture
        yield self._heading
        yield self.list
        yield self._facts
        yield self._keys

    def on_mount(self) -> None:
        """Give the list the keys."""
        self.list.focus()

    @property
    def report(self) -> str:
        """Everything as text."""
        return "" if self.comparison is None else describe_difference(self.comparison, REPORT_WIDTH)

    def show(self, found: Comparison) -> None:
        """Show two runs that were compared."""
        self.comparison = found
        self._order = order_subjects(found.difference.subjects)
        self._draw()

    def _draw(self) -> None:
        comparison = self.comparison
        if comparison is None:
            return
        told = comparison.difference
        self.list.show([told.subjects[place] for place in self._order], self._figure)
        self._draw_picture()
        self._draw_lines()

    def _draw_picture(self) -> None:
        if self.comparison is not None and self._order:
            place = self._order[self.list.chosen]
            subject = self.comparison.difference.subjects[place]
            self.picture.show(subject, self.comparison.curves[place], self._figure)

    def _draw_lines(self) -> None:
        comparison = self.comparison
        if comparison is None:
            return
        told = comparison.difference
        width = self.size.width
        height = self.size.height
        made = [" (simulated)" if facts.is_simulated else "" for facts in (told.a, told.b)]
        runs = f"  A {told.a.file}{made[0]}  B {told.b.file}{made[1]}"
        count = [Piece(f"{self.list.chosen + 1} of {len(self._order)}", "muted")] if self._order else []
        self._title.set_pieces([Piece("vramscope diff", "accent"), Piece(runs, "muted")], count)
        verdict = comparison.verdict.fit(max(1, width - 2))
        self._verdict.set_pieces([Piece(verdict, "strong" if told.parts else "text")])
        self._heading.set_pieces([Piece(draw_heading(width)[1:], "muted")])
        self._facts.set_pieces([Piece(" · ".join(describe_rest(told)), "muted")])
        self._facts.display = height >= LEAST_ROWS_FOR_FACTS
        rows = height - HEAD_ROWS - FOOT_ROWS - 1 + (not self._facts.display)
        wanted = max(LEAST_LIST_ROWS, min(len(self._order), rows * 2 // 5))
        self.list.styles.height = max(1, min(wanted, rows - LEAST_PICTURE_ROWS))

    @on(events.Resize)
    def fit(self) -> None:
        """Share the rows anew."""
        self._draw_lines()

    @on(DifferenceList.Chosen)
    def show_chosen(self, message: DifferenceList.Chosen) -> None:
        """Draw the one under the cursor."""
        message.stop()
        self._draw_picture()
        self._draw_lines()

    def action_next_figure(self, step: int) -> None:
        """Show another figure of all."""
        comparison = self.comparison
        if comparison is None:
            return
        known = {each.figure for subject in comparison.difference.subjects for each in subject.figures}
        choices: list[Figure | None] = [None, *(figure for figure in FIGURE_WORDS if figure in known)]
        self._figure = choices[(choices.index(self._figure) + step) % len(choices)]
        self._draw()

    def action_report(self) -> None:
        """Show everything as text."""
        if self.comparison is not None:
            self.app.push_screen(TextScreen("Two runs", self.report))


def view_difference(compare: Compare) -> FileView[DifferenceScreen, Comparison]:
    """Return the view of two runs.

    Args:
        compare: Reads the runs and tells how far it is; called on a thread of its own.
    """

    def note_progress(share: float | None, samples: int) -> None:
        part = "" if share is None else f", {100 * share:.0f} %"
        view.tell(f"reading both runs{part}: {samples:,} samples; q leaves")

    view = FileView(
        lambda app: DifferenceScreen(app.glyphs),
        lambda: compare(note_progress),
        lambda _: "reading both runs; q leaves",
        own_keys=keys.FILE,
    )
    return view


def show_difference(compare: Compare, *, settings: Settings) -> tuple[int, Comparison | None]:
    """Show two runs until the user quits; return the exit code, and what was found if they were read by then.

    Raises:
        UsageError: Nothing can be drawn here.
        InputFileError: A file cannot be read or understood.
    """
    found: list[Comparison] = []

    def read(progress: Progress) -> Comparison:
        found.append(compare(progress))
        return found[0]

    return show_file(view_difference(read), settings), found[0] if found else None
