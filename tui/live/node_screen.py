"""What the screens of one node have in common: title, verdict, and a list of processes with its keys."""

from collections.abc import Callable, Iterator
from functools import partial

from textual import on
from textual.widget import Widget
from textual.widgets import Input

from ...engine.clock import Clock
from ...engine.history import History
from ..draw.glyphs import Glyphs
from ..screens.snapshot_screen import SnapshotScreen
from ..widgets.filter_bar import FilterBar
from .process_rows import SORTABLE, SortOrder
from .process_signals import SignalPolicy
from .process_table import ProcessTable

TOO_LOW = "No room for the process list here: make the window taller."
CHOOSE_FIRST = "Choose the process first: {} goes to the list, K signals the one marked there."
NO_LIST_RECORDED = "No process list: a recording does not tell which processes held memory."
NO_LIST_WITHOUT_GPU = "No process list: without a GPU no process holds device memory."
PROCESS_ACTIONS = ("choose_sort", "shift_sort", "invert_sort", "filter", "signal", "switch_part")
"""Actions that are for the process table."""


class NodeScreen(SnapshotScreen):
    """A screen of devices and their processes."""

    LIST_KEY = "Tab"
    """Key that leads to the list of processes."""

    def __init__(self, glyphs: Glyphs, history: History, clock: Clock, signal_policy: SignalPolicy) -> None:
        super().__init__(glyphs, history, clock)
        self._signal_policy = signal_policy
        self._has_list = True
        self.processes = ProcessTable(id="processes", is_ascii=glyphs.name == "ascii")
        self._filter = FilterBar(id="filter")

    def _rearrange(self) -> None:
        """Choose anew which parts fit."""
        raise NotImplementedError

    def _show_head(self) -> None:
        """Show the title and the verdict, and whether there is a list of processes."""
        super()._show_head()
        sample = self.snapshot.sample
        self._has_list = sample is None or (bool(sample.devices) and sample.clock == "wall")
        self._keys.hide(self._list_useless())

    def _list_useless(self) -> tuple[str, ...]:
        """Return the actions that have nothing to act on; the key of one may lead to another node."""
        useless = () if self._has_list else PROCESS_ACTIONS
        is_recorded = self.snapshot.replay is not None
        kept = () if self.place is None and not is_recorded else ("switch_part",)
        return (*(it for it in useless if it not in kept), *(("signal",) if is_recorded else ()))

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

    def _focus_next_part(self, main: Widget) -> None:
        """Give the keys to the next part: the main one, the processes, the time bar of a replay."""
        has_bar = self._time_bar.display
        has_list = (self._has_list and self.processes.display) if has_bar else self._can_list()
        parts = [main, *([self.processes] if has_list else []), *([self._time_bar] if has_bar else [])]
        at = parts.index(self.focused) if self.focused in parts else -1
        parts[(at + 1) % len(parts)].focus()

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

    def list_sorts(self) -> Iterator[tuple[str, str, Callable[[], None]]]:
        """Yield every order of the processes, for the palette."""
        for column in SORTABLE:
            yield column, f"Sort processes by {column}.", partial(self.sort_processes, SortOrder(column))

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

    def action_signal(self) -> None:
        """Ask which signal to send to the process marked in the list, which must be seen to be marked."""
        sample = self.snapshot.sample
        row = self.processes.selected_row
        if not self._can_list():
            return
        if sample is None or row is None:
            self.notify("There is no process to signal.", timeout=3)
            return
        if self.focused is not self.processes:
            self.notify(CHOOSE_FIRST.format(self.LIST_KEY), timeout=4)
            return
        from .process_signalling import begin_signal

        begin_signal(self.app, sample, row, self._signal_policy)
