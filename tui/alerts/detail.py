"""One finding whole: what was decided, the evidence, how it was concluded, what to do, what happened."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...engine.alerts.state import FindingChange
from ...engine.model import Evidence, Finding
from ...engine.units import format_age, format_bytes
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Role, Span, fit_line
from ..frame import keys
from ..widgets.device_fields import wrap_words
from ..widgets.line_page import LinePage
from ..widgets.title_line import format_time
from .rows import AlertRow

INDENT = "   "
MOST_NAME_CELLS = 34
TIME_CELLS = 9


class AlertContent(NamedTuple):
    """What the page is drawn from."""

    row: AlertRow | None
    changes: Sequence[FindingChange] = ()
    """What happened to it, oldest first."""
    now_s: float = 0.0
    """Time of the newest sample."""
    clock: str = "wall"
    """Clock of the samples."""


class AlertDetail(LinePage):
    """The whole of one finding; scrolls where there is more than room."""

    BINDINGS = [*keys.ALERT_DETAIL]

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._content = AlertContent(None)

    def show(self, content: AlertContent) -> None:
        """Draw a finding; lines that did not change are left alone."""
        before = self._content.row
        self._content = content
        if before is not None and content.row is not None and before.finding.id != content.row.finding.id:
            self.scroll_home(animate=False)
        self._draw()

    def action_move(self, lines: int) -> None:
        """Scroll by lines."""
        self.scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        """Scroll by pages."""
        self.scroll_relative(y=pages * max(1, self.size.height - 1), animate=False)

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        row = self._content.row
        if row is None or width <= 0:
            return []
        is_ascii = self._glyphs.unmeasured.isascii()
        ellipsis = self._glyphs.ellipsis if width > 1 else ""
        return [
            fit_line(line, width, is_ascii=is_ascii, ellipsis=ellipsis)
            for section in self._list_sections(row, width - len(INDENT) - 1)
            for line in section
        ]

    def _list_sections(self, row: AlertRow, room: int) -> Iterator[list[Line]]:
        """Yield what there is to say, a blank line before each but the first."""
        finding = row.finding
        yield list(self._draw_head(row, room))
        sections: tuple[tuple[str, list[Line]], ...] = (
            ("What to do", _wrap(finding.advice, room)),
            ("Evidence", list(self._draw_evidence(finding, room))),
            ("What happened", list(self._draw_changes(room))),
            ("How it was concluded", _wrap(finding.method, room, "muted")),
        )
        for title, lines in sections:
            if lines:
                yield [[Span("")], [Span(f" {title}", "accent")], *lines]

    def _draw_head(self, row: AlertRow, room: int) -> Iterator[Line]:
        finding = row.finding
        clock = self._content.clock
        for number, text in enumerate(wrap_words(finding.title, room)):
            mark = self._glyphs.risk(finding.severity) if number == 0 else " "
            yield [Span(" "), Span(mark, finding.severity), Span(" "), Span(text, "strong")]
        since = f"opened {format_time(finding.opened_s, clock)}"
        if finding.closed_s is not None:
            lasted = format_age(max(0.0, finding.closed_s - finding.opened_s))
            since += f", closed {format_time(finding.closed_s, clock)}, after {lasted}"
        else:
            since += f", open for {format_age(max(0.0, self._content.now_s - finding.opened_s))}"
        facts = (
            finding.severity,
            row.kind,
            row.where,
            *([finding.node] if row.where != finding.node else []),
        )
        for text in wrap_words(" · ".join((*facts, since)), room):
            yield [Span(INDENT), Span(text, "text")]
        decided = self._describe_decision(row)
        if decided:
            yield [Span(INDENT), Span(decided, "accent")]

    def _describe_decision(self, row: AlertRow) -> str:
        """Return what was decided about it and how that is taken back."""
        if row.stage == "acknowledged":
            return "acknowledged: nobody is told of it any more (u takes that back)"
        if row.mute is None:
            return ""
        if row.mute.until_s is not None:
            until = f"until {format_time(row.mute.until_s, 'wall')}"
        else:
            until = "until it closes" if row.mute.finding_id is not None else "for good"
        return f"{row.kind} is muted on this device {until} (u takes that back)"

    def _draw_evidence(self, finding: Finding, room: int) -> Iterator[Line]:
        """Yield a line for each number, the names in one column; what nobody measured is left to the end."""
        clock = self._content.clock
        told = [(evidence.name, tell_value(evidence, clock)) for evidence in finding.evidence]
        names = min(MOST_NAME_CELLS, max((len(name) for name, _ in told), default=0), max(8, room // 2))
        for name, value in sorted(told, key=lambda pair: pair[1] == "—"):
            for number, text in enumerate(wrap_words(value, room - names - 2)):
                head = name if number == 0 else ""
                yield [Span(INDENT), Span(f"{head:<{names}}  ", "muted"), Span(text, "text")]

    def _draw_changes(self, room: int) -> Iterator[Line]:
        for change in self._content.changes:
            text = f"{change.what}: {change.title}" if change.title else change.what
            time = format_time(change.time_s, self._content.clock)
            for number, part in enumerate(wrap_words(text, room - TIME_CELLS)):
                head = time if number == 0 else ""
                yield [Span(INDENT), Span(f"{head:<{TIME_CELLS}} ", "muted"), Span(part, "text")]


def _wrap(sentence: str, room: int, role: Role = "text") -> list[Line]:
    return [[Span(INDENT), Span(text, role)] for text in wrap_words(sentence, room)] if sentence else []


LATEST_SPAN_S = 1e9
"""Seconds beyond this are a moment, not a span."""
AGE_FROM_S = 120.0
"""Spans from here on are said in minutes, hours or days."""
PROCESS_NAMES = ("process", "pid")
"""Evidence that is the number of a process: a name of digits, and no quantity."""


def tell_value(evidence: Evidence, clock: str) -> str:
    """Return one number with its unit; bytes in the unit that suits them, moments as the time of day.

    Args:
        evidence: The number.
        clock: Clock of the samples that it is about.
    """
    value = evidence.value
    unit = evidence.unit
    if value is None:
        return "—"
    if isinstance(value, int | float) and unit == "s" and value > LATEST_SPAN_S:
        return format_time(value, clock)
    if isinstance(value, int | float) and unit == "s" and value >= AGE_FROM_S:
        return format_age(value)
    if isinstance(value, int | float) and unit.startswith("bytes"):
        return format_bytes(int(value)) + unit.removeprefix("bytes")
    if evidence.name in PROCESS_NAMES:
        return str(value)
    number = f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else value
    return f"{number} {unit}" if unit else number
