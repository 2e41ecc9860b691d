"""The screen of two runs: the verdict, both in one graph, and every rank in a list."""

from collections.abc import Callable, Sequence
from functools import partial

from textual import events, on
from textual.app import ComposeResult

from ...analyzers.diff import FIGURE_WORDS, Comparison, Curves, Figure, FigureDifference, SubjectDifference
from ...analyzers.diff.model import say_percent, say_position, say_signed
from ...engine.settings import Settings
from ...engine.units import format_bytes
from ...exporters.diff.text import describe_difference, describe_rest, order_subjects
from ..draw.columns import join_columns
from ..draw.pieces import Piece
from ..draw.run_graph import ROLES, Runs, draw_runs
from ..draw.spans import Line, Role, Span, fit_line
from ..frame import keys
from ..screens.dialogs import REPORT_WIDTH, TextScreen
from ..screens.file_view import FileScreen, FileView, show_file
from ..widgets.line_page import LinePage, RowTable
from ..widgets.one_line import OneLine

# Widths below which both values are left out, and from which the end and the noise are shown.
NARROW_CELLS = 60
WIDE_CELLS = 110
_WHO_CELLS = 10
_AT_CELLS = 11
_FIGURE_CELLS = 15
_SIZE_CELLS = 9
_PERCENT_CELLS = 7
_NARROW_WHO_CELLS = 8
_NARROW_AT_CELLS = 10


def draw_heading(width: int) -> str:
    titles = ["who", "diverge at", "metric", "A", "B", "B - A", "%", "at end", "noise"]
    return "  " + _lay_out(titles, width, "…")


class DifferenceList(RowTable[SubjectDifference]):
    BINDINGS = [*keys.DIFFERENCE_LIST]
    _figure: Figure | None = None

    def show(self, subjects: Sequence[SubjectDifference], figure: Figure | None) -> None:
        """List subjects in order; `figure` None shows the most telling one of each."""
        self._figure = figure
        self.absence = "no rank or device is in both runs"
        self.rows = tuple(subjects)
        self._draw()

    def _draw_row(self, place: int, row: SubjectDifference, width: int) -> Line:
        figure = row.shown if self._figure is None else row.of(self._figure)
        is_chosen = self.is_marked(place)
        has_parted = figure is not None and figure.parts_at is not None
        role: Role = "strong" if is_chosen else "text" if has_parted else "muted"
        cells = _list_cells(row, figure, self.glyphs.unmeasured)
        return [
            Span(f"{self.glyphs.selected if is_chosen else ' '} ", "accent"),
            Span(_lay_out(cells, width, self.glyphs.ellipsis), role),
        ]


def _list_cells(subject: SubjectDifference, figure: FigureDifference | None, unmeasured: str) -> list[str]:
    if figure is None:
        return [subject.name, unmeasured, "not measured", *[unmeasured] * 6]
    percent = figure.difference_percent
    at = "the start" if figure.is_from_start else say_position(figure.parts_at, subject.aligned_by)
    return [
        subject.name,
        at if figure.parts_at is not None else unmeasured,
        FIGURE_WORDS[figure.figure],
        format_bytes(figure.a_bytes),
        format_bytes(figure.b_bytes),
        say_signed(figure.difference_bytes),
        unmeasured if percent is None else say_percent(percent),
        say_signed(figure.final_difference_bytes),
        format_bytes(figure.noise_bytes),
    ]


def _lay_out(cells: Sequence[str], width: int, ellipsis: str) -> str:
    """Return one row: who and where at the left, numbers at the right of their columns."""
    who, at, figure, a, b, apart, percent, end, noise = cells
    if width < NARROW_CELLS:
        texts = [who, at, apart, percent]
        widths = [_NARROW_WHO_CELLS, _NARROW_AT_CELLS, _SIZE_CELLS, _PERCENT_CELLS]
        return join_columns(texts, widths, "llrr", ellipsis)
    texts = [who, at, figure, a, b, apart, percent]
    widths = [_WHO_CELLS, _AT_CELLS, _FIGURE_CELLS, *[_SIZE_CELLS] * 3, _PERCENT_CELLS]
    if width >= WIDE_CELLS:
        texts += [end, noise]
        widths = [2 * _WHO_CELLS, *widths[1:], _SIZE_CELLS, _SIZE_CELLS]
    return join_columns(texts, widths, "lll" + "r" * (len(texts) - 3), ellipsis)


LEAST_ROWS = 4


class DifferencePicture(LinePage, can_focus=False):
    """Draws two runs into exactly the room that it has."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: tuple[SubjectDifference, Curves] | None = None
        self._figure: Figure | None = None

    def show(self, subject: SubjectDifference, curves: Curves, figure: Figure | None) -> None:
        self._shown = (subject, curves)
        self._figure = figure
        self._draw()

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        if self._shown is None or width < 4 or height < 1:
            return []
        subject, curves = self._shown
        figure = subject.shown if self._figure is None else subject.of(self._figure)
        is_ascii = self.glyphs.name == "ascii"
        if figure is None:
            what = "nothing" if self._figure is None else FIGURE_WORDS[self._figure]
            lines: list[Line] = [[Span(f" {what} was not measured in both", "muted")]]
        else:
            lines = self._draw_figure(subject, curves, figure.figure, (width, height))
        return [fit_line(line, width, is_ascii=is_ascii) for line in lines[:height]]

    def _draw_figure(
        self, subject: SubjectDifference, curves: Curves, figure: Figure, size: tuple[int, int]
    ) -> list[Line]:
        told = subject.of(figure)
        parts_at = None if told is None else told.parts_at
        where = say_position(parts_at, subject.aligned_by)
        runs = Runs(
            curves.positions,
            curves.a[figure],
            curves.b[figure],
            parts_at,
            say_position(curves.positions[0], subject.aligned_by),
            say_position(curves.positions[-1], subject.aligned_by),
            "they diverge from the start"
            if told is not None and told.is_from_start
            else f"they diverge at {where}",
        )
        lines = [[Span(f" {subject.name}: {FIGURE_WORDS[figure]}  ", "text"), *self._draw_legend()]]
        if size[1] < LEAST_ROWS:
            return lines
        return [*lines, *draw_runs(runs, (size[0], size[1] - 1), self.glyphs)]

    def _draw_legend(self) -> Line:
        a, b, both = ("⠤⠤", "⠄⠄", "") if self.glyphs.is_braille else ("A", "B", "  * both")
        return [
            Span(f"{a} ", ROLES["A"]),
            Span("A  ", "muted"),
            Span(f"{b} ", ROLES["B"]),
            Span(f"B{both}", "muted"),
        ]


# Takes the share that was read, from 0 to 1 (None where unknown), and how many samples.
Progress = Callable[[float | None, int], object]
Compare = Callable[[Progress], Comparison]

HEAD_ROWS = 2
FOOT_ROWS = 2
LEAST_LIST_ROWS = 2
LEAST_PICTURE_ROWS = 2
LEAST_ROWS_FOR_FACTS = 12


class DifferenceScreen(FileScreen[Comparison]):
    """Two runs, one rank or device at a time."""

    BINDINGS = [*keys.DIFFERENCE]
    NAME = "vramscope diff"
    DEFAULT_CSS = """
    DifferenceScreen {
        #picture { height: 1fr; }
        #list { height: 4; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.comparison: Comparison | None = None
        self._order: list[int] = []
        self._figure: Figure | None = None
        self.picture = DifferencePicture(id="picture")
        self._heading = OneLine(id="heading")
        self.list = DifferenceList(id="list")
        self._facts = OneLine(id="facts")

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._verdict
        yield self.picture
        yield self._heading
        yield self.list
        yield self._facts
        yield self._keys

    def on_mount(self) -> None:
        self.list.focus()

    @property
    def report(self) -> str:
        return "" if self.comparison is None else describe_difference(self.comparison, REPORT_WIDTH)

    def show(self, found: Comparison) -> None:
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
        self._draw_lines()

    @on(RowTable.Chosen)
    def show_chosen(self, message: RowTable.Chosen) -> None:
        message.stop()
        self._draw_picture()
        self._draw_lines()

    def action_next_figure(self, step: int) -> None:
        comparison = self.comparison
        if comparison is None:
            return
        subjects = comparison.difference.subjects
        known = {each.figure for subject in subjects for each in subject.figures}
        # The most telling metric of each can be the same of all, and is chosen then.
        telling = {None if subject.shown is None else subject.shown.figure for subject in subjects}
        others = (figure for figure in FIGURE_WORDS if figure in known and telling != {figure})
        choices: list[Figure | None] = [None, *others]
        self._figure = choices[(choices.index(self._figure) + step) % len(choices)]
        self._draw()

    def action_report(self) -> None:
        if self.comparison is not None:
            self.app.push_screen(TextScreen("Two runs", partial(describe_difference, self.comparison)))


def view_difference(compare: Compare) -> FileView[DifferenceScreen, Comparison]:
    """Return the view of two runs; `compare` reads them on a thread of its own and reports its progress."""

    def show_progress(share: float | None, samples: int) -> None:
        part = "" if share is None else f", {100 * share:.0f} %"
        view.report_progress(f"reading both runs{part}: {samples:,} samples; q leaves")

    view = FileView(
        lambda app: DifferenceScreen(),
        lambda: compare(show_progress),
        lambda _: "reading both runs; q leaves",
        own_keys=keys.FILE,
    )
    return view


def show_difference(compare: Compare, *, settings: Settings) -> tuple[int, Comparison | None]:
    """Show two runs until the user quits; return the exit code, and the comparison if it was done by then.

    Raises:
        UsageError: Nothing can be drawn here.
        InputFileError: A file cannot be read or understood.
    """
    found: list[Comparison] = []

    def read(progress: Progress) -> Comparison:
        found.append(compare(progress))
        return found[0]

    return show_file(view_difference(read), settings), found[0] if found else None
