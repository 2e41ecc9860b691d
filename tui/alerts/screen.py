"""The alerts screen: every finding in a list, one of them in full, and actions on it."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, cast

from textual import events, on
from textual.app import ComposeResult
from textual.widgets import Input

from ...engine.alerts.state import FindingChange, FindingDecision, MuteScope
from ...engine.clock import Clock
from ...engine.model import SEVERITIES, Evidence, Finding, HookStatus, HubStatus
from ...engine.units import format_age, format_bytes
from ...engine.viewer.feed import Feed
from ..draw.numbers import count_text
from ..draw.pieces import Piece, join_pieces, measure_pieces
from ..draw.spans import Line, Span, fit_line
from ..frame import keys
from ..live.process_signals import SignalPolicy
from ..screens.dialogs import ChoiceScreen
from ..screens.snapshot_screen import SnapshotScreen
from ..widgets.device_fields import wrap_words
from ..widgets.filter_bar import FilterBar
from ..widgets.line_page import LinePage
from ..widgets.one_line import OneLine
from ..widgets.title_words import format_time
from .list import (
    ALERT_COLUMNS,
    AlertColumn,
    AlertList,
    AlertOrder,
    AlertRow,
    collect_rows,
    count_stages,
    filter_rows,
    sort_rows,
)


class AlertHeading(OneLine):
    """Counts alerts; the most severe first."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._heading: tuple[list[Piece], ...] = ([], [], [])

    def show(self, every: Sequence[AlertRow], *, shown: int, order: AlertOrder, filter_text: str) -> None:
        """Show the counts of all alerts (`every`); `shown` is how many pass the filter."""
        counts = count_stages(every)
        severities = [row.finding.severity for row in every if row.stage == "open"]
        marks = [
            Piece(f"{self.glyphs.risk(level)} {severities.count(level)} {level}", level)
            for level in reversed(SEVERITIES)
            if level in severities
        ]
        groups = [[Piece(f"{counts['open']} open", "strong")]]
        groups += [[mark] for mark in marks]
        groups += [
            [Piece(f"{counts[stage]} {stage}", "muted")]
            for stage in ("acknowledged", "muted", "closed")
            if counts[stage]
        ]
        direction = ", reversed" if order.is_inverted else ""
        sort = [Piece(f"by {order.column}{direction}", "muted", "screen.choose_sort")]
        found = [Piece(f"{shown} of {len(every)} match “{filter_text}”", "accent")] if filter_text else []
        self._heading = ([Piece("Alerts  ", "muted"), *join_pieces(groups, "  ")], sort, found)
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        counts, sort, found = self._heading
        sides = [
            (counts, [*found, Piece("  "), *sort] if found else sort),
            (counts, found),
            (found or counts, []),
        ]
        for left, right in sides:
            if measure_pieces([*left, Piece("  "), *right]) <= self.size.width - 2:
                break
        self.set_pieces(left, right)


class HookLine(OneLine):
    """Names the hooks that report findings elsewhere, and their errors."""

    # Whether it has content.
    has_news = False

    def show(self, hub: HubStatus | None) -> None:
        """Show the hooks of a hub and the hub's errors, the errors first."""
        hooks = () if hub is None else hub.hooks
        notes = [] if hub is None else [[Piece(note, "medium")] for note in hub.notes]
        troubled = sorted(hooks, key=lambda hook: hook.reason is None)
        pieces = join_pieces([*notes, *(_describe(hook) for hook in troubled)], "   ")
        self.set_pieces(pieces)
        self.has_news = bool(pieces)


def _describe(hook: HookStatus) -> list[Piece]:
    counts = [f"{hook.delivered} delivered"]
    counts += [f"{hook.failed} failed"] if hook.failed else []
    counts += [f"{hook.dropped} dropped"] if hook.dropped else []
    counts += [f"{hook.waiting} waiting"] if hook.waiting else []
    summary = ", ".join(counts)
    if hook.reason is not None:
        return [Piece(hook.reason, "medium"), Piece(f" ({summary})", "muted")]
    return [Piece(f"{hook.name} {hook.target}: {summary}", "medium" if hook.dropped else "muted")]


INDENT = "   "
MOST_NAME_CELLS = 34
TIME_CELLS = 9


class AlertContent(NamedTuple):
    """What the page is drawn from."""

    row: AlertRow | None
    # History of the finding, oldest first.
    changes: Sequence[FindingChange] = ()
    # Time of the newest sample.
    now_s: float = 0.0
    # Clock of the samples.
    clock: str = "wall"


class AlertDetail(LinePage):
    """One finding in full; scrolls where it does not fit."""

    BINDINGS = [*keys.ALERT_DETAIL]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._content = AlertContent(None)
        # Whether all evidence is shown, not only the sentence that it comes to.
        self._is_unfolded = False

    def switch_evidence(self) -> None:
        """Show all evidence, or only its first line."""
        self._is_unfolded = not self._is_unfolded
        self._draw()

    def show(self, content: AlertContent) -> None:
        """Draw a finding; unchanged lines are not painted."""
        before = self._content.row
        self._content = content
        if before is not None and content.row is not None and before.finding.id != content.row.finding.id:
            self.scroll_home(animate=False)
        self._draw()

    def action_move(self, lines: int) -> None:
        self.scroll_relative(y=lines, animate=False, immediate=True)

    def action_page(self, pages: int) -> None:
        self.scroll_relative(y=pages * max(1, self.size.height - 1), animate=False, immediate=True)

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        row = self._content.row
        if row is None or width <= 0:
            return []
        is_ascii = self.glyphs.unmeasured.isascii()
        return [
            fit_line(line, width, is_ascii=is_ascii)
            for section in self._list_sections(row, width - len(INDENT) - 1)
            for line in section
        ]

    def _list_sections(self, row: AlertRow, room: int) -> Iterator[list[Line]]:
        """Yield the sections, a blank line before each but the first."""
        finding = row.finding
        yield list(self._draw_head(row, room))
        sections: tuple[tuple[str, str, list[Line]], ...] = (
            ("What to do", "", _wrap(finding.advice, room)),
            ("Evidence", self._describe_fold(finding), list(self._draw_evidence(finding, room))),
            ("What happened", "", list(self._draw_changes(room))),
        )
        for title, hint, lines in sections:
            if lines or hint:
                yield [[Span("")], [Span(f" {title}", "accent"), Span(hint, "muted")], *lines]

    def _draw_head(self, row: AlertRow, room: int) -> Iterator[Line]:
        finding = row.finding
        clock = self._content.clock
        for number, text in enumerate(wrap_words(finding.title, room)):
            mark = self.glyphs.risk(finding.severity) if number == 0 else " "
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
        if row.stage == "acknowledged":
            return "acknowledged: no more notifications (u undoes this)"
        if row.mute is None:
            return ""
        if row.mute.until_s is not None:
            until = f"until {format_time(row.mute.until_s, 'wall')}"
        else:
            until = "until it closes" if row.mute.finding_id is not None else "for good"
        return f"{row.kind} is muted on this device {until} (u undoes this)"

    def _describe_fold(self, finding: Finding) -> str:
        count = len(finding.evidence)
        if not count:
            return ""
        return f"  {count_text(count, 'value', 'values')}: e {'hides' if self._is_unfolded else 'shows'} them"

    def _draw_evidence(self, finding: Finding, room: int) -> Iterator[Line]:
        """Yield the sentence that it comes to, and unfolded a line for each value.

        The names are in one column; unmeasured values come last.
        """
        yield from _wrap(finding.method, room)
        if not self._is_unfolded:
            return
        clock = self._content.clock
        named = [(evidence.name, format_value(evidence, clock)) for evidence in finding.evidence]
        names = min(MOST_NAME_CELLS, max((len(name) for name, _ in named), default=0), max(8, room // 2))
        for name, value in sorted(named, key=lambda pair: pair[1] == "—"):
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


def _wrap(sentence: str, room: int) -> list[Line]:
    return [[Span(INDENT), Span(text)] for text in wrap_words(sentence, room)] if sentence else []


# Values in seconds beyond this are moments, not spans.
LATEST_SPAN_S = 1e9
# Spans from here on are in minutes, hours or days.
AGE_FROM_S = 120.0
# Evidence that is the number of a process: a name of digits, not a quantity.
PROCESS_NAMES = ("process", "pid")


def format_value(evidence: Evidence, clock: str) -> str:
    """Return one value with its unit; bytes in a fitting unit, moments as the time of day."""
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


TITLE_FROM_ROWS = 12
KEYS_FROM_ROWS = 12
PREVIEW_FROM_ROWS = 28
LEAST_LIST_ROWS = 6
FILTER_HINT = "in kind, severity, device, text; Enter keeps, Esc clears"
READ_ONLY = "started with --read-only: alerts cannot be acknowledged or muted here"
NOTHING_FOUND = "No findings so far."
NOTHING_FOUND_YET = "No findings up to this moment."
WHAT_APPEARS = (
    "This list shows what the analyzers find, with evidence, method and advice: out-of-memory errors and "
    "forecasts, leaks, fragmentation, idle reserved memory. Closed findings stay in the list."
)
SCOPES: dict[MuteScope, str] = {
    "hour": "for an hour",
    "open": "until this one closes",
    "always": "for good",
}


class AlertsScreen(SnapshotScreen):
    """Lists findings; Enter shows one in full."""

    BINDINGS = [*keys.ALERTS]

    def __init__(self, feed: Feed, clock: Clock, signal_policy: SignalPolicy) -> None:
        super().__init__(feed.history, clock)
        self._feed = feed
        self._is_read_only = signal_policy.is_read_only
        self._is_whole = False
        self._filter_text = ""
        self.order = AlertOrder()
        self._heading = AlertHeading(id="heading")
        self._hooks = HookLine(id="hooks")
        self.list = AlertList(id="list")
        self.detail = AlertDetail(id="detail")
        self._filter = FilterBar(hint=FILTER_HINT, example="e.g. leak gpu5", id="filter")

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._verdict
        yield self._heading
        yield self._hooks
        yield self._filter
        yield self.list
        yield self.detail
        yield self._overview
        yield self._time_bar
        yield self._keys

    def on_mount(self) -> None:
        self._keys.hide(("pause",))  # it makes room for what can be done here
        self.list.focus()
        self._show()

    @property
    def selected_device(self) -> str | None:
        row = self.list.selected_row
        return None if row is None else row.finding.device_uuid

    @on(events.Resize)
    def fit(self, event: events.Resize) -> None:
        self._rearrange()

    def _show(self) -> None:
        self._show_head()
        sample = self.snapshot.sample
        every = collect_rows(self.snapshot)
        rows = sort_rows(filter_rows(every, self._filter_text), self.order)
        self._heading.show(every, shown=len(rows), order=self.order, filter_text=self._filter_text)
        self._hooks.show(self.snapshot.hub)
        self.list.show(
            rows,
            now_s=sample.time_s if sample else 0.0,
            clock=sample.clock if sample else "wall",
            absence=self._explain_absence(has_any=bool(every)),
        )
        self._show_detail()
        self._rearrange()

    def _show_detail(self) -> None:
        """Show the selected finding in full, below the list or in its place."""
        sample = self.snapshot.sample
        row = self.list.selected_row
        if row is None or sample is None:
            self.detail.show(AlertContent(None))
            return
        changes = self.snapshot.alerts.changes_of(row.finding)
        self.detail.show(AlertContent(row, changes, sample.time_s, sample.clock))

    def _explain_absence(self, *, has_any: bool) -> tuple[str, ...]:
        if has_any:
            return (f"No alert matches “{self._filter_text}”; Esc shows all.",)
        if self.snapshot.replay is not None:
            return (NOTHING_FOUND_YET, "", WHAT_APPEARS)
        return (NOTHING_FOUND, "", WHAT_APPEARS, "", _describe_watch(self.snapshot.hub))

    def _rearrange(self) -> None:
        """Show the parts that fit: one in full, or the list, with a preview where there is room."""
        self._fit_time_bar()
        height = self._rows
        row = self.list.selected_row
        self._is_whole = self._is_whole and row is not None
        has_preview = height >= PREVIEW_FROM_ROWS and row is not None
        with self.app.batch_update():
            self._title.display = height >= TITLE_FROM_ROWS
            self._hooks.display = self._hooks.has_news and height >= TITLE_FROM_ROWS
            self._keys.display = height >= KEYS_FROM_ROWS
            self.list.display = not self._is_whole
            self.detail.display = self._is_whole or has_preview
            self.detail.set_class(has_preview and not self._is_whole, "-preview")
            self.list.styles.height = max(LEAST_LIST_ROWS, height * 2 // 5) if has_preview else "1fr"
        if self._is_whole != (self.focused is self.detail) and not self._filter.display:
            (self.detail if self._is_whole else self.list).focus()

    @on(AlertList.Selected)
    def follow_selection(self, message: AlertList.Selected) -> None:
        message.stop()
        self._show_detail()

    @on(AlertList.Opened)
    def show_whole(self, message: AlertList.Opened) -> None:
        message.stop()
        self._is_whole = True
        self._rearrange()

    def action_switch_evidence(self) -> None:
        self.detail.switch_evidence()

    def action_step_alert(self, places: int) -> None:
        self.list.action_move(places)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: a key typed into the filter is text."""
        return action not in ("filter", "step_alert") or not isinstance(self.focused, Input)

    def action_filter(self) -> None:
        self._is_whole = False
        self._filter.open()
        self._rearrange()

    @on(FilterBar.TextChanged)
    def filter_alerts(self, message: FilterBar.TextChanged) -> None:
        message.stop()
        self._filter_text = message.text
        self._show()

    @on(FilterBar.Closed)
    def end_filter(self, message: FilterBar.Closed) -> None:
        message.stop()
        self.list.focus()

    def action_choose_sort(self) -> None:
        def sort(name: str | None) -> None:
            if name is not None:
                column = cast(AlertColumn, name)
                is_same = column == self.order.column
                self.sort_alerts(AlertOrder(column, not self.order.is_inverted if is_same else False))

        used = self.order.column
        choices: dict[str, str] = {
            name: f"{name}  (reverse)" if name == used else name for name in ALERT_COLUMNS
        }
        self.app.push_screen(ChoiceScreen("Sort alerts by", choices, chosen=used), sort)

    def sort_alerts(self, order: AlertOrder) -> None:
        self.order = order
        self._show()

    def list_sorts(self) -> Iterator[tuple[str, str, Callable[[], None]]]:
        for column in ALERT_COLUMNS:
            yield column, f"Sort alerts by {column}.", partial(self.sort_alerts, AlertOrder(column))

    def action_shift_sort(self, places: int) -> None:
        self.sort_alerts(self.order.shifted(places))

    def action_invert_sort(self) -> None:
        self.sort_alerts(self.order._replace(is_inverted=not self.order.is_inverted))

    def action_acknowledge(self) -> None:
        row = self.list.selected_row
        if row is not None and row.stage == "closed":
            self.notify("This alert has closed: there is nothing to acknowledge.", timeout=3)
        elif self._may_decide() and row is not None:
            self._decide(FindingDecision("acknowledge", row.finding.id))

    def action_release(self) -> None:
        row = self.list.selected_row
        if row is not None and not self.snapshot.alerts.is_silent(row.finding):
            self.notify("This alert is neither acknowledged nor muted.", timeout=3)
        elif self._may_decide() and row is not None:
            self._decide(FindingDecision("release", row.finding.id))

    def action_mute(self) -> None:
        """Ask for how long to mute the kind of the selected finding on its device."""
        row = self.list.selected_row
        if not self._may_decide() or row is None:
            return
        finding = row.finding

        def mute(scope: str | None) -> None:
            if scope is not None:
                self._decide(FindingDecision("mute", finding.id, cast(MuteScope, scope)))

        choices: dict[str, str] = {
            scope: text for scope, text in SCOPES.items() if finding.is_open or scope != "open"
        }
        self.app.push_screen(ChoiceScreen(f"Mute {row.kind} on {row.where}", choices), mute)

    def _decide(self, decision: FindingDecision) -> None:
        # The finding stays selected; a cursor that was never moved would follow the newest.
        self.list.action_move(0)
        self._feed.decide(decision)

    def _may_decide(self) -> bool:
        """Return whether decisions are possible here and now; notify the user if not."""
        if self._is_read_only:
            self.notify(READ_ONLY, severity="warning", timeout=4)
        elif self.list.selected_row is None:
            self.notify("No alert is selected.", timeout=3)
        elif self.snapshot.connection != "live":
            self.notify("Not connected to the agent: alerts cannot be changed now.", timeout=4)
        else:
            return True
        return False

    async def action_leave(self) -> None:
        """Leave the finding in full, else the filter, else the screen."""
        if self._is_whole:
            self._is_whole = False
            self._rearrange()
        elif self._filter_text:
            self._filter.action_clear()
        else:
            await self.run_action("app.leave_alerts")


def _describe_watch(hub: HubStatus | None) -> str:
    if hub is None:
        return "Not connected to an agent yet."
    names = [name.replace("_", " ") for worker in hub.workers for name in worker.analyzers]
    if not names:
        reasons = [worker.reason for worker in hub.workers if worker.reason]
        return f"No analyzer is running{': ' + reasons[0] if reasons else ''}."
    return f"Analyzers running: {', '.join(names)}."
