"""The live screen: the verdict, every device, their processes, alerts and the host."""

from textual import events, on
from textual.app import ComposeResult
from textual.reactive import reactive
from textual.timer import Timer
from textual.widgets import Input

from ...analyzers.verdict import summarize
from ...engine.bus.snapshot import Snapshot
from ...engine.clock import Clock
from ...engine.history import History
from ..arrangement import Arrangement, Needs, arrange
from ..bindings import LIVE_BINDINGS
from ..compositor import ThriftyScreen
from ..drawing.glyphs import Glyphs
from ..process_rows import SortOrder
from ..process_signals import SignalPolicy
from ..recent_count import RecentCount
from ..widgets.alert_line import AlertLine
from ..widgets.device_layout import arrange as arrange_devices
from ..widgets.device_panels import DevicePanels
from ..widgets.filter_bar import FilterBar
from ..widgets.host_line import HostLine
from ..widgets.host_panel import HostPanel
from ..widgets.key_line import KeyLine
from ..widgets.note_line import NoteLine
from ..widgets.process_table import ProcessTable
from ..widgets.title_line import TitleLine
from ..widgets.verdict_line import VerdictLine, describe_trouble

AGE_TICK_S = 1.0
TOO_LOW = "No room for the process list here: make the window taller."
CHOOSE_FIRST = "Choose the process first: Tab goes to the list, K signals the one marked there."
NO_LIST_RECORDED = "No process list: a recording does not tell which processes held memory."
NO_LIST_WITHOUT_GPU = "No process list: without a GPU no process holds device memory."
PROCESS_ACTIONS = ("choose_sort", "shift_sort", "invert_sort", "filter", "signal", "switch_part")
"""Actions that are for the process table."""


class LiveScreen(ThriftyScreen[None]):
    """One node, live. Small panes keep the verdict and one line a device."""

    BINDINGS = [*LIVE_BINDINGS]

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
        self._arranged_for: tuple[object, ...] = ()
        self._has_list = True
        self._title, self._verdict = TitleLine(id="title"), VerdictLine(glyphs, id="verdict")
        self._host_panel, self._host = HostPanel(glyphs, id="host-panel"), HostLine(id="host")
        self._alerts, self._keys = AlertLine(glyphs, id="alerts"), KeyLine(id="keys")
        self.devices = DevicePanels(glyphs, id="devices")
        self.processes = ProcessTable(id="processes")
        self._filter, self._notes = FilterBar(id="filter"), NoteLine(id="notes")

    def compose(self) -> ComposeResult:
        """Yield the parts, top to bottom."""
        yield self._title
        yield self._verdict
        yield self.devices
        yield self._host_panel
        yield self._filter
        yield self.processes
        yield self._alerts
        yield self._notes
        yield self._host
        yield self._keys

    def on_mount(self) -> None:
        """Give the devices the keys and draw what has arrived meanwhile."""
        self.devices.focus()
        self._show()

    def watch_snapshot(self) -> None:
        """Draw a new snapshot."""
        self._arrived_s = self._clock.monotonic_s()
        if self.is_mounted:
            self._show()

    def watch_paused_since_s(self) -> None:
        """Say in the title whether figures are frozen."""
        if self.is_mounted:
            self._show_title()

    @on(events.Resize)
    def fit(self, event: events.Resize) -> None:
        """Choose anew which parts fit."""
        self._arrange(event.size.width, event.size.height)

    def _show(self) -> None:
        """Push the snapshot down to every part."""
        sample = self.snapshot.sample
        self._show_title()
        self._show_verdict()
        devices = sample.devices if sample else ()
        has_devices = bool(devices) or sample is None
        self.set_class(not has_devices, "-no-devices")
        has_list = sample is None or (bool(devices) and sample.clock == "wall")
        self._has_list = has_list
        self._keys.hide(() if has_list else PROCESS_ACTIONS)
        if has_devices:
            self.devices.show(self.snapshot, self._history)
            zoomed = self.devices.zoomed
            shown = [device for device in devices if zoomed in {None, device.uuid}]
            self.processes.show(shown, sample.ranks if sample else ())
        elif sample is not None:
            self._host_panel.show(sample, self._history)
        self._notes.show(sample.notes if sample else ())
        self._host.show(
            sample.host if sample else None, is_recorded=not self._has_host(), has_memory=has_devices
        )
        self._arrange(self.size.width, self.size.height)
        self._show_alerts()
        self._keep_age(is_needed=self.snapshot.connection == "lost")

    def _show_alerts(self) -> None:
        """Show the alerts, and beside them the notes where they have no line of their own."""
        sample = self.snapshot.sample
        notes = sample.notes if sample and sample.devices and not self._notes.display else ()
        self._alerts.show(self.snapshot.findings, sample.clock if sample else "wall", notes)

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
        self._verdict.show(summarize(snapshot.sample, snapshot.findings, self._history.peak), trouble)

    def _keep_age(self, *, is_needed: bool) -> None:
        """Count the age up while nothing arrives; no timer runs otherwise."""
        if is_needed and self._age_timer is None:
            self._age_timer = self.set_interval(AGE_TICK_S, self._show_verdict, name="age of the figures")
        elif not is_needed and self._age_timer is not None:
            self._age_timer.stop()
            self._age_timer = None

    def _arrange(self, width: int, height: int) -> None:
        """Show the parts that fit; nothing is touched when they are those shown."""
        sample = self.snapshot.sample
        devices = sample.devices if sample else ()
        needs = (self.processes.process_count, self._is_list_used(), self._is_filter_open)
        situation = (width, height, len(devices), *needs, self._has_host(), self._has_notes())
        if (situation, self.devices.zoomed) == self._arranged_for:
            return
        self._arranged_for = (situation, self.devices.zoomed)
        # The filter is a row that is there on demand: it is taken off before the others share.
        self._apply(arrange(height - self._is_filter_open, self._needs(width)))

    def _apply(self, chosen: Arrangement) -> None:
        with self.app.batch_update():
            self._title.display = chosen.has_title
            self._host.display = chosen.has_host
            self._keys.display = chosen.has_keys
            self._alerts.display = chosen.has_alerts
            self._notes.display = chosen.has_notes
            self.set_class(chosen.has_gap, "-roomy")
            self.processes.display = chosen.process_rows > 0
            self.processes.styles.height = max(1, chosen.process_rows)
        if not chosen.process_rows and self.focused is self.processes:
            self.devices.focus()
        self._show_alerts()

    def _needs(self, width: int) -> Needs:
        """Return what devices and processes ask for."""
        sample = self.snapshot.sample
        devices = sample.devices if sample else ()
        if self.devices.zoomed is not None:
            devices = devices[:1]
        count = len(devices)
        return Needs(
            device_count=count,
            devices_least=DevicePanels.minimum_height(count, width) if count else 3,
            devices_height=lambda rows: arrange_devices(devices, width, rows).height if count else rows,
            processes=self.processes.process_count if self._has_list and count else None,
            has_host=self._has_host(),
            has_notes=self._has_notes(),
            is_table_focused=self._is_list_used(),
        )

    @property
    def _is_filter_open(self) -> bool:
        return self._filter.display

    def _is_list_used(self) -> bool:
        """Return whether the process list, or its filter, has the keys."""
        return self.focused is self.processes or self._is_filter_open

    def _has_notes(self) -> bool:
        """Return whether there are notes; without a device the host's panel tells them."""
        sample = self.snapshot.sample
        return sample is not None and bool(sample.devices and sample.notes)

    def _has_host(self) -> bool:
        """Return whether there is, or will be, a host to tell of."""
        sample = self.snapshot.sample
        return sample is None or sample.host is not None or sample.clock == "wall"

    def _rearrange(self) -> None:
        self._arrange(self.size.width, self.size.height)

    @on(DevicePanels.DeviceOpened)
    def zoom_in(self, message: DevicePanels.DeviceOpened) -> None:
        """Show one device alone; a second time, all of them."""
        message.stop()
        self._zoom(None if self.devices.zoomed == message.uuid else message.uuid)

    @on(ProcessTable.DeviceAsked)
    def zoom_to_process(self, message: ProcessTable.DeviceAsked) -> None:
        """Show the device of a process alone."""
        message.stop()
        self._zoom(message.uuid)

    def _zoom(self, uuid: str | None) -> None:
        if uuid is not None:
            self.devices.selected = uuid
        self.devices.zoomed = uuid
        self._show()

    def action_leave(self) -> None:
        """Go out: of the filter, of the device, of the processes."""
        if self.processes.filter_text:
            self._filter.action_clear()
        elif self.devices.zoomed is not None:
            self._zoom(None)
        else:
            self.devices.focus()

    def action_switch_part(self) -> None:
        """Move the keys between devices and processes."""
        if self.focused is not self.processes and self._can_list():
            self.processes.focus()
        else:
            self.devices.focus()
        self.call_after_refresh(self._rearrange)

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

    def action_notes(self) -> None:
        """Show the notes in full."""
        from .notes import NotesScreen

        self.app.push_screen(NotesScreen(self.snapshot.sample.notes if self.snapshot.sample else ()))

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

    def action_signal(self) -> None:
        """Ask which signal to send to the process marked in the list, which must be seen to be marked."""
        sample, row = self.snapshot.sample, self.processes.selected_row
        if not self._can_list():
            return
        if sample is None or row is None:
            self.notify("There is no process to signal.", timeout=3)
            return
        if self.focused is not self.processes:
            self.notify(CHOOSE_FIRST, timeout=4)
            return
        from ..process_signalling import begin_signal

        begin_signal(self.app, sample, row, self._signal_policy)
