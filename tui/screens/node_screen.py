"""What the screens of one node have in common: title, verdict, and a list of processes with its keys."""

from textual import on
from textual.reactive import reactive
from textual.timer import Timer
from textual.widgets import Input

from ...analyzers.verdict import summarize
from ...engine.bus.snapshot import Snapshot
from ...engine.clock import Clock
from ...engine.history import History
from ..compositor import ThriftyScreen
from ..drawing.glyphs import Glyphs
from ..process_rows import SortOrder
from ..process_signals import SignalPolicy
from ..recent_count import RecentCount
from ..widgets.filter_bar import FilterBar
from ..widgets.key_line import KeyLine
from ..widgets.process_table import ProcessTable
from ..widgets.title_line import TitleLine
from ..widgets.verdict_line import VerdictLine, describe_trouble

AGE_TICK_S = 1.0
TOO_LOW = "No room for the process list here: make the window taller."
CHOOSE_FIRST = "Choose the process first: {} goes to the list, K signals the one marked there."
NO_LIST_RECORDED = "No process list: a recording does not tell which processes held memory."
NO_LIST_WITHOUT_GPU = "No process list: without a GPU no process holds device memory."
PROCESS_ACTIONS = ("choose_sort", "shift_sort", "invert_sort", "filter", "signal", "switch_part")
"""Actions that are for the process table."""


class NodeScreen(ThriftyScreen[None]):
    """A screen that draws the snapshots of a node; those below say what and how."""

    LIST_KEY = "Tab"
    """Key that leads to the list of processes."""

    snapshot: reactive[Snapshot] = reactive(Snapshot, repaint=False)
    """What is drawn."""
    frames_skipped: reactive[int] = reactive(0, repaint=False)
    """Snapshots that a newer one replaced before they were drawn."""
    paused_since_s: reactive[float | None] = reactive(None, repaint=False)
    """Time of the sample at which the figures were frozen, or None."""

    def __init__(self, glyphs: Glyphs, history: History, clock: Clock, signal_policy: SignalPolicy) -> None:
        super().__init__()
        self.glyphs, self._history, self._clock = glyphs, history, clock
        self._signal_policy = signal_policy
        self._arrived_s = clock.monotonic_s()
        self._skips = RecentCount()
        self._age_timer: Timer | None = None
        self._has_list = True
        self._title, self._verdict = TitleLine(id="title"), VerdictLine(glyphs, id="verdict")
        self._keys = KeyLine(id="keys")
        self.processes = ProcessTable(id="processes")
        self._filter = FilterBar(id="filter")

    def watch_snapshot(self) -> None:
        """Draw a new snapshot."""
        self._arrived_s = self._clock.monotonic_s()
        if self.is_mounted:
            self._show()

    def watch_paused_since_s(self) -> None:
        """Say in the title whether figures are frozen."""
        if self.is_mounted:
            self._show_title()

    def _show(self) -> None:
        """Push the snapshot down to every part."""
        raise NotImplementedError

    def _rearrange(self) -> None:
        """Choose anew which parts fit."""
        raise NotImplementedError

    def _show_head(self) -> None:
        """Show the title and the verdict, and whether there is a list of processes."""
        sample = self.snapshot.sample
        self._show_title()
        self._show_verdict()
        self._has_list = sample is None or (bool(sample.devices) and sample.clock == "wall")
        self._keys.hide(() if self._has_list else PROCESS_ACTIONS)
        self._keep_age(is_needed=self.snapshot.connection == "lost")

    def _show_title(self) -> None:
        skipped = self._skips.grow(self.frames_skipped, self._clock.monotonic_s())
        self._title.show(self.snapshot, frames_skipped=skipped, paused_since_s=self.paused_since_s)

    def _show_verdict(self) -> None:
        """Show the verdict, and before it how old the figures are where they are."""
        snapshot = self.snapshot
        silent_s = snapshot.silent_s
        if silent_s is not None:
            silent_s += self._clock.monotonic_s() - self._arrived_s
        trouble = describe_trouble(snapshot.connection, silent_s, snapshot.reason)
        self.set_class(snapshot.connection == "lost", "-stale")
        verdict = summarize(snapshot.sample, snapshot.findings, self._history.peak, snapshot.assessments)
        self._verdict.show(verdict, trouble)

    def _keep_age(self, *, is_needed: bool) -> None:
        """Count the age up while nothing arrives; no timer runs otherwise."""
        if is_needed and self._age_timer is None:
            self._age_timer = self.set_interval(AGE_TICK_S, self._show_verdict, name="age of the figures")
        elif not is_needed and self._age_timer is not None:
            self._age_timer.stop()
            self._age_timer = None

    @property
    def _is_filter_open(self) -> bool:
        return self._filter.display

    def _is_list_used(self) -> bool:
        """Return whether the process list, or its filter, has the keys."""
        return self.focused is self.processes or self._is_filter_open

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: a slash may be part of the filter that is typed."""
        return action != "filter" or not isinstance(self.focused, Input)

    def _has_processes(self) -> bool:
        """Return whether there is a process list at all; say why there is none."""
        sample = self.snapshot.sample
        if self._has_list or sample is None:
            return True
        self.notify(NO_LIST_RECORDED if sample.devices else NO_LIST_WITHOUT_GPU, timeout=4)
        return False

    def _can_list(self) -> bool:
        """Return whether processes are on the screen; say why they are not."""
        if not self._has_processes():
            return False
        if not self.processes.display:
            self.notify(TOO_LOW, timeout=3)
        return self.processes.display

    def action_choose_sort(self) -> None:
        """Ask for the column to sort by."""
        if not self._has_processes():
            return
        from .sort import SortScreen

        self.app.push_screen(SortScreen(self.processes.order), self.sort_processes)

    def sort_processes(self, order: SortOrder | None) -> None:
        """Sort as told; None leaves the order as it is."""
        if order is not None:
            self.processes.order = order

    def action_shift_sort(self, places: int) -> None:
        """Sort by the column to the left or right."""
        if self._has_processes():
            self.processes.order = self.processes.order.shifted(places)

    def action_invert_sort(self) -> None:
        """Sort the other way round."""
        if not self._has_processes():
            return
        order = self.processes.order
        self.processes.order = order._replace(is_inverted=not order.is_inverted)

    def action_filter(self) -> None:
        """Open the filter."""
        if self._can_list():
            self._filter.open()
            self._rearrange()

    @on(FilterBar.TextChanged)
    def filter_rows(self, message: FilterBar.TextChanged) -> None:
        """Filter while typing."""
        message.stop()
        self.processes.filter_text = message.text

    @on(FilterBar.Closed)
    def end_filter(self, message: FilterBar.Closed) -> None:
        """Give the keys to what was filtered."""
        message.stop()
        self.set_focus(self.processes)
        self._rearrange()

    def action_notes(self) -> None:
        """Show the notes in full."""
        from .notes import NotesScreen

        self.app.push_screen(NotesScreen(self.snapshot.sample.notes if self.snapshot.sample else ()))

    def action_signal(self) -> None:
        """Ask which signal to send to the process marked in the list, which must be seen to be marked."""
        sample, row = self.snapshot.sample, self.processes.selected_row
        if not self._can_list():
            return
        if sample is None or row is None:
            self.notify("There is no process to signal.", timeout=3)
            return
        if self.focused is not self.processes:
            self.notify(CHOOSE_FIRST.format(self.LIST_KEY), timeout=4)
            return
        from ..process_signalling import begin_signal

        begin_signal(self.app, sample, row, self._signal_policy)
