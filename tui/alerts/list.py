"""The list of findings: one row each, repainted only where it changed."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from ...engine.units import format_age
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Role, Span, fit_line
from ..frame import keys
from ..widgets.device_fields import wrap_words
from ..widgets.line_page import LinePage
from ..widgets.title_line import format_time
from .rows import AlertRow

KIND_FROM_CELLS = 140
STATE_FROM_CELLS = 60
"""Widths from which a row has a column of its own for the kind, and says when it closed."""
SHORT_STATE_CELLS = 6
SEVERITY_CELLS = 9
SHORT_TIME_CELLS = 6
SHORT_STATES = {"open": "open", "acknowledged": "seen", "muted": "muted", "closed": "closed"}


class _Cells(NamedTuple):
    """Widths that all rows share, so that columns stand below each other."""

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
        """Another alert is selected."""

    class Opened(Message):
        """The selected alert is to be shown whole."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._rows: Sequence[AlertRow] = ()
        self._absence: tuple[str, ...] = ()
        self._now_s = 0.0
        self._clock = "wall"
        self._selected: str | None = None
        self._index = 0

    @property
    def selected_row(self) -> AlertRow | None:
        """The row under the cursor."""
        return self._rows[self._index] if self._rows else None

    def show(
        self, rows: Sequence[AlertRow], *, now_s: float, clock: str, absence: tuple[str, ...] = ()
    ) -> None:
        """Show rows in the order given.

        Args:
            rows: The findings.
            now_s: Time of the newest sample.
            clock: Clock of the samples.
            absence: What to say where there are no rows.
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
            return [self._fit([Span(f" {line}", "muted")], width) for line in self._wrap_absence(width)]
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

    def _wrap_absence(self, width: int) -> list[str]:
        return [line for text in self._absence for line in (wrap_words(text, width - 2) if text else [""])]

    def _draw_row(self, row: AlertRow, state: str, width: int, cells: _Cells, *, is_selected: bool) -> Line:
        """Return one finding; what nobody needs to look at is dim, and a word says why."""
        finding = row.finding
        role = _dimmed(row)
        mark = f"{self._glyphs.risk(finding.severity)} {finding.severity}"
        gap = " " * (SEVERITY_CELLS - len(finding.severity))
        edge = Span(self._glyphs.selected if is_selected else " ", "accent")
        line = [edge, Span(mark, "muted" if row.is_dimmed else finding.severity), Span(gap)]
        if width < STATE_FROM_CELLS:
            opened = self._moment(finding.opened_s)[:SHORT_TIME_CELLS].removesuffix(":")
            short = SHORT_STATES[row.stage].ljust(SHORT_STATE_CELLS)
            what = Span(f"{row.where} {row.kind}", "muted" if row.is_dimmed else "strong")
            line += [Span(f"{opened:<{SHORT_TIME_CELLS}} {short} ", role), what]
            return self._fit(line, width)
        line += [
            Span(f"{self._moment(finding.opened_s):<9} ", role),
            Span(f"{state:<{cells.state}}  ", _stage_role(row)),
            Span(f"{row.where:<{cells.where}}  ", role),
        ]
        if width >= KIND_FROM_CELLS:
            line.append(Span(f"{row.kind:<{cells.kind}}  ", role))
        return self._fit([*line, Span(finding.title, "muted" if row.is_dimmed else "strong")], width)

    def _describe_stage(self, row: AlertRow) -> str:
        """Return since when it is open, when it closed, or what was decided about it."""
        finding = row.finding
        if finding.closed_s is not None:
            return f"closed {self._moment(finding.closed_s)}"
        if row.stage == "muted" and row.mute is not None:
            if row.mute.until_s is not None:
                return f"muted until {format_time(row.mute.until_s, 'wall')[:5]}"
            return "muted until closed" if row.mute.finding_id is not None else "muted for good"
        return f"{row.stage} {_coarse_age(max(0.0, self._now_s - finding.opened_s))}"

    def _moment(self, time_s: float) -> str:
        """Return the time of day; the day instead where it was another one."""
        if self._clock == "trace":
            return format_time(time_s, self._clock).removeprefix("t ")
        moment = datetime.fromtimestamp(time_s)
        is_today = moment.date() == datetime.fromtimestamp(self._now_s).date()
        return f"{moment:%H:%M:%S}" if is_today else f"{moment:%d %b}"

    def _fit(self, line: Line, width: int) -> Line:
        is_ascii = self._glyphs.unmeasured.isascii()
        return fit_line(line, width, is_ascii=is_ascii, ellipsis=self._glyphs.ellipsis if width > 1 else "")

    def render_line(self, y: int) -> Strip:
        """Return one row of the widget, the selected one on the background of the cursor."""
        strip = super().render_line(y)
        if self._rows and y + self.scroll_offset.y == self._index:
            style = self.get_component_rich_style("alert-list--chosen")
            tint = Style(bgcolor=style.bgcolor, reverse=style.reverse)
            return Strip(
                [Segment(text, (own or Style()) + tint) for text, own, _ in strip], strip.cell_length
            )
        return strip

    def select(self, index: int) -> None:
        """Move the cursor to a row and into sight."""
        if not self._rows:
            return
        self._index = max(0, min(index, len(self._rows) - 1))
        self._selected = self._rows[self._index].finding.id
        self._draw()
        self.scroll_to_region(Region(0, self._index, self.size.width, 1), animate=False)
        self.post_message(self.Selected())

    def action_move(self, places: int) -> None:
        """Move the cursor by rows."""
        self.select(self._index + places)

    def action_page(self, pages: int) -> None:
        """Move the cursor by pages."""
        self.select(self._index + pages * max(1, self.size.height - 1))

    def action_open(self) -> None:
        """Ask for the whole of the selected finding."""
        if self._rows:
            self.select(self._index)
            self.post_message(self.Opened())

    def on_click(self, event: events.Click) -> None:
        """Select what is clicked on; a second click shows it whole."""
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
    """Return an age that changes once a minute at most: a row that ticks costs bytes."""
    if age_s < 60:
        return "< 1 m"
    return f"{int(age_s) // 60} m" if age_s < 3600 else format_age(age_s)
