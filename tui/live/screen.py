"""The live screen: the verdict, every device, their processes, alerts and the host."""

from textual import events, on
from textual.app import ComposeResult
from textual.message import Message

from ...engine.clock import Clock
from ...engine.history import History
from ..draw.glyphs import Glyphs
from ..frame import keys
from ..widgets.alert_line import AlertLine
from ..widgets.note_line import NoteLine
from .arrangement import Arrangement, Needs, arrange
from .device_layout import arrange as arrange_devices
from .device_panels import DevicePanels
from .host_line import HostLine
from .host_panel import HostPanel
from .node_screen import NodeScreen
from .process_signals import SignalPolicy
from .process_table import ProcessTable


class LiveScreen(NodeScreen):
    """One node, live. Small panes keep the verdict and one line a device."""

    BINDINGS = [*keys.LIVE]

    class DeviceAsked(Message):
        """A device is to be shown in full."""

        def __init__(self, uuid: str) -> None:
            super().__init__()
            self.uuid = uuid

    def __init__(self, glyphs: Glyphs, history: History, clock: Clock, signal_policy: SignalPolicy) -> None:
        super().__init__(glyphs, history, clock, signal_policy)
        self._arranged_for: tuple[object, ...] = ()
        self._host_panel = HostPanel(glyphs, id="host-panel")
        self._host = HostLine(id="host")
        self._alerts = AlertLine(glyphs, id="alerts")
        self._notes = NoteLine(id="notes")
        self.devices = DevicePanels(glyphs, id="devices")

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
        yield self._overview
        yield self._time_bar
        yield self._keys

    def on_mount(self) -> None:
        """Give the devices the keys and draw what has arrived meanwhile."""
        self.devices.focus()
        self._show()

    @on(events.Resize)
    def fit(self, event: events.Resize) -> None:
        """Choose anew which parts fit."""
        self._fit_time_bar()
        self._arrange(event.size.width, event.size.height)

    def _show(self) -> None:
        """Push the snapshot down to every part."""
        sample = self.snapshot.sample
        devices = sample.devices if sample else ()
        why_unknown = self.snapshot.reason if sample is None and self.snapshot.connection == "lost" else None
        has_devices = bool(devices) or (sample is None and why_unknown is None)
        self._show_head()
        self._keys.rename({} if self.place is None else {"switch_part": "next node"})
        self.set_class(not has_devices, "-no-devices")
        if has_devices:
            self.devices.show(self.snapshot, self._history)
            self.processes.show(devices, sample.ranks if sample else ())
        elif sample is not None:
            self._host_panel.show(sample, self._history, is_replayed=self.snapshot.replay is not None)
        else:
            self._host_panel.explain(why_unknown or "")
        self._notes.show(sample.notes if sample else ())
        self._host.show(
            sample.host if sample else None, is_recorded=not self._has_host(), has_memory=has_devices
        )
        self._arrange(self.size.width, self.size.height)
        self._show_alerts()

    def _show_alerts(self) -> None:
        """Show the alerts, and beside them the notes where they have no line of their own."""
        sample = self.snapshot.sample
        notes = sample.notes if sample and sample.devices and not self._notes.display else ()
        clock = sample.clock if sample else "wall"
        self._alerts.show(self.snapshot.findings, clock, notes, self.snapshot.alerts)

    def _arrange(self, width: int, height: int) -> None:
        """Show the parts that fit; nothing is touched when they are those shown."""
        sample = self.snapshot.sample
        devices = sample.devices if sample else ()
        needs = (self.processes.process_count, self._is_list_used(), self._is_filter_open)
        situation = (width, height, self._rows, len(devices), *needs, self._has_host(), self._has_notes())
        if situation == self._arranged_for:
            return
        self._arranged_for = situation
        # The filter is a row that is there on demand: it is taken off before the others share.
        room = self._rows - self._is_filter_open
        self._apply(arrange(room, self._needs(width)))

    def _apply(self, chosen: Arrangement) -> None:
        with self.app.batch_update():
            self._title.display = chosen.has_title
            self._host.display = chosen.has_host
            self._keys.display = chosen.has_keys
            self._alerts.display = chosen.has_alerts
            self._notes.display = chosen.has_notes
            self._verdict.set_class(chosen.has_gap, "-roomy")
            self.processes.display = chosen.process_rows > 0
            self.processes.styles.height = max(1, chosen.process_rows)
        if not chosen.process_rows and self.focused is self.processes:
            self.devices.focus()
        self._show_alerts()

    def _needs(self, width: int) -> Needs:
        """Return what devices and processes ask for."""
        sample = self.snapshot.sample
        devices = sample.devices if sample else ()
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
    def open_device(self, message: DevicePanels.DeviceOpened) -> None:
        """Ask for the screen of one device."""
        message.stop()
        self.post_message(self.DeviceAsked(message.uuid))

    @on(ProcessTable.DeviceAsked)
    def open_device_of_process(self, message: ProcessTable.DeviceAsked) -> None:
        """Ask for the screen of the device of a process."""
        message.stop()
        self.devices.selected = message.uuid
        self.post_message(self.DeviceAsked(message.uuid))

    async def action_leave(self) -> None:
        """Go out: of the filter, of the processes, or, where there are several, of the node."""
        if self.processes.filter_text:
            self._filter.action_clear()
        elif self.focused is not self.devices:
            self.devices.focus()
        else:
            await self.run_action("app.leave_live")

    def action_switch_part(self) -> None:
        """Move the keys between devices, processes and the time bar of a replay."""
        self._focus_next_part(self.devices)
        self.call_after_refresh(self._rearrange)
