"""Common parts of the screens of one node: title, verdict, and a list of processes with its keys."""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from textual import on
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input

from ...engine.clock import Clock
from ...engine.history import History
from ...engine.model import ProcessReading, RankSample, Sample, StepReading
from ...engine.settings import SortColumn
from ...engine.sources.process_families import ProcessFamilies
from ..frame.background import run_in_background
from ..screens.snapshot_screen import SnapshotScreen
from ..widgets.filter_bar import FilterBar
from .arrangement import has_process_list
from .process_rows import SORTABLE, ProcessRow, SortOrder
from .process_signals import SignalPolicy
from .process_table import ProcessTable

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
CHOOSE_FIRST = "Select a process first: {} goes to the list."
NO_LIST_RECORDED = "No process list: this recording does not include processes."
NO_LIST_WITHOUT_GPU = "No process list: without a GPU no process holds device memory."
# Actions on the process table.
PROCESS_ACTIONS = (
    *("choose_sort", "shift_sort", "invert_sort", "filter", "signal", "switch_part"),
    *("choose_columns", "switch_tree", "show_environment"),
)
# Between two searches for parents and children of processes, while a tree shows them.
RELATIVES_INTERVAL_S = 3.0


class NodeScreen(SnapshotScreen):
    """A screen of devices and their processes."""

    # Key that focuses the list of processes.
    LIST_KEY = "Tab"

    class ProcessAsked(Message):
        """The history of a process is to be shown."""

        def __init__(self, row: ProcessRow) -> None:
            super().__init__()
            self.row = row

    def __init__(self, history: History, clock: Clock, signal_policy: SignalPolicy) -> None:
        super().__init__(history, clock)
        self._signal_policy = signal_policy
        self._has_list = True
        self.processes = ProcessTable(id="processes")
        self._filter = FilterBar(id="filter")
        self._families: ProcessFamilies | None = None
        self._relatives_due_s = 0.0
        self._is_looking_for_relatives = False

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
        of_now = ("signal", "show_environment") if is_recorded else ()
        charts = () if self._has_utilization() else ("app.switch_chart",)
        return (*(it for it in useless if it not in kept), *of_now, *charts)

    def _has_utilization(self) -> bool:
        sample = self.snapshot.sample
        return sample is not None and any(it.utilization_percent is not None for it in sample.devices)

    @property
    def _is_filter_open(self) -> bool:
        return self._filter.display

    @property
    def has_room_for_both_charts(self) -> bool:
        raise NotImplementedError

    def _resize_list(self, rows: int) -> None:
        """Give the list so many rows, less one for an open filter; zero rows hide it."""
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

        self.app.push_screen(
            SortScreen(self.processes.order, is_nvidia=self.processes.has_nvidia), self.sort_processes
        )

    def sort_processes(self, order: SortOrder | None) -> None:
        """Sort by an order; None leaves it as it is."""
        if order is not None:
            self.processes.order = order

    def list_sorts(self) -> Iterator[tuple[str, str, Callable[[], None]]]:
        for column in SORTABLE:
            word = column.replace("_", " ")
            yield word, f"Sort processes by {word}.", partial(self.sort_processes, SortOrder(column))

    def action_shift_sort(self, places: int) -> None:
        if self._has_processes():
            shown = [column.name for column in self.processes.columns]
            self.processes.order = self.processes.order.shifted(places, shown)

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

    def action_choose_columns(self) -> None:
        if not self._has_processes():
            return
        from .dialogs import ColumnsScreen

        table = self.processes
        shown = [column.name for column in table.columns]
        choice = ColumnsScreen(table.chosen_columns, shown, self._choose_columns, is_nvidia=table.has_nvidia)
        self.app.push_screen(choice)

    def _choose_columns(self, names: tuple[SortColumn, ...]) -> None:
        self.processes.chosen_columns = names

    def action_switch_tree(self) -> None:
        """List processes as a tree, or one below the other again."""
        if self._can_list():
            self.processes.is_tree = not self.processes.is_tree
            self._relatives_due_s = 0.0
            self.look_for_relatives()
            self._rearrange()

    def look_for_relatives(self) -> None:
        """Look for parents and children of the listed processes, if a tree shows them and it is time.

        They are known of this machine alone: a sample has only processes that hold device memory.
        """
        sample = self.snapshot.sample
        table = self.processes
        if sample is None or not table.is_tree:
            return
        if not self._signal_policy.is_here(sample):
            table.show_relatives(None)
            return
        now_s = self._clock.monotonic_s()
        if self._is_looking_for_relatives or now_s < self._relatives_due_s:
            return
        self._relatives_due_s = now_s + RELATIVES_INTERVAL_S
        self._is_looking_for_relatives = True
        families = self._families = self._families or ProcessFamilies()
        pids = table.listed_pids
        run_in_background(
            self, lambda: families.read(pids), then=self._take_relatives, otherwise=lambda error: None
        )

    def _take_relatives(self, relatives: dict[int, ProcessReading]) -> None:
        self._is_looking_for_relatives = False
        if self.is_mounted:
            self.processes.show_relatives(relatives)
            self._rearrange()

    @on(ProcessTable.Opened)
    def open_process(self, message: ProcessTable.Opened) -> None:
        message.stop()
        if message.row.is_relative:
            pid = message.row.process.pid
            self.notify(f"Process {pid} holds no device memory; it has no history here.", timeout=4)
        else:
            self.post_message(self.ProcessAsked(message.row))

    def action_show_environment(self) -> None:
        """Show the environment of the process selected in the list."""
        sample = self.snapshot.sample
        row = self._find_selected()
        if sample is not None and row is not None:
            from .dialogs import show_environment

            show_environment(self.app, sample, row.process, self._signal_policy)

    def _find_selected(self) -> ProcessRow | None:
        """Return the process selected in the list, which must be visible and focused; else say what to do."""
        row = self.processes.selected_row
        if not self._can_list():
            return None
        if row is None:
            self.notify("No process is listed.", timeout=3)
            return None
        if self.focused is not self.processes:
            self.notify(CHOOSE_FIRST.format(self.LIST_KEY), timeout=4)
            return None
        return row

    def action_signal(self) -> None:
        """Ask which signal to send to the process selected in the list, or to all that are marked."""
        sample = self.snapshot.sample
        row = self._find_selected()
        if sample is None or row is None:
            return
        from .dialogs import begin_signal

        table = self.processes
        rows = table.marked_rows or [row]
        begin_signal(self.app, sample, rows, self._signal_policy, then=table.clear_marks)
