"""The view of nodes: its screens, where messages go, and what is drawn of a feed."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
from textual import on
from textual.actions import parse as parse_action
from textual.binding import Binding
from textual.screen import Screen

from ..analyzers.growth_renewal import renew_findings
from ..engine.clock import Clock
from ..engine.errors import VramscopeError
from ..engine.history import History
from ..engine.model import Sample
from ..engine.settings import Settings
from ..engine.soundness import make_msgpack_decoder
from ..engine.viewer.feed import Feed, SeveralNodesFeed
from ..engine.viewer.snapshot import Snapshot
from .controls.advice import AdviceControl
from .controls.alert_notices import AlertNotices
from .controls.attach import AttachControl
from .controls.tools import make_tools
from .frame import keys
from .frame.known_nodes import KnownNodes
from .live.arrangement import ALERTS_FROM_ROWS
from .live.device_graphs import CHART_NAMES
from .live.node_screen import NodeScreen, RecentSteps
from .live.process_rows import SortOrder
from .live.process_signals import SignalPolicy
from .live.screen import GO_ON, LiveScreen, describe_examples, find_fullest
from .process.history import ProcessHistories
from .screens.snapshot_screen import SnapshotScreen
from .screens.terminal_app import TerminalApp
from .terminal.abilities import TerminalAbilities
from .terminal.driver import TerminalDriver
from .widgets.time_bar import SpanLine

if TYPE_CHECKING:
    from textual.driver import Driver

    from ..engine.jobs.background import ViewerRecording
    from ..engine.replay.feed import ReplayFeed
    from .alerts.screen import AlertsScreen
    from .controls.fleet import FleetControl
    from .controls.recording import RecordingControl
    from .controls.replay import ReplayControl
    from .device.screen import DeviceScreen
    from .fleet.nodes_screen import NodesScreen
    from .fleet.screen import FleetScreen
    from .frame.launch import Example, Examples
    from .process.screen import ProcessScreen
    from .terminal.opening import Opening


# Writes settings by their names and returns the file.
SaveSettings = Callable[[Mapping[str, object]], Path]


class VramscopeApp(TerminalApp, inherit_bindings=False):
    """Shows the snapshots of a feed; stores only the newest ones.

    The feed's abilities decide on the keys: a replay is moved in time, several nodes are shown as a fleet,
    and
    processes are advised where the feed can send advice.

    Args:
        feed: Source of snapshots; a `ReplayFeed` where the policy says that it is a replay.
        signal_policy: Whether processes may be signalled.
        save_settings: None where settings cannot be saved.
        export_folder: None for the current folder.
        recording: Begins and ends recordings; None where none can be made.
        on_exit_asked: Called when the application begins to end.
        driver_class: Driver of the terminal; None for Textual's own.
        opening: Where a first frame is drawn already; None for nothing.
    """

    def __init__(
        self,
        feed: Feed,
        *,
        settings: Settings,
        abilities: TerminalAbilities,
        clock: Clock,
        signal_policy: SignalPolicy,
        save_settings: SaveSettings | None = None,
        export_folder: Path | None = None,
        recording: "ViewerRecording | None" = None,
        on_exit_asked: Callable[[], object] = lambda: None,
        driver_class: "type[Driver] | None" = TerminalDriver,
        opening: "Opening | None" = None,
    ) -> None:
        self.opening = opening
        self.feed = feed
        self.signal_policy = signal_policy
        self.advice = AdviceControl(self)
        self.attachment = AttachControl(self, settings.attach)
        self.fleet: FleetControl | None = None
        self.recording: RecordingControl | None = None
        self.replay: ReplayControl | None = None
        super().__init__(
            abilities,
            own_keys=self._choose_controls(recording),
            theme=settings.theme,
            clock=clock,
            export_folder=export_folder,
            on_exit_asked=on_exit_asked,
            driver_class=driver_class,
        )
        # By the room of each.
        self.tools = make_tools(self)
        self._settings = settings
        self._save_settings = save_settings
        self._mailbox = SnapshotMailbox()
        # Newest snapshot of the shown node.
        self.newest = Snapshot()
        # What is drawn; older than `newest` while the view is frozen.
        self.shown = self.newest
        self._received: dict[str, Snapshot] = {}
        self._shows_first_frame = False
        self.known = KnownNodes()
        self._steps = RecentSteps()
        self._processes = ProcessHistories()
        self._process: ProcessScreen | None = None
        self.device_screen: DeviceScreen | None = None
        # What is offered where this node has no GPU; None elsewhere.
        self.examples: Examples | None = None
        self._alerts: AlertsScreen | None = None
        self._notices: dict[str, AlertNotices] = {}
        self._refused_number = 0
        self._skipped_at_start = 0
        self.is_paused = False

    def _choose_controls(self, recording: "ViewerRecording | None") -> Sequence[Binding]:
        """Make the controls for this feed, and return the keys.

        Only a replay loads the modules that read recordings.
        """
        if self.signal_policy.is_replay:
            from .controls.replay import ReplayControl

            self.replay = ReplayControl(self, cast("ReplayFeed", self.feed))
            return self.replay.keys
        if recording is not None:
            from .controls.recording import RecordingControl

            self.recording = RecordingControl(self, recording)
            return [*keys.VIEW, *keys.EXAMPLES, keys.RECORD, keys.ADVISE]
        if isinstance(self.feed, SeveralNodesFeed):
            from .controls.fleet import FleetControl

            self.fleet = FleetControl(self, self.feed)
            return [*keys.SHOW_FLEET, *keys.VIEW, *keys.NODES, keys.ADVISE]
        return [*keys.VIEW, *keys.EXAMPLES, keys.ADVISE]

    def get_default_screen(self) -> Screen[None]:
        go_on = GO_ON if self.examples is None else describe_examples(self.examples.demo_refusal)
        self.live = LiveScreen(self.feed.history, self.clock, self.signal_policy, go_on=go_on)
        return self.live

    def on_mount(self) -> None:
        table = self.live.processes
        table.order = SortOrder(self._settings.sort, self._settings.sort_reversed)
        table.chosen_columns = self._settings.columns
        table.is_tree = self._settings.tree
        self.live.devices.history_window_s = self._settings.history_window_s
        self.loop_context = copy_context()
        self.event_loop = asyncio.get_running_loop()
        self._begin_with_first_frame()
        self.feed.start(self._receive)

    def _begin_with_first_frame(self) -> None:
        """Show the sample of the first frame until the feed knows more."""
        data = None if self.opening is None else self.opening.sample
        if data is not None:
            self._shows_first_frame = True
            self.live.hold()
            self.newest = Snapshot(sample=make_msgpack_decoder(Sample).decode(data))
            self._draw()

    def on_unmount(self) -> None:
        """Stop the feed; it ends within half a second even if something hangs."""
        self.feed.stop()

    def _is_possible(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Return whether an action ever does something in this view, as far as known."""
        if action == "open_tool":
            return self.tools[str(parameters[0])].is_offered
        possible = {
            "advise": self.advice.is_offered,
            "attach": self.attachment.is_offered,
            "step_node": self.known.are_several,
            "show_fleet": self.known.are_several,
            "replay": self.replay is not None,
            "go_to": self.replay is not None,
            "zoom_bar": self.replay is not None,
            "pan_bar": self.replay is not None,
            "open_example": self.offered_examples is not None,
        }
        return possible.get(action, True)

    @property
    def offered_examples(self) -> "Examples | None":
        """The examples while the node has no GPU, else None."""
        sample = self.newest.sample
        return None if sample is None or sample.devices or sample.ranks else self.examples

    def action_open_example(self, name: "Example") -> None:
        """End the view; who opened it opens the example."""
        if self.examples is None:
            return
        if name == "demo" and self.examples.demo_refusal is not None:
            self.notify(f"{self.examples.demo_refusal}; press r to replay a recording of it")
            return
        self.examples.choose(name)
        self.exit()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now.

        While profiles are shown, the keys for nodes go from profile to profile.
        """
        if not self._is_possible(action, parameters) or (action == "step_node" and self.steps_in_tool):
            return False
        if self.replay is not None and not self.replay.allows(action, parameters):
            return False
        return super().check_action(action, parameters)

    def offers(self, binding: Binding) -> bool:
        """Return whether help and palette list a key: in a replay nothing is signalled."""
        if not super().offers(binding):
            return False
        _, action, parameters = parse_action(binding.action)
        if self.replay is not None and (action == "signal" or self.replay.is_for_lists(binding.action)):
            return False
        return self._is_possible(action, parameters)

    @property
    def steps_in_tool(self) -> bool:
        """Whether the keys that step through nodes or a playlist move in the screen of a tool now."""
        return any(tool.takes_steps for tool in self.tools.values())

    def _receive(self, snapshot: Snapshot) -> None:
        """Take a snapshot on the feed's own thread, with its findings as of its sample."""
        if self._shows_first_frame:
            if snapshot.sample is None and snapshot.connection == "connecting":
                return
            self._shows_first_frame = False
        if snapshot.sample is not None:
            renewed = renew_findings(snapshot.findings, snapshot.assessments, snapshot.sample.time_s)
            if renewed is not snapshot.findings:
                snapshot = msgspec.structs.replace(snapshot, findings=tuple(renewed))
        before = self._received.get(snapshot.node, Snapshot())
        if snapshot.is_gone:
            self._received.pop(snapshot.node, None)
        else:
            self._received[snapshot.node] = snapshot
        if is_same_picture(before, snapshot):
            self._mailbox.amend(snapshot)
        elif self._mailbox.put(snapshot):
            # A message would pass through the queues of every widget that it makes repaint.
            with suppress(RuntimeError):  # the loop has ended
                self.event_loop.call_soon_threadsafe(self._wake, context=self.loop_context)

    def _wake(self) -> None:
        if self.fleet is None:
            self._draw_arrived()
        else:
            self.fleet.gather(self._draw_arrived)

    def _draw_arrived(self) -> None:
        """Draw what arrived; an error ends the application as one in a message's handler does."""
        if self._exit or self._closing:
            return
        try:
            self._draw_newest()
        except Exception as error:  # noqa: BLE001  # whatever it is, a person must see it
            self._handle_exception(error)

    def _draw_newest(self) -> None:
        """Draw the newest snapshots, unless the view is frozen or the terminal does not read."""
        if isinstance(self._driver, TerminalDriver) and self._driver.is_blocked:
            return
        snapshots = self._mailbox.take()
        if not snapshots:
            return
        if self.known.newest.sample is None:
            # Snapshots replaced before the first drawing do not count as late.
            self._skipped_at_start = self._mailbox.replaced
        shown = self.known.shown
        for snapshot in snapshots:
            self.known.note(snapshot)
            self._notify_news(snapshot)
        for tool in self.tools.values():
            tool.observe(snapshots)
        self.newest = self.known.newest
        if shown and self.known.shown != shown:
            self._follow_shown()
        if self.newest.sample is not None:
            self._steps.add(self.newest.sample)
            self._processes.add(self.newest.sample)
        if not self.is_paused:
            self._draw()
        if self.fleet is not None:
            if self.known.shown != shown:  # the one before is gone
                self._look_at_shown()
            self.fleet.show_once()
        if self.replay is not None:
            self.replay.explain_nodes()

    def _notify_news(self, snapshot: Snapshot) -> None:
        """Notify the news of a snapshot; also while the view is frozen."""
        if self.fleet is not None:
            self.fleet.note(snapshot)
        if self.replay is not None:
            self.replay.notify(snapshot)
            if snapshot.replay is not None and snapshot.replay.is_catching_up:
                return
        self._notify_crossings(snapshot)
        self.advice.notify_outcomes(snapshot)
        self.attachment.notify_outcomes(snapshot)
        self.attachment.offer(snapshot)
        if self.recording is not None:
            self.recording.look()

    def _notify_crossings(self, snapshot: Snapshot) -> None:
        """Notify, and ring the bell for, findings that opened or got worse."""
        if snapshot.node not in self._notices:
            self._notices[snapshot.node] = AlertNotices(self._settings.alerts, self.glyphs)
        # With the fleet open it is never clear which node is meant.
        is_clear = snapshot.node == self.known.shown and not (self.fleet and self.fleet.is_open)
        is_listed = is_clear and self.screen is self.live and self.size.height >= ALERTS_FROM_ROWS
        news = self._notices[snapshot.node].take(snapshot, self.size, is_listed=is_listed)
        whose = f"{snapshot.node}: " if snapshot.node and not is_clear else ""
        for notice in news.notices:
            self.notices.add(notice._replace(text=f"{whose}{notice.text}"))
        if news.rings_bell:
            self.bell()
        refused = snapshot.decision_refused
        if refused is not None and refused.number != self._refused_number:
            self._refused_number = refused.number
            self.notify(f"Not done: {refused.reason}.", severity="warning")
        if snapshot.is_gone:
            self._notices.pop(snapshot.node, None)

    def forget_news(self) -> None:
        """Forget the news, because another run is shown."""
        self._notices.clear()
        for tool in self.tools.values():
            tool.forget()
        self.clear_notifications()

    def on_terminal_drained(self) -> None:
        """Draw everything again after output was lost."""
        self._draw_newest()
        self.screen.refresh(layout=True)

    def _draw(self) -> None:
        """Draw the newest snapshot on the current screen, even below a dialog."""
        self.shown = self.newest if self.replay is None else self.replay.frame(self.newest)
        if self.fleet is None or not self.fleet.draw():
            self._draw_on(self.shown_screen)

    def _draw_on(self, screen: SnapshotScreen) -> None:
        with screen.drawn_at_once():
            screen.frames_skipped = self._mailbox.replaced - self._skipped_at_start
            screen.place = self.known.place
            screen.remedy = self.attachment.remedy
            screen.snapshot = self.shown

    def history_of(self, node: str) -> History:
        """Return the history of a node; a feed with one node has one history."""
        if self.fleet is None and self.replay is None:
            return self.feed.history
        return cast(SeveralNodesFeed, self.feed).history_of(node)

    def action_step_node(self, places: int) -> None:
        """Show the node that many places further, on the same screen; in the fleet go to the next group."""
        if self.fleet is not None and self.fleet.screen is not None and self.fleet.is_seen:
            self.fleet.screen.grid.step_group(places)
        else:
            self.show_node(self.known.after(places))

    def show_node(self, node: str) -> None:
        """Show another node on the same screen, and have the feed switch to it."""
        self.switch_node(node)
        self._look_at_shown()

    def _look_at_shown(self) -> None:
        if self.fleet is not None or self.replay is not None:
            cast(SeveralNodesFeed, self.feed).look_at(self.known.shown)

    def switch_node(self, node: str) -> None:
        if node == self.known.shown or node not in self.known.names:
            return
        self.known.shown = node
        self.newest = self.known.newest
        self._follow_shown()
        devices = self.newest.sample.devices if self.newest.sample else ()
        screen = self.device_screen
        if screen is not None and devices and screen.uuid not in {it.uuid for it in devices}:
            screen.uuid = find_fullest(devices).uuid
        self._draw()

    def _follow_shown(self) -> None:
        for screen in self.snapshot_screens:
            screen.follow(self.history_of(self.known.shown))

    @property
    def snapshot_screens(self) -> set[SnapshotScreen]:
        return {self.live, self.node_screen, self.shown_screen}

    @property
    def shown_screen(self) -> SnapshotScreen:
        """The current screen of snapshots, even below a dialog."""
        return self._alerts or self.process_screen or self.node_screen

    @property
    def process_screen(self) -> "ProcessScreen | None":
        """The screen of a process, if one is open."""
        return self._process if self._process in self.screen_stack else None

    @property
    def node_screen(self) -> NodeScreen:
        """The current screen of devices, also while it lies below the alerts."""
        return self.live if self.device_screen is None else self.device_screen

    @property
    def looked_at(self) -> tuple[str | None, int | None]:
        """The current device, and the process on it."""
        if self.device_screen is None:
            return self.live.devices.selected, None
        return self.device_screen.uuid, self.device_screen.shown_pid

    def action_show_live(self) -> None:
        self.leave_overlay()
        while self.screen is not self.live:
            self.pop_screen()
        self._alerts = None
        left = self.device_screen
        self.device_screen = None
        if left is not None:
            self.live.devices.selected = left.uuid
            self.live.processes.look_like(left.processes)
        self._draw_on(self.live)

    def action_leave_live(self) -> None:
        """Go back from the live screen to all nodes, where there are several."""
        if self.known.are_several:
            self.action_show_fleet()

    def action_show_device(self) -> None:
        """Show the selected device in full, or else the fullest; for an alert, its device."""
        if self.fleet is not None and self.fleet.chosen is not None:
            self.fleet.go_to(self.fleet.chosen)
        self.leave_overlay()
        if self._alerts is not None:
            uuid = self._alerts.selected_device
            self.action_leave_alerts()
            if uuid is not None:
                self.open_device(uuid)
                return
        devices = self.shown.sample.devices if self.shown.sample else ()
        if self.device_screen is not None:
            while self.screen is not self.device_screen:
                self.pop_screen()
        elif not devices:
            self.notify("No device to show.", timeout=3)
        else:
            selected = self.live.devices.selected
            uuids = [device.uuid for device in devices]
            self.open_device(selected if selected in uuids else find_fullest(devices).uuid)

    def action_show_alerts(self) -> None:
        self.leave_overlay()
        if self._alerts is None:
            from .alerts.screen import AlertsScreen

            while self.screen is not self.node_screen:
                self.pop_screen()
            self._alerts = AlertsScreen(self.feed, self.clock, self.signal_policy)
            self._alerts.paused_since_s = self.live.paused_since_s
            self._alerts.remedy = self.attachment.remedy
            self._alerts.snapshot = self.shown
            self.push_screen(self._alerts)
        while self.screen is not self._alerts:
            self.pop_screen()

    def action_leave_alerts(self) -> None:
        if self._alerts is None:
            return
        while self.screen is not self.node_screen:
            self.pop_screen()
        self._alerts = None
        self._draw_on(self.node_screen)

    @on(LiveScreen.DeviceAsked)
    def open_asked_device(self, message: LiveScreen.DeviceAsked) -> None:
        self.open_device(message.uuid)

    def open_device(self, uuid: str) -> None:
        self.action_leave_process()
        if self.device_screen is not None:
            self.device_screen.show_device(uuid)
            return
        from .device.screen import DeviceScreen

        self.device_screen = DeviceScreen(
            uuid,
            self.feed,
            self.clock,
            self.signal_policy,
            self._steps,
            history_window_s=self.live.devices.history_window_s,
            charts=self.live.devices.choice,
        )
        self.device_screen.processes.look_like(self.live.processes)
        self.device_screen.paused_since_s = self.live.paused_since_s
        self.device_screen.remedy = self.attachment.remedy
        self.device_screen.snapshot = self.shown
        self.push_screen(self.device_screen)

    @on(NodeScreen.ProcessAsked)
    def open_process(self, message: NodeScreen.ProcessAsked) -> None:
        """Show the history of a process over the list it was chosen from."""
        from .process.screen import ProcessScreen

        below = self.node_screen
        self._process = ProcessScreen(
            message.row,
            self._processes,
            below.processes.order,
            self.history_of(self.known.shown),
            self.clock,
            self.signal_policy,
        )
        self._process.paused_since_s = below.paused_since_s
        self._process.remedy = self.attachment.remedy
        self._process.place = self.known.place
        self._process.snapshot = self.shown
        self.push_screen(self._process)

    def action_leave_process(self) -> None:
        if self.process_screen is not None:
            while self.screen is not self.node_screen:
                self.pop_screen()
            self._draw_on(self.node_screen)

    def show_over(self, screen: Screen[None]) -> None:
        """Show a screen instead of those over the node; over an open fleet, leaving it returns there."""
        if self.fleet is not None and self.fleet.is_open:
            self.fleet.show_in_front(screen)
        else:
            super().show_over(screen)

    def action_show_fleet(self) -> None:
        if self.fleet is not None:
            self.fleet.show()

    def on_fleet_screen_node_asked(self, message: "FleetScreen.NodeAsked") -> None:
        """Show the node of a device, with the device selected."""
        if self.fleet is not None:
            self.fleet.go_to(message.device.key)

    def on_fleet_screen_nodes_asked(self) -> None:
        if self.fleet is not None:
            self.fleet.show_nodes()

    def on_fleet_screen_cluster_asked(self) -> None:
        if self.fleet is not None:
            self.fleet.show_cluster()

    def on_nodes_screen_node_chosen(self, message: "NodesScreen.NodeChosen") -> None:
        self.action_show_live()
        self.show_node(message.name)

    def action_open_tool(self, room: str) -> None:
        self.tools[room].show()

    def action_advise(self) -> None:
        self.advice.ask()

    def action_attach(self) -> None:
        self.attachment.ask()

    def action_record(self) -> None:
        if self.recording is not None:
            self.recording.switch()

    def action_replay(self, verb: str, count: float = 0, text: str = "") -> None:
        if self.replay is not None:
            self.replay.command(verb, count, text)

    def action_go_to(self) -> None:
        if self.replay is not None:
            self.replay.go_to()

    def action_zoom_bar(self, factor: float) -> None:
        if self.replay is not None:
            self.replay.zoom(factor)
            self._draw()

    def action_pan_bar(self, share: float) -> None:
        if self.replay is not None:
            self.replay.pan(share)
            self._draw()

    @on(SpanLine.MomentAsked)
    def go_to_moment(self, message: SpanLine.MomentAsked) -> None:
        self.action_replay("seek", message.time_s)

    def action_pause(self) -> None:
        """Freeze the view, or draw the newest data again; stop a replay, or let it play on."""
        if self.replay is not None:
            self.replay.command("pause")
            return
        sample = self.newest.sample
        if sample is not None:
            self.is_paused = not self.is_paused
            for screen in self.snapshot_screens:
                screen.paused_since_s = sample.time_s if self.is_paused else None
            if not self.is_paused:
                self._draw()
        if self.fleet is not None and self.fleet.screen is not None and self.fleet.is_seen:
            self.fleet.screen.show_paused(is_paused=self.is_paused)

    def action_switch_chart(self) -> None:
        """Show the next chart of the devices: memory, utilisation, both where there is room."""
        devices = self.newest.sample.devices if self.newest.sample else ()
        if all(device.utilization_percent is None for device in devices):
            self.notify("No device reports its utilisation.", title="charts", timeout=3)
            return
        choices = list(CHART_NAMES)[: 3 if self.node_screen.has_room_for_both_charts else 2]
        chosen = self.live.devices.choice
        chosen = choices[(choices.index(chosen) + 1) % len(choices)] if chosen in choices else choices[0]
        self.live.devices.choice = chosen
        if self.device_screen is not None:
            self.device_screen.show_charts(chosen)
        self.notify(f"Charts: {CHART_NAMES[chosen]}", title="charts", timeout=2)

    def action_export(self) -> None:
        """Write the picture and its data into files; in the fleet those of all nodes."""
        from .frame.export import export_and_notify, list_view

        picture = self.export_screenshot()
        of_fleet = self.fleet.export() if self.fleet is not None else None
        contents = (
            list_view(picture, self.shown) if of_fleet is None else {".svg": picture.encode(), **of_fleet}
        )
        export_and_notify(self, contents, self.export_folder, self.clock.wall_s())

    def action_save_settings(self) -> None:
        if self._save_settings is None:
            self.notify("Settings cannot be saved here.", severity="warning")
            return
        table = self.node_screen.processes
        order = table.order
        values = {
            "theme": self.theme_choice,
            "sort": order.column,
            "sort_reversed": order.is_inverted,
            "columns": list(table.chosen_columns) or None,
            "tree": table.is_tree,
        }
        try:
            path = self._save_settings(values)
        except (OSError, VramscopeError) as error:
            self.notify(f"Settings not saved: {error}", severity="error")
            return
        self.notify(f"Settings saved to {path}")


class SnapshotMailbox:
    """Holds the newest snapshot of each node until the app takes them; bounded even for a slow screen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, Snapshot] = {}
        self._replaced = 0

    @property
    def replaced(self) -> int:
        """Snapshots that a newer one replaced before they were taken."""
        with self._lock:
            return self._replaced

    def amend(self, snapshot: Snapshot) -> None:
        """Replace a waiting snapshot with one that differs only in status; it is not counted."""
        with self._lock:
            if snapshot.node in self._newest:
                self._newest[snapshot.node] = snapshot

    def put(self, snapshot: Snapshot) -> bool:
        """Put a snapshot; return whether the box was empty, so that its owner must be woken."""
        with self._lock:
            was_empty = not self._newest
            self._replaced += snapshot.node in self._newest
            self._newest[snapshot.node] = snapshot
            return was_empty

    def take(self) -> tuple[Snapshot, ...]:
        """Return the newest snapshot of each node that has one, and empty the box."""
        with self._lock:
            newest = self._newest
            self._newest = {}
            return tuple(newest.values())


def is_same_picture(before: Snapshot, after: Snapshot) -> bool:
    """Return whether nothing changed but the hub's own status, which can wait for the next sample."""
    if before.sample is None or before.hub is None or after.hub is None:
        return False
    if before.hub.workers != after.hub.workers:
        return False
    return msgspec.structs.replace(before, hub=after.hub) == after
