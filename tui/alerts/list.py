"""The list of findings: the text of a row, the order, and the list itself with a cursor."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, get_args

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from ...analyzers.finding_words import name_kind
from ...analyzers.findings.subjects import name_found_device
from ...engine.alerts.state import AlertState, Mute
from ...engine.model import SEVERITIES, Finding, RankSample, Sample
from ...engine.units import format_age
from ...engine.viewer.snapshot import Snapshot
from ..draw.spans import Line, Role, Span, fit_line
from ..frame import keys
from ..widgets.device_fields import wrap_words
from ..widgets.line_page import LinePage
from ..widgets.title_words import format_time

AlertColumn = Literal["time", "severity", "kind", "device"]
# Left to right.
ALERT_COLUMNS: tuple[AlertColumn, ...] = get_args(AlertColumn)
Stage = Literal["open", "acknowledged", "muted", "closed"]
# Evidence that is the number of a process.
PROCESS_NAMES = ("process", "pid")


class AlertRow(NamedTuple):
    finding: Finding
    # Its decision state; a closed finding is always `closed`.
    stage: Stage
    # In words.
    kind: str
    # Such as `GPU 5`, `GPU 5 rank 5`, `rank 5`, `node03`.
    where: str
    mute: Mute | None = None

    @property
    def is_dimmed(self) -> bool:
        """Whether it needs no attention now."""
        return self.stage != "open"


class AlertOrder(NamedTuple):
    """Sort column and direction; open ones always come first."""

    column: AlertColumn = "time"
    is_inverted: bool = False

    def shifted(self, places: int) -> "AlertOrder":
        """Return the order by the column that many places to the right; stops at the edges."""
        index = ALERT_COLUMNS.index(self.column) + places
        return AlertOrder(ALERT_COLUMNS[max(0, min(len(ALERT_COLUMNS) - 1, index))])


SortKey = tuple[float | str, ...]
_KEYS: dict[AlertColumn, Callable[[AlertRow], SortKey]] = {
    "time": lambda row: (-row.finding.opened_s,),
    "severity": lambda row: (-SEVERITIES.index(row.finding.severity),),
    "kind": lambda row: (row.kind,),
    "device": lambda row: _natural(row.where),
}


def collect_rows(snapshot: Snapshot) -> list[AlertRow]:
    """Return a row for every finding of a snapshot, in its order."""
    sample = snapshot.sample
    alerts = snapshot.alerts
    ranks = {rank.pid: rank for rank in sample.ranks} if sample else {}
    return [_make_row(finding, alerts, sample, ranks) for finding in snapshot.findings]


def filter_rows(rows: Sequence[AlertRow], text: str) -> list[AlertRow]:
    """Return the rows that contain every word, ignoring case; the whole phrase where any row has it.

    Searched are kind, severity, device (`gpu5`), decision, and the sentences.
    """
    words = text.lower().split()
    phrase = " ".join(words)
    terms = [phrase] if any(_contains(row, phrase) for row in rows) else words
    return [row for row in rows if all(_contains(row, term) for term in terms)]


def sort_rows(rows: Sequence[AlertRow], order: AlertOrder) -> list[AlertRow]:
    """Return the rows sorted: open ones first, the newest first among equals."""
    # By id first: a restated finding comes in a different place, and must not swap rows with its equals.
    newest = sorted(sorted(rows, key=lambda row: row.finding.id), key=_KEYS["time"])
    chosen = sorted(newest, key=_KEYS[order.column], reverse=order.is_inverted)
    return sorted(chosen, key=lambda row: not row.finding.is_open)


def count_stages(rows: Sequence[AlertRow]) -> dict[Stage, int]:
    return {stage: sum(row.stage == stage for row in rows) for stage in get_args(Stage)}


def _make_row(
    finding: Finding, alerts: AlertState, sample: Sample | None, ranks: dict[int, RankSample]
) -> AlertRow:
    mute = alerts.mute_of(finding)
    stage: Stage = "open"
    if not finding.is_open:
        stage = "closed"
    elif mute is not None:
        stage = "muted"
    elif alerts.is_acknowledged(finding):
        stage = "acknowledged"
    return AlertRow(finding, stage, name_kind(finding.kind), _place(finding, sample, ranks), mute)


def _place(finding: Finding, sample: Sample | None, ranks: dict[int, RankSample]) -> str:
    """Return the device and, where a finding is about one process that reports, its rank."""
    place = name_found_device(finding, sample)
    if place is None:
        return finding.node
    pid = next((found.value for found in finding.evidence if found.name in PROCESS_NAMES), None)
    rank = ranks.get(pid) if isinstance(pid, int) else None
    known = None if rank is None or rank.coordinates is None else rank.coordinates.rank
    return place if known is None else f"{place} rank {known}"


def strip_place(title: str, where: str) -> str:
    """Return a title without the device and rank at its beginning that `where` says already."""
    device, _, rank = where.partition(" rank ")
    inside = rf"(?: \((?:rank {re.escape(rank)})\))?" if rank else ""
    return re.sub(rf"^{re.escape(device)}{inside}(?:: | (?=\S))", "", title)


def _contains(row: AlertRow, term: str) -> bool:
    finding = row.finding
    fields = (
        *(row.kind, finding.kind, finding.severity, row.stage, row.where, row.where.replace(" ", "")),
        *(finding.title, finding.advice),
    )
    return any(term in field.lower() for field in fields)


def _natural(text: str) -> SortKey:
    """Return the sort key of a place, so that `GPU 10` comes after `GPU 2`."""
    return tuple(f"{int(part):08d}" if part.isdigit() else part for part in re.split(r"(\d+)", text))


# Widths from which a row has a column for the kind, and says when it closed.
KIND_FROM_CELLS = 140
STATE_FROM_CELLS = 60
SHORT_STATE_CELLS = 6
SEVERITY_CELLS = 9
SHORT_TIME_CELLS = 6
SHORT_STATES = {"open": "open", "acknowledged": "seen", "muted": "muted", "closed": "closed"}


class _Cells(NamedTuple):
    """Column widths shared by all rows."""

    state: int
    where: int
    kind: int


class AlertList(LinePage):
    """Lists findings; the selection stays with the finding while rows come, go and move."""

    COMPONENT_CLASSES = {"alert-list--chosen"}
    DEFAULT_CSS = """
    AlertList > .alert-list--chosen {
        background: $block-cursor-background; text-style: $block-cursor-text-style;
    }
    """
    BINDINGS = [*keys.ALERT_LIST]

    class Selected(Message):
        pass

    class Opened(Message):
        """The selected alert is to be shown in full."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: Sequence[AlertRow] = ()
        self._absence: tuple[str, ...] = ()
        self._now_s = 0.0
        self._clock = "wall"
        self._selected: str | None = None
        self._index = 0

    @property
    def selected_row(self) -> AlertRow | None:
        return self._rows[self._index] if self._rows else None

    def show(
        self, rows: Sequence[AlertRow], *, now_s: float, clock: str, absence: tuple[str, ...] = ()
    ) -> None:
        """Show rows in the given order, or the paragraphs of `absence`; `now_s` is the newest sample's
        time.
        """
        self._rows = rows
        self._now_s = now_s
        self._clock = clock
        self._absence = absence
        ids = [row.finding.id for row in rows]
        if self._selected in ids:
            self._index = ids.index(self._selected)
        else:
            self._index = max(0, min(self._index, len(ids) - 1))
        self._draw()

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        if not self._rows:
            wrapped = [wrap_words(text, width - 2) if text else [""] for text in self._absence]
            return [self._fit([Span(f" {line}", "muted")], width) for lines in wrapped for line in lines]
        states = [self._describe_stage(row) for row in self._rows]
        cells = _Cells(
            state=max(len(state) for state in states),
            where=max(len(row.where) for row in self._rows),
            kind=max(len(row.kind) for row in self._rows),
        )
        return [
            self._draw_row(row, states[index], width, cells, is_selected=index == self._index)
            for index, row in enumerate(self._rows)
        ]

    def _draw_row(self, row: AlertRow, state: str, width: int, cells: _Cells, *, is_selected: bool) -> Line:
        """Return one finding; one that needs no attention is dim, and a word says why."""
        finding = row.finding
        role = _dimmed(row)
        mark = f"{self.glyphs.risk(finding.severity)} {finding.severity}"
        gap = " " * (SEVERITY_CELLS - len(finding.severity))
        edge = Span(self.glyphs.selected if is_selected else " ", "accent")
        line = [edge, Span(mark, "muted" if row.is_dimmed else finding.severity), Span(gap)]
        if width < STATE_FROM_CELLS:
            opened = self._format_moment(finding.opened_s)[:SHORT_TIME_CELLS].removesuffix(":")
            short = SHORT_STATES[row.stage].ljust(SHORT_STATE_CELLS)
            what = Span(f"{row.where} {row.kind}", "muted" if row.is_dimmed else "strong")
            line += [Span(f"{opened:<{SHORT_TIME_CELLS}} {short} ", role), what]
            return self._fit(line, width)
        line += [
            Span(f"{self._format_moment(finding.opened_s):<9} ", role),
            Span(f"{state:<{cells.state}}  ", _stage_role(row)),
            Span(f"{row.where:<{cells.where}}  ", role),
        ]
        if width >= KIND_FROM_CELLS:
            line.append(Span(f"{row.kind:<{cells.kind}}  ", role))
        title = strip_place(finding.title, row.where)
        return self._fit([*line, Span(title, "muted" if row.is_dimmed else "strong")], width)

    def _describe_stage(self, row: AlertRow) -> str:
        """Return since when it is open, when it closed, or what was decided about it."""
        finding = row.finding
        if finding.closed_s is not None:
            return f"closed {self._format_moment(finding.closed_s)}"
        if row.stage == "muted" and row.mute is not None:
            if row.mute.until_s is not None:
                return f"muted until {format_time(row.mute.until_s, 'wall')[:5]}"
            return "muted until closed" if row.mute.finding_id is not None else "muted for good"
        return f"{row.stage} {_coarse_age(max(0.0, self._now_s - finding.opened_s))}"

    def _format_moment(self, time_s: float) -> str:
        """Return the time of day; the date instead for another day."""
        if self._clock == "trace":
            return format_time(time_s, self._clock).removeprefix("t ")
        moment = datetime.fromtimestamp(time_s)
        is_today = moment.date() == datetime.fromtimestamp(self._now_s).date()
        return f"{moment:%H:%M:%S}" if is_today else f"{moment:%d %b}"

    def _fit(self, line: Line, width: int) -> Line:
        is_ascii = self.glyphs.unmeasured.isascii()
        return fit_line(line, width, is_ascii=is_ascii)

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        if self._rows and y + self.scroll_offset.y == self._index:
            style = self.get_component_rich_style("alert-list--chosen")
            tint = Style(bgcolor=style.bgcolor, reverse=style.reverse)
            return Strip(
                [Segment(text, (own or Style()) + tint) for text, own, _ in strip], strip.cell_length
            )
        return strip

    def select(self, index: int) -> None:
        """Move the cursor to a row, and scroll to it."""
        if not self._rows:
            return
        self._index = max(0, min(index, len(self._rows) - 1))
        self._selected = self._rows[self._index].finding.id
        self._draw()
        self.scroll_to_region(Region(0, self._index, self.size.width, 1), animate=False)
        self.post_message(self.Selected())

    def action_move(self, places: int) -> None:
        self.select(self._index + places)

    def action_page(self, pages: int) -> None:
        self.select(self._index + pages * max(1, self.size.height - 1))

    def action_open(self) -> None:
        if self._rows:
            self.select(self._index)
            self.post_message(self.Opened())

    def on_click(self, event: events.Click) -> None:
        """Select the clicked row; a double click shows it in full."""
        index = event.y + self.scroll_offset.y
        if index < len(self._rows):
            self.select(index)
            if event.chain > 1:
                self.post_message(self.Opened())


def _dimmed(row: AlertRow) -> Role:
    return "muted" if row.is_dimmed else "text"


def _stage_role(row: AlertRow) -> Role:
    return "accent" if row.stage in ("acknowledged", "muted") else _dimmed(row)


def _coarse_age(age_s: float) -> str:
    """Return an age that changes at most once a minute: a row that ticks costs bytes."""
    if age_s < 60:
        return "< 1 m"
    return f"{int(age_s) // 60} m" if age_s < 3600 else format_age(age_s)
