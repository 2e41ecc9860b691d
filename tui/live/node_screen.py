"""Common parts of the screens of one node: title, verdict, and a list of processes with its keys."""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from textual import on
from textual.widget import Widget
from textual.widgets import Input

from ...engine.clock import Clock
from ...engine.history import History
from ...engine.model import RankSample, Sample, StepReading
from ..screens.snapshot_screen import SnapshotScreen
from ..widgets.filter_bar import FilterBar
from .arrangement import has_process_list
from .process_signals import SignalPolicy
from .process_table import SORTABLE, ProcessTable, SortOrder

# Steps that are kept of one process: more than any screen has columns for.
MOST_STEPS = 64


class RecentSteps:
    """Keeps the last steps of each training process, as far as they were seen."""

    def __init__(self) -> None:
        self._steps: dict[int, deque[StepReading]] = {}

    def add(self, sample: Sample) -> None:
        """Store the newest steps of a sample, and forget processes that are gone."""
        for rank in sample.ranks:
            self._add_step(rank)
        if len(self._steps) > len(sample.ranks):
            pids = {rank.pid for rank in sample.ranks}
            self._steps = {pid: steps for pid, steps in self._steps.items() if pid in pids}

    def _add_step(self, rank: RankSample) -> None:
        if rank.step is None:
            return
        steps = self._steps.setdefault(rank.pid, deque(maxlen=MOST_STEPS))
        if steps and rank.step.index < steps[-1].index:
            steps.clear()  # a new process has the pid
        if not steps or rank.step.index > steps[-1].index:
            steps.append(rank.step)

    def of(self, pid: int) -> tuple[StepReading, ...]:
        return tuple(self._steps.get(pid, ()))


TOO_LOW = "No room for the process list: make the window taller."
CHOOSE_FIRST = "Select a process first: {} goes to the list, K signals the selected one."
NO_LIST_RECORDED = "No process list: this recording does not include processes."
NO_LIST_WITHOUT_GPU = "No process list: without a GPU no process holds device memory."
# Actions on the process table.
PROCESS_ACTIONS = ("choose_sort", "shift_sort", "invert_sort", "filter", "signal", "switch_part")


class NodeScreen(SnapshotScreen):
    """A screen of devices and their processes."""

    # Key that focuses the list of processes.
    LIST_KEY = "Tab"

    def __init__(self, history: History, clock: Clock, signal_policy: SignalPolicy) -> None:
        super().__init__(history, clock)
        self._signal_policy = signal_policy
        self._has_list = True
        self.processes = ProcessTable(id="processes")
        self._filter = FilterBar(id="filter")

    def _rearrange(self) -> None:
        raise NotImplementedError

    def _show_head(self) -> None:
        """Show the title and the verdict, and whether there is a list of processes."""
        super()._show_head()
        sample = self.snapshot.sample
        self._has_list = has_process_list(sample)
        self._keys.hide(self._list_useless())

    def _list_useless(self) -> tuple[str, ...]:
        # Without a list its keys have no use; the key of one may lead to another node.
        useless = () if self._has_list else PROCESS_ACTIONS
        is_recorded = self.snapshot.replay is not None
        kept = () if self.place is None and not is_recorded else ("switch_part",)
        return (*(it for it in useless if it not in kept), *(("signal",) if is_recorded else ()))

    @property
    def _is_filter_open(self) -> bool:
        return self._filter.display

    def _resize_list(self, rows: int) -> None:
        """Give the list so many rows, one of which an open filter takes; none hides it."""
        self.processes.display = rows > 0
        self.processes.styles.height = max(1, rows - self._is_filter_open)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: a slash may be part of the filter that is typed."""
        return action != "filter" or not isinstance(self.focused, Input)

    def _has_processes(self) -> bool:
        """Return whether there is a process list at all; notify why there is none."""
        sample = self.snapshot.sample
        if self._has_list or sample is None:
            return True
        self.notify(NO_LIST_RECORDED if sample.devices else NO_LIST_WITHOUT_GPU, timeout=4)
        return False

    def _can_list(self) -> bool:
        """Return whether processes are on the screen; notify why they are not."""
        if not self._has_processes():
            return False
        if not self.processes.display:
            self.notify(TOO_LOW, timeout=3)
        return self.processes.display

    def _focus_next_part(self, main: Widget) -> None:
        """Focus the next part: the main one, the processes, the time bar of a replay."""
        has_bar = self._time_bar.display
        has_list = (self._has_list and self.processes.display) if has_bar else self._can_list()
        parts = [main, *([self.processes] if has_list else []), *([self._time_bar] if has_bar else [])]
        at = parts.index(self.focused) if self.focused in parts else -1
        parts[(at + 1) % len(parts)].focus()

    def action_choose_sort(self) -> None:
        if not self._has_processes():
            return
        from .dialogs import SortScreen

        self.app.push_screen(SortScreen(self.processes.order), self.sort_processes)

    def sort_processes(self, order: SortOrder | None) -> None:
        """Sort by an order; None leaves it as it is."""
        if order is not None:
            self.processes.order = order

    def list_sorts(self) -> Iterator[tuple[str, str, Callable[[], None]]]:
        for column in SORTABLE:
            yield column, f"Sort processes by {column}.", partial(self.sort_processes, SortOrder(column))

    def action_shift_sort(self, places: int) -> None:
        if self._has_processes():
            self.processes.order = self.processes.order.shifted(places)

    def action_invert_sort(self) -> None:
        if not self._has_processes():
            return
        order = self.processes.order
        self.processes.order = order._replace(is_inverted=not order.is_inverted)

    def action_filter(self) -> None:
        if self._can_list():
            self._filter.open()
            self._rearrange()

    @on(FilterBar.TextChanged)
    def filter_rows(self, message: FilterBar.TextChanged) -> None:
        message.stop()
        self.processes.filter_text = message.text

    @on(FilterBar.Closed)
    def end_filter(self, message: FilterBar.Closed) -> None:
        message.stop()
        self.set_focus(self.processes)
        self._rearrange()

    def action_signal(self) -> None:
        """Ask which signal to send to the process marked in the list, which must be visible."""
        sample = self.snapshot.sample
        row = self.processes.selected_row
        if not self._can_list():
            return
        if sample is None or row is None:
            self.notify("No process to signal.", timeout=3)
            return
        if self.focused is not self.processes:
            self.notify(CHOOSE_FIRST.format(self.LIST_KEY), timeout=4)
            return
        from .dialogs import begin_signal

        begin_signal(self.app, sample, row, self._signal_policy)
