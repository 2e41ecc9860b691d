"""The screen of a plan: every way to cut a model, the stages of one as bars, and the contents of a stage."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from textual import events, on
from textual.app import ComposeResult
from textual.widgets import Input

from ...analyzers.sentence import Sentence, count
from ...analyzers.stage_peaks import JobStages
from ...engine.errors import OutputFileError
from ...engine.files.base.output_file import write_files
from ...engine.settings import Settings
from ...exporters.text import describe_assumptions, wrap
from ..draw.columns import join_columns, measure_columns
from ..draw.pieces import Piece
from ..draw.spans import Line, Role, Span
from ..frame import keys
from ..frame.export import describe_written, make_new_folder
from ..frame.keys import KEYS_OF_THE_VIEW
from ..screens.dialogs import ChoiceScreen, TextScreen
from ..screens.file_view import FileScreen, FileView, show_file
from ..widgets.filter_bar import FilterBar
from ..widgets.line_page import LinePage, RowTable
from ..widgets.one_line import OneLine
from .planned import Candidate, Planned, PlannedColumn, PlannedTable
from .stages import MatchedJob, PlanFacts, PlanStages, StagesView, find_scale, match_job

# Cells before the first column: the cursor and the mark.
LEAD = 3


class PlanOrder(NamedTuple):
    """What candidates are sorted by."""

    # None for the order of the plan.
    column: int | None = None
    is_inverted: bool = False

    def sort(self, candidates: Sequence[Candidate]) -> list[int]:
        """Return the places of candidates in this order; unknown values are last either way."""
        places = list(range(len(candidates)))
        if self.column is None:
            return places[::-1] if self.is_inverted else places
        column = self.column
        known = [place for place in places if candidates[place].values[column] is not None]
        known.sort(key=lambda place: _key(candidates[place].values[column]), reverse=self.is_inverted)
        return known + [place for place in places if candidates[place].values[column] is None]


def _key(value: float | str | None) -> tuple[str, float]:
    return (value, 0.0) if isinstance(value, str) else ("", value or 0.0)


class PlanTable(RowTable[int]):
    """Lists candidates, each by its place in the plan."""

    BINDINGS = [*keys.PLAN_LIST]
    _columns: tuple[PlannedColumn, ...] = ()
    _candidates: tuple[Candidate, ...] = ()
    _widths: tuple[int, ...] = ()
    _marked: int | None = None

    def hold(self, columns: tuple[PlannedColumn, ...], candidates: tuple[Candidate, ...]) -> None:
        """Set the candidates of a plan, in its order."""
        self._columns = columns
        self._candidates = candidates
        self._widths = measure_columns([[each.name for each in columns], *(it.cells for it in candidates)])
        self.absence = "nothing matches the filter" if candidates else " "

    def show(self, places: Sequence[int], marked: int | None) -> None:
        """List candidates by their places in the plan; the cursor stays with its candidate.

        Others are compared with `marked`.
        """
        kept = self.current
        self.rows = list(places)
        self._marked = marked
        self.choose(self.rows.index(kept) if kept in self.rows else 0)

    def select(self, place: int) -> None:
        self.choose(self.rows.index(place))

    def lay_out_heading(self, width: int) -> str:
        return " " * LEAD + self._lay_out([column.name for column in self._columns], width)

    def _lay_out(self, texts: Sequence[str], width: int) -> str:
        sides = "".join("l" if column.is_left else "r" for column in self._columns)
        return join_columns(texts, self._widths, sides, self.glyphs.ellipsis, room=width - LEAD)

    def _draw_row(self, place: int, row: int, width: int) -> Line:
        candidate = self._candidates[row]
        is_chosen = place == self.chosen
        role: Role = "text"
        if is_chosen:
            role = "strong"
        elif candidate.note in ("over", "refused"):
            role = "muted"
        return [
            Span(self.glyphs.selected if is_chosen else " ", "accent" if self.has_focus else "muted"),
            Span("c " if row == self._marked else "  ", "accent"),
            Span(self._lay_out(candidate.cells, width), role),
        ]


# Cells before the first column: the cursor.
DETAIL_LEAD = 2


class PlanDetails(RowTable[tuple[str, ...]]):
    BINDINGS = [*keys.PLAN_LINES]
    _table = PlannedTable("", (), "", ())
    _widths: tuple[int, ...] = ()

    def show(self, table: PlannedTable) -> None:
        self._table = table
        self._widths = measure_columns([table.heading, *table.rows])
        self.list_rows(table.rows)

    def lay_out_heading(self, width: int) -> str:
        return " " * DETAIL_LEAD + self._lay_out(self._table.heading, width)

    def _lay_out(self, texts: tuple[str, ...], width: int) -> str:
        sides = self._table.alignment
        return join_columns(texts, self._widths, sides, self.glyphs.ellipsis, room=width - DETAIL_LEAD)

    def _draw_row(self, place: int, row: tuple[str, ...], width: int) -> Line:
        is_chosen = self.is_marked(place)
        return [
            Span(f"{self.glyphs.selected if is_chosen else ' '} ", "accent"),
            Span(self._lay_out(row, width), "strong" if is_chosen else "text"),
        ]


# Rows of the screen for each row of assumptions.
ROWS_A_LINE = 10


class PlanAssumed(LinePage, can_focus=False):
    """What a plan assumes: all of it, or how much it is where that takes too many rows."""

    _assumed: tuple[str, ...] = ()
    _most_rows = 1

    def show(self, assumed: tuple[str, ...], width: int, height: int) -> int:
        """Show assumptions on a screen of a size, and return the rows they take."""
        self._assumed = assumed
        self._most_rows = max(1, height // ROWS_A_LINE)
        rows = len(self._word_lines(width))
        self.styles.height = rows
        self._draw()
        return rows

    def _word_lines(self, width: int) -> list[str]:
        lines = wrap(describe_assumptions(self._assumed), max(1, width - 2))
        if len(lines) <= self._most_rows:
            return lines
        number = count(len(self._assumed), "assumption")
        forms = (f"{number} that neither flags nor file say: i lists them", f"{number}: i")
        return [Sentence((forms,)).fit(width - 2)]

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        return [self.fit([Span(f" {line}", "muted")], width) for line in self._word_lines(width)]


AS_PLANNED = "as planned"
HINT = "words that a plan must contain; Enter keeps, Esc clears"


PICTURE = "plan.svg"
REPORT = "plan.txt"


def export_plan(plan: Planned, svg: str, folder: Path, now_s: float) -> list[Path]:
    """Write all files of a plan into a new folder in `folder`, named by the wall time, and return them.

    Raises:
        OSError: The folder, the picture or the report cannot be written.
        OutputFileError: A file of the plan cannot be written.
    """
    made = make_new_folder(folder, f"vramscope-plan-{datetime.fromtimestamp(now_s):%Y%m%d-%H%M%S}")
    files = [] if plan.write is None else plan.write(made)
    return [*files, *write_files({PICTURE: svg.encode(), REPORT: plan.report.encode()}, made)]


class PlanListing(FileScreen[Planned]):
    """A screen with a list of candidates; subclasses draw the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.plan: Planned | None = None
        self.order = PlanOrder()
        self._filter_text = ""
        self._marked: int | None = None
        self.table = PlanTable(id="table")
        self._filter = FilterBar(hint=HINT, example="e.g. exact 4", id="filter")

    def _draw(self) -> None:
        """Draw everything but the list."""
        raise NotImplementedError

    def _rearrange(self) -> None:
        raise NotImplementedError

    @property
    def candidate(self) -> Candidate | None:
        place = self.table.current
        return None if self.plan is None or place is None else self.plan.candidates[place]

    @property
    def _other(self) -> Candidate | None:
        """The marked candidate, unless it is the one under the cursor."""
        if self.plan is None or self._marked is None or self._marked == self.table.current:
            return None
        return self.plan.candidates[self._marked]

    def _show_candidates(self) -> None:
        if self.plan is None:
            return
        words = self._filter_text.casefold().split()
        texts = [f"{each.name} {' '.join(each.cells)}".casefold() for each in self.plan.candidates]
        places = self.order.sort(self.plan.candidates)
        self.table.show(
            [place for place in places if all(word in texts[place] for word in words)], self._marked
        )
        self._rearrange()
        self._draw()

    def action_mark(self) -> None:
        """Mark the candidate under the cursor, or remove its mark."""
        place = self.table.current
        if place is None:
            return
        self._marked = None if place == self._marked else place
        if self._marked is not None:
            self.notify("Marked: select another plan to compare.", timeout=4)
        self._show_candidates()

    def action_choose_sort(self) -> None:
        plan = self.plan
        if plan is None:
            return

        def sort(name: str | None) -> None:
            if name is not None:
                self.sort_candidates(PlanOrder(None if name == AS_PLANNED else int(name)))

        choices = {AS_PLANNED: AS_PLANNED, **{str(at): it.name for at, it in enumerate(plan.columns)}}
        used = AS_PLANNED if self.order.column is None else str(self.order.column)
        self.app.push_screen(ChoiceScreen("Sort plans by", choices, chosen=used), sort)

    def sort_candidates(self, order: PlanOrder) -> None:
        self.order = order
        self._show_candidates()

    def action_shift_sort(self, places: int) -> None:
        """Sort by the column to the left or right; before the first is the order of the plan."""
        if self.plan is not None:
            count = len(self.plan.columns) + 1
            at = 0 if self.order.column is None else self.order.column + 1
            moved = (at + places) % count
            self.sort_candidates(self.order._replace(column=moved - 1 if moved else None))

    def action_invert_sort(self) -> None:
        self.sort_candidates(self.order._replace(is_inverted=not self.order.is_inverted))

    def action_filter(self) -> None:
        self._filter.open()
        self._rearrange()

    @on(FilterBar.TextChanged)
    def filter_candidates(self, message: FilterBar.TextChanged) -> None:
        message.stop()
        self._filter_text = message.text
        self._show_candidates()

    @on(FilterBar.Closed)
    def end_filter(self, message: FilterBar.Closed) -> None:
        message.stop()
        self.table.focus()
        self._rearrange()


Leave = Callable[[], object]
FACTS_ROWS = 3
LEAST_ROWS_FOR_FINDINGS = 18
LEAST_ROWS_FOR_FACTS = 14
# Rows that must be left to show the content of a stage below the stages.
LEAST_ROWS_BELOW = 6
# Title, verdict, the heading of the table, and the keys.
CHROME_ROWS = 4
# Actions that do nothing while another table replaces the candidates.
LISTING_ACTIONS = ("filter", "switch_part", "mark", "choose_sort", "shift_sort", "invert_sort", "analysis")


class PlanScreen(PlanListing):
    """A plan, one candidate at a time; `Esc` at the list of candidates calls `leave`, if any."""

    BINDINGS = [*keys.PLAN]
    NAME = "vramscope plan"
    DEFAULT_CSS = """
    PlanScreen {
        #table { height: 4; }
        #stages { height: 1fr; }
        #details { height: 1fr; }
        #facts { height: 3; }
        #assumed { height: 1; }
    }
    """

    def __init__(self, *, leave: Leave | None = None) -> None:
        super().__init__()
        self._leave = leave
        self._has_begun = False
        self._job = JobStages()
        self._table_shown: PlannedTable | None = None
        self._came_from: RowTable[Any] | None = None
        self._heading = OneLine(id="heading")
        self._facts = PlanFacts(id="facts")
        self.stages = PlanStages(id="stages")
        self._below = OneLine(id="below")
        self.details = PlanDetails(id="details")
        self._assumed = PlanAssumed(id="assumed")
        self._findings = OneLine(id="findings")

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._verdict
        yield self._heading
        yield self.table
        yield self._filter
        yield self._facts
        yield self.stages
        yield self._below
        yield self.details
        yield self._assumed
        yield self._findings
        yield self._keys

    def on_mount(self) -> None:
        """Focus the table, and draw what was shown before there was room."""
        self.table.focus()
        self._keys.hide(KEYS_OF_THE_VIEW)
        self._has_begun = True
        self._rearrange()
        self._begin()

    @property
    def report(self) -> str:
        return "" if self.plan is None else self.plan.report

    def show(self, found: Planned) -> None:
        """Show a plan, with the cursor on the recommended candidate."""
        self.plan = found
        self.table.hold(found.columns, found.candidates)
        self._begin()

    def _begin(self) -> None:
        """Put the cursor on the recommended candidate, once there is a plan and room for it."""
        if self.plan is not None and self._has_begun:
            self._show_candidates()
            self.table.select(self.plan.best or 0)

    def measure(self, job: JobStages) -> None:
        if job != self._job:
            self._job = job
            self._draw()

    def _draw(self) -> None:
        plan = self.plan
        candidate = self.candidate
        if plan is None or not self._has_begun:
            return
        self._draw_lines(plan)
        job = MatchedJob() if candidate is None else match_job(candidate, self._job)
        self._facts.show(candidate, plan.recommended, self._other, job)
        if candidate is None:
            return
        other = self._other
        shown = [candidate] if other is None else [candidate, other]
        measured = job.stages if other is None else ()
        scale = find_scale(shown, plan.most_bytes, measured)
        self.stages.show(StagesView(candidate, scale, other, measured))
        self._draw_below()

    def _draw_below(self) -> None:
        """Show the content of the stage under the cursor, where rows are left for it."""
        stage = self.stages.stage
        if self._table_shown is None and self._below.display and stage is not None:
            self.details.show(stage.describe())
            heading = self.details.lay_out_heading(self.size.width)[1:].rstrip()
            self._below.set_pieces([Piece(heading, "muted")], [Piece(f"stage {self.stages.chosen}", "muted")])

    def _draw_lines(self, plan: Planned) -> None:
        width = self.size.width
        count = len(plan.candidates)
        place = "" if self.table.current is None else f"{self.table.chosen + 1} of {len(self.table.rows)}"
        left_out = count - len(self.table.rows)
        right = f"{place}, {left_out} filtered out" if left_out else place
        if self.order.column is not None:
            inverted = ", reversed" if self.order.is_inverted else ""
            right = f"by {plan.columns[self.order.column].name}{inverted} · {right}"
        self._title.set_pieces(
            [Piece("vramscope plan", "accent"), Piece(f"  {plan.model}", "muted")], [Piece(right, "muted")]
        )
        self._verdict.set_pieces([Piece(plan.verdict.fit(max(1, width - 2)), "strong")])
        shown = self._table_shown
        heading = self.table.lay_out_heading(width)
        if shown is not None:
            heading = self.details.lay_out_heading(width)
        self._heading.set_pieces([Piece(heading[1:], "muted")])
        words = shown.title if shown is not None else f"{plan.findings} · {plan.basis}"
        self._findings.set_pieces([Piece(words, "text" if shown is not None else "muted")])

    @on(events.Resize)
    def fit(self) -> None:
        self._rearrange()
        self._draw()

    def _rearrange(self) -> None:
        """Share the rows among the parts; an opened table gets all."""
        height = self.size.height
        is_open = self._table_shown is not None
        for part in (self.table, self.stages):
            part.display = not is_open
        self._facts.display = not is_open and height >= LEAST_ROWS_FOR_FACTS
        self._findings.display = is_open or height >= LEAST_ROWS_FOR_FINDINGS
        rows = height - CHROME_ROWS - FACTS_ROWS * self._facts.display
        rows -= self._findings.display + self._filter.display
        self._assumed.display = not is_open and self.plan is not None
        if self._assumed.display and self.plan is not None:
            rows -= self._assumed.show(self.plan.assumed, self.size.width, height)
        self._share(rows, [] if self.plan is None else self.plan.candidates)

    def _share(self, rows: int, candidates: Sequence[Candidate]) -> None:
        """Give rows to the candidates, to the stages of one, and the rest to the content of a stage."""
        most_stages = max((len(each.stages) for each in candidates), default=1)
        wanted = max(rows // 2, rows - most_stages)
        self.table.styles.height = taken = max(1, min(len(candidates), wanted))
        held = [each for each in (self.candidate, self._other) if each is not None]
        stages = max((len(each.stages) for each in held), default=1)
        is_open = self._table_shown is not None
        self._below.display = not is_open and rows - taken - stages >= LEAST_ROWS_BELOW
        self.details.display = is_open or self._below.display
        self.stages.styles.height = max(1, stages) if self._below.display else "1fr"

    @on(RowTable.Chosen, "#table")
    def show_chosen(self, message: RowTable.Chosen) -> None:
        message.stop()
        self.stages.chosen = 0
        self._rearrange()
        self._draw()

    @on(RowTable.Chosen, "#stages")
    def show_stage(self, message: RowTable.Chosen) -> None:
        message.stop()
        self._draw_below()

    @on(RowTable.Opened, "#table")
    def open_candidate(self, message: RowTable.Opened) -> None:
        message.stop()
        if self.candidate is not None and self.candidate.stages:
            self.stages.focus()

    @on(RowTable.Opened, "#stages")
    def open_stage(self, message: RowTable.Opened) -> None:
        message.stop()
        if self.stages.stage is not None:
            self._open(self.stages.stage.describe())

    def _open(self, table: PlannedTable) -> None:
        self._came_from = self.stages if self.focused is self.stages else self.table
        self._table_shown = table
        self.details.show(table)
        self._rearrange()
        self.details.focus()
        self._draw()
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: a key typed into the filter is text."""
        if action in ("filter", "switch_part") and isinstance(self.focused, Input):
            return False
        return action not in LISTING_ACTIONS or self._table_shown is None

    async def action_leave(self) -> None:
        """Leave the innermost of: opened table, stages, filter, screen."""
        if self._table_shown is not None:
            self._table_shown = None
            self._rearrange()
            (self._came_from or self.table).focus()
            self._draw()
            self.refresh_bindings()
        elif self.focused in (self.stages, self.details):
            self.table.focus()
        elif self._filter_text:
            self._filter.action_clear()
        elif self._leave is not None:
            self._leave()

    def action_switch_part(self) -> None:
        (self.table if self.focused is self.stages else self.stages).focus()

    def action_analysis(self) -> None:
        """Show the notable facts of the model, or what the search left out."""
        if self.plan is not None:
            self._open(self.plan.analysis())

    def action_report(self) -> None:
        if self.plan is not None:
            self.app.push_screen(TextScreen(self.plan.model, self.plan.report))

    def action_export_plan(self) -> None:
        if self.plan is None:
            self.notify("There is nothing to export yet.", timeout=3)
            return
        app = self.terminal_app
        folder = app.export_folder or Path.cwd()
        try:
            files = export_plan(self.plan, app.export_screenshot(), folder, app.clock.wall_s())
        except OSError as error:
            self.notify(f"Not exported: {folder}: {error.strerror}", severity="error")
        except OutputFileError as error:
            self.notify(f"Not exported: {error}", severity="error")
        else:
            self.notify(describe_written(files))


def view_plan(make: Callable[[], Planned], *, model: str) -> FileView[PlanScreen, Planned]:
    """Return the view of a plan; `make` runs on a thread of its own, `model` names it while the user
    waits.
    """
    return FileView(
        lambda app: PlanScreen(),
        make,
        lambda passed_s: f"planning {model}: {passed_s:.0f} s; q leaves",
    )


def show_plan(make: Callable[[], Planned], *, model: str, settings: Settings) -> int:
    """Show a plan until the user quits, and return the exit code.

    Raises:
        UsageError: Nothing can be drawn here, or the plan cannot be made.
        InputFileError: The model's file cannot be read or understood.
    """
    return show_file(view_plan(make, model=model), settings)
