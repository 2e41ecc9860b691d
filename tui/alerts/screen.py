"""The alerts screen: every finding, and the whole of one; acknowledge and mute."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

from textual import events, on
from textual.app import ComposeResult
from textual.widgets import Input

from ...engine.alerts.state import FindingDecision, MuteScope
from ...engine.clock import Clock
from ...engine.model import HubStatus
from ...engine.viewer.feed import Feed
from ..draw.glyphs import Glyphs
from ..frame import keys
from ..live.process_signals import SignalPolicy
from ..screens.choice import ChoiceScreen
from ..screens.snapshot_screen import SnapshotScreen
from ..widgets.filter_bar import FilterBar
from .detail import AlertContent, AlertDetail
from .heading import AlertHeading, HookLine
from .list import AlertList
from .rows import ALERT_COLUMNS, AlertColumn, AlertOrder, collect_rows, filter_rows, sort_rows

TITLE_FROM_ROWS = 12
KEYS_FROM_ROWS = 12
PREVIEW_FROM_ROWS = 28
LEAST_LIST_ROWS = 6
FILTER_HINT = "in kind, severity, device, text; Enter keeps, Esc clears"
READ_ONLY = "this view was started with --read-only: nothing is decided from here"
NOTHING_FOUND = "Nothing was found so far."
NOTHING_FOUND_YET = "Nothing was found up to this moment."
WHAT_WOULD_BE = (
    "Here stands what the analyzers find, with its evidence, how it was concluded and what to do: memory "
    "that runs out or will, leaks, fragmentation, memory held idle. It stays in the list after it closed."
)
SCOPES: dict[MuteScope, str] = {
    "hour": "for an hour",
    "open": "until this one closes",
    "always": "for good",
}


class AlertsScreen(SnapshotScreen):
    """Lists findings; Enter shows one whole.

    Args:
        glyphs: Characters to draw with.
        feed: Where decisions go.
        clock: Where time is read.
        signal_policy: Whether anything may be changed from here.
    """

    BINDINGS = [*keys.ALERTS]

    def __init__(self, glyphs: Glyphs, feed: Feed, clock: Clock, signal_policy: SignalPolicy) -> None:
        super().__init__(glyphs, feed.history, clock)
        self._feed = feed
        self._is_read_only = signal_policy.is_read_only
        self._is_whole = False
        self._filter_text = ""
        self.order = AlertOrder()
        self._heading = AlertHeading(glyphs, id="heading")
        self._hooks = HookLine(id="hooks")
        self.list = AlertList(glyphs, id="list")
        self.detail = AlertDetail(glyphs, id="detail")
        self._filter = FilterBar(hint=FILTER_HINT, example="such as: leak gpu5", id="filter")

    def compose(self) -> ComposeResult:
        """Yield the parts, top to bottom."""
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
        """Give the list the keys and draw."""
        self._keys.hide(("pause",))  # it makes room for what can be done here
        self.list.focus()
        self._show()

    @property
    def selected_device(self) -> str | None:
        """The device that the selected finding is about."""
        row = self.list.selected_row
        return None if row is None else row.finding.device_uuid

    @on(events.Resize)
    def fit(self, event: events.Resize) -> None:
        """Choose anew which parts fit."""
        self._rearrange()

    def _show(self) -> None:
        """Push the snapshot down to every part."""
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
        """Show the selected finding whole, below the list or in its place."""
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
            return (NOTHING_FOUND_YET, "", WHAT_WOULD_BE)
        return (NOTHING_FOUND, "", WHAT_WOULD_BE, "", _describe_watch(self.snapshot.hub))

    def _rearrange(self) -> None:
        """Show the parts that fit: the whole of one, or the list, with a preview where there is room."""
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
        """Show the finding that was selected."""
        message.stop()
        self._show_detail()

    @on(AlertList.Opened)
    def show_whole(self, message: AlertList.Opened) -> None:
        """Show the selected finding in place of the list."""
        message.stop()
        self._is_whole = True
        self._rearrange()

    def action_step_alert(self, places: int) -> None:
        """Select the alert that many places further down."""
        self.list.action_move(places)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: what is typed into the filter is no key."""
        return action not in ("filter", "step_alert") or not isinstance(self.focused, Input)

    def action_filter(self) -> None:
        """Open the filter."""
        self._is_whole = False
        self._filter.open()
        self._rearrange()

    @on(FilterBar.TextChanged)
    def filter_alerts(self, message: FilterBar.TextChanged) -> None:
        """Filter while typing."""
        message.stop()
        self._filter_text = message.text
        self._show()

    @on(FilterBar.Closed)
    def end_filter(self, message: FilterBar.Closed) -> None:
        """Give the keys to what was filtered."""
        message.stop()
        self.list.focus()

    def action_choose_sort(self) -> None:
        """Ask for what to sort by."""

        def sort(name: str | None) -> None:
            if name is not None:
                column = cast(AlertColumn, name)
                is_same = column == self.order.column
                self.sort_alerts(AlertOrder(column, not self.order.is_inverted if is_same else False))

        used = self.order.column
        choices: dict[str, str] = {
            name: f"{name}  (invert)" if name == used else name for name in ALERT_COLUMNS
        }
        self.app.push_screen(ChoiceScreen("Sort alerts by", choices, chosen=used), sort)

    def sort_alerts(self, order: AlertOrder) -> None:
        """Sort as told."""
        self.order = order
        self._show()

    def list_sorts(self) -> Iterator[tuple[str, str, Callable[[], None]]]:
        """Yield every order of the alerts, for the palette."""
        for column in ALERT_COLUMNS:
            yield column, f"Sort alerts by {column}.", partial(self.sort_alerts, AlertOrder(column))

    def action_shift_sort(self, places: int) -> None:
        """Sort by the column to the left or right."""
        self.sort_alerts(self.order.shifted(places))

    def action_invert_sort(self) -> None:
        """Sort the other way round."""
        self.sort_alerts(self.order._replace(is_inverted=not self.order.is_inverted))

    def action_acknowledge(self) -> None:
        """Say that somebody takes care of the selected finding."""
        row = self.list.selected_row
        if row is not None and row.stage == "closed":
            self.notify("It has closed: there is nothing to acknowledge.", timeout=3)
        elif self._may_decide() and row is not None:
            self._feed.decide(FindingDecision("acknowledge", row.finding.id))

    def action_release(self) -> None:
        """Take back what was decided about the selected finding."""
        row = self.list.selected_row
        if row is not None and not self.snapshot.alerts.is_silent(row.finding):
            self.notify("It is neither acknowledged nor muted.", timeout=3)
        elif self._may_decide() and row is not None:
            self._feed.decide(FindingDecision("release", row.finding.id))

    def action_mute(self) -> None:
        """Ask for how long to mute the kind of the selected finding on its device."""
        row = self.list.selected_row
        if not self._may_decide() or row is None:
            return
        finding = row.finding

        def mute(scope: str | None) -> None:
            if scope is not None:
                self._feed.decide(FindingDecision("mute", finding.id, cast(MuteScope, scope)))

        choices: dict[str, str] = {
            scope: text for scope, text in SCOPES.items() if finding.is_open or scope != "open"
        }
        self.app.push_screen(ChoiceScreen(f"Mute {row.kind} on {row.where}", choices), mute)

    def _may_decide(self) -> bool:
        """Return whether anything can be decided here and now; say why not."""
        if self._is_read_only:
            self.notify(READ_ONLY, severity="warning", timeout=4)
        elif self.list.selected_row is None:
            self.notify("There is no alert.", timeout=3)
        elif self.snapshot.connection != "live":
            self.notify("The agent is not reached: nothing can be decided now.", timeout=4)
        else:
            return True
        return False

    async def action_leave(self) -> None:
        """Go out: of the whole of one, of the filter, of the screen."""
        if self._is_whole:
            self._is_whole = False
            self._rearrange()
        elif self._filter_text:
            self._filter.action_clear()
        else:
            await self.run_action("app.leave_alerts")


def _describe_watch(hub: HubStatus | None) -> str:
    """Return who looks for trouble, or why nobody does."""
    if hub is None:
        return "No agent is reached yet."
    names = [name.replace("_", " ") for worker in hub.workers for name in worker.analyzers]
    if not names:
        reasons = [worker.reason for worker in hub.workers if worker.reason]
        return f"No analyzer runs{': ' + reasons[0] if reasons else ''}."
    return f"Analyzers at work: {', '.join(names)}."
