"""The application that shows several nodes live: all of them as a fleet, and the screens of each."""

import time
from asyncio import TimerHandle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace
from textual.binding import Binding
from textual.screen import Screen

from ..analyzers.fleet.fleet import Fleet
from ..analyzers.stage_peaks import JobStages
from ..engine.history import History
from ..engine.viewer.feed import ChoosingFeed, SeveralNodesFeed
from ..engine.viewer.snapshot import Snapshot
from . import keys
from .advising_app import AdvisingApp
from .fleet.cluster_watch import ClusterWatch
from .fleet.view import FleetView

if TYPE_CHECKING:
    from .fleet.cluster_screen import ClusterScreen
    from .fleet.nodes_screen import NodesScreen
    from .fleet.screen import FleetScreen
    from .plan.planned import Planned

GATHER_S = 0.25
"""Nodes that tell something within this time are drawn together."""
MOST_SHARE = 0.25
"""Share of a core that drawing may take; where it takes more, more is gathered."""
_SEVERAL = ("step_node", "show_fleet")
"""Actions that make no sense where there is one node."""


class NodesApp(AdvisingApp, inherit_bindings=False):
    """Shows what a `SeveralNodesFeed` tells; where there is one node, it has no keys for others."""

    BINDINGS = [*keys.SHOW_FLEET, *keys.VIEW, *keys.NODES, keys.ADVISE]

    def __init__(self, feed: SeveralNodesFeed, **rest: Any) -> None:  # noqa: ANN401
        super().__init__(feed, **rest)
        self._fleet = Fleet()
        self._fleet_view = FleetView()
        self._choosing = feed if isinstance(feed, ChoosingFeed) else None
        self.cluster = ClusterWatch()
        """What is concluded across nodes."""
        self._fleet_screen: FleetScreen | None = None
        self._over_fleet: NodesScreen | ClusterScreen | None = None
        self._has_shown_fleet = False
        self._next_draw_s = 0.0
        self._waiting: TimerHandle | None = None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: one node has no next."""
        if action in _SEVERAL and not self._known.are_several:
            return False
        return super().check_action(action, parameters)

    def offers(self, binding: Binding) -> bool:
        """Return whether help and palette tell of a key."""
        is_of_several = binding.action.split("(")[0] in _SEVERAL
        return super().offers(binding) and not (is_of_several and not self._known.are_several)

    def history_of(self, node: str) -> History:
        """Return what was seen of a node."""
        return cast(SeveralNodesFeed, self._feed).history_of(node)

    def show_node(self, node: str) -> None:
        """Show another node, and ask that one from now on."""
        super().show_node(node)
        cast(SeveralNodesFeed, self._feed).look_at(self._known.shown)

    def _wake(self) -> None:
        """Draw what arrived; soon after a picture, wait for what other nodes tell."""
        wait_s = self._next_draw_s - self._event_loop.time()
        if wait_s > 0:
            if self._waiting is None:
                self._waiting = self._event_loop.call_later(
                    wait_s, self._draw_gathered, context=self._loop_context
                )
            return
        self._draw_gathered()

    def _draw_gathered(self) -> None:
        self._waiting = None
        began_s = self._event_loop.time()
        before_s = time.thread_time()
        super()._wake()
        took_s = time.thread_time() - before_s
        self._next_draw_s = began_s + max(GATHER_S, took_s / MOST_SHARE)

    def _tell_news(self, snapshot: Snapshot) -> None:
        """Take what a node tells into the fleet, and say what crossed a line."""
        self._fleet.note(snapshot, self._clock.wall_s())
        self.cluster.note(snapshot, self._clock.monotonic_s())
        super()._tell_news(snapshot)

    def observe_stages(self, snapshots: Sequence[Snapshot]) -> None:
        """Take what ranks needed; of several nodes that is known already."""
        if not self._known.are_several:
            super().observe_stages(snapshots)
        else:
            self.show_stages()

    def tell_stages(self) -> JobStages:
        """Return what the stages of the job that runs were seen to need, on all of its nodes."""
        if not self._known.are_several:
            return super().tell_stages()
        told = self.cluster.picture.measured
        if told.since_s is None:
            return told
        ago_s = self._clock.monotonic_s() - told.since_s
        return replace(told, since_s=self._clock.wall_s() - ago_s)

    def is_node_seen(self, node: str) -> bool:
        """Return whether it is clear that what is told is of this node: in the fleet it never is."""
        is_over_fleet = self._fleet_screen is not None and self._fleet_screen in self._overlays
        return super().is_node_seen(node) and not is_over_fleet

    def _draw_newest(self) -> None:
        """Draw the newest snapshots; show all nodes first, once there are several."""
        shown = self._known.shown
        super()._draw_newest()
        if self._known.shown != shown:  # the one before is gone
            cast(SeveralNodesFeed, self._feed).look_at(self._known.shown)
        if not self._has_shown_fleet and self._known.are_several:
            self._has_shown_fleet = True
            self.action_show_fleet()

    def _draw(self) -> None:
        """Draw the fleet where it is seen, else the node that is shown."""
        self._shown = self._newest
        self._fleet.nodes_left_out = 0 if self._choosing is None else self._choosing.nodes_left_out
        if self._is_fleet_seen and self._fleet_screen is not None:
            self._fleet_screen.take_news()
        elif self._over_fleet is not None and self.overlay is self._over_fleet:
            self._over_fleet.draw()
        else:
            super()._draw()

    @property
    def _is_fleet_seen(self) -> bool:
        return self._fleet_screen is not None and self.overlay is self._fleet_screen

    def show_over(self, screen: Screen[None]) -> None:
        """Show a screen in place of what lies over the node, or over the fleet, to which it leads back."""
        if self._fleet_screen not in self._overlays:
            super().show_over(screen)
            return
        while self.overlay is not self._fleet_screen:
            self.step_back()
        self.show_further(screen)

    def action_show_fleet(self) -> None:
        """Show every device of every node."""
        if self._is_fleet_seen:
            return
        from .fleet.screen import FleetScreen

        self._fleet_screen = FleetScreen(
            self._fleet, self.cluster, self._fleet_view, self.glyphs, self._clock
        )
        self._fleet_screen.tell_paused(is_paused=self._is_paused)
        self.show_over(self._fleet_screen)

    def action_leave_live(self) -> None:
        """Go back to all nodes."""
        if self._known.are_several:
            self.action_show_fleet()

    def action_step_node(self, places: int) -> None:
        """Show the next node on the same screen; in the fleet the cursor goes to the next group."""
        if self._is_fleet_seen and self._fleet_screen is not None:
            self._fleet_screen.grid.step_group(places)
        else:
            super().action_step_node(places)

    def action_show_device(self) -> None:
        """Show a device in full; in the fleet the one under the cursor."""
        if self._is_fleet_seen and self._fleet_screen is not None and self._fleet_screen.current is not None:
            self._go_to(self._fleet_screen.current.key)
        super().action_show_device()

    def action_export(self) -> None:
        """Write the picture and its figures into files; in the fleet those of all nodes."""
        if self._fleet_screen is None or self._fleet_screen not in self._overlays:
            super().action_export()
            return
        from ..exporters.json_lines import encode_line
        from ..exporters.status.fleet_export import write_fleet_table
        from .frame.export import export_and_tell

        fleet = self._fleet_screen.describe()
        picture = self.export_screenshot().encode()
        table = write_fleet_table(fleet.devices)
        contents = {".svg": picture, ".csv": table, ".json": encode_line(fleet)}
        export_and_tell(self, contents, self._export_folder, self._clock.wall_s())

    def on_fleet_screen_node_asked(self, message: "FleetScreen.NodeAsked") -> None:
        """Show the node of a device, with the device selected."""
        self._go_to(message.device.key)

    def note_plan(self, planned: "Planned") -> None:
        """Hold what stages need over all nodes against the plan that is recommended."""
        best = planned.recommended
        peaks = [] if best is None else [stage.peak_bytes for stage in best.stages]
        known = [peak for peak in peaks if peak is not None]
        self.cluster.hold_against(known if len(known) == len(peaks) else ())

    def on_fleet_screen_nodes_asked(self) -> None:
        """List the nodes, over the fleet."""
        from .fleet.nodes_screen import NodesScreen

        self._over_fleet = NodesScreen(self._fleet, self.glyphs, self._clock)
        self.show_further(self._over_fleet)

    def on_fleet_screen_cluster_asked(self) -> None:
        """Show what is known across nodes, over the fleet."""
        from .fleet.cluster_screen import ClusterScreen

        self._over_fleet = ClusterScreen(self._fleet, self.cluster, self.glyphs)
        self.show_further(self._over_fleet)

    def on_nodes_screen_node_chosen(self, message: "NodesScreen.NodeChosen") -> None:
        """Show a node."""
        self.action_show_live()
        self.show_node(message.name)

    def action_show_breakdown(self) -> None:
        """Follow the modules of a process; in the fleet of one on the device under the cursor."""
        if self._is_fleet_seen and self._fleet_screen is not None and self._fleet_screen.current is not None:
            self._select(self._fleet_screen.current.key)
        super().action_show_breakdown()

    def _go_to(self, key: tuple[str, str]) -> None:
        self.action_show_live()
        self._select(key)

    def _select(self, key: tuple[str, str]) -> None:
        node, uuid = key
        self.show_node(node)
        self.live.devices.selected = uuid

    def action_pause(self) -> None:
        """Freeze the figures, or draw the newest ones again."""
        super().action_pause()
        if self._fleet_screen is not None and self._is_fleet_seen:
            self._fleet_screen.tell_paused(is_paused=self._is_paused)
