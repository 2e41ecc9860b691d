"""All nodes of a feed as a fleet, over the screens of each; with a single node it has no keys."""

import time
from asyncio import TimerHandle
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.screen import Screen

from ...analyzers.fleet.fleet import Fleet
from ...engine.viewer.feed import ChoosingFeed, SeveralNodesFeed
from ...engine.viewer.snapshot import Snapshot
from ..fleet.cluster import ClusterWatch
from ..fleet.grid import FleetView

if TYPE_CHECKING:
    from ..app import VramscopeApp
    from ..fleet.cluster import ClusterScreen
    from ..fleet.nodes_screen import NodesScreen
    from ..fleet.screen import FleetScreen

# Snapshots of nodes that arrive within this time are drawn together.
GATHER_S = 0.25
# Share of a core for drawing; where it would take more, snapshots are gathered for longer.
MOST_SHARE = 0.25


class FleetControl:
    """Gathers snapshots of nodes, and shows all nodes."""

    def __init__(self, app: "VramscopeApp", feed: SeveralNodesFeed) -> None:
        self._app = app
        self._fleet = Fleet()
        self._view = FleetView()
        self._choosing = feed if isinstance(feed, ChoosingFeed) else None
        # Conclusions across nodes.
        self.cluster = ClusterWatch()
        self.screen: FleetScreen | None = None
        self._over: NodesScreen | ClusterScreen | None = None
        self._has_been_shown = False
        self._next_draw_s = 0.0
        self._waiting: TimerHandle | None = None

    @property
    def is_seen(self) -> bool:
        """Whether the fleet is the foremost screen, dialogs aside."""
        return self.screen is not None and self._app.overlay is self.screen

    @property
    def is_open(self) -> bool:
        """Whether the fleet is open over the node, even below another screen."""
        return self.screen is not None and self._app.is_open_over(self.screen)

    @property
    def chosen(self) -> tuple[str, str] | None:
        """Node and device under the cursor; None where the fleet is not in front."""
        if self.screen is None or not self.is_seen or self.screen.current is None:
            return None
        return self.screen.current.key

    def gather(self, draw: Callable[[], None]) -> None:
        """Draw what arrived; soon after the last drawing, wait for snapshots of other nodes."""
        loop = self._app.event_loop
        wait_s = self._next_draw_s - loop.time()
        if wait_s <= 0:
            self._draw_gathered(draw)
        elif self._waiting is None:
            self._waiting = loop.call_later(wait_s, self._draw_gathered, draw, context=self._app.loop_context)

    def _draw_gathered(self, draw: Callable[[], None]) -> None:
        self._waiting = None
        began_s = self._app.event_loop.time()
        before_s = time.thread_time()
        draw()
        took_s = time.thread_time() - before_s
        self._next_draw_s = began_s + max(GATHER_S, took_s / MOST_SHARE)

    def note(self, snapshot: Snapshot) -> None:
        self._fleet.note(snapshot, self._app.clock.wall_s())
        self.cluster.note(snapshot, self._app.clock.monotonic_s())

    def show_once(self) -> None:
        """Show all nodes first, once there are several."""
        if not self._has_been_shown and self._app.known.are_several:
            self._has_been_shown = True
            self.show()

    def draw(self) -> bool:
        """Draw the fleet, or the screen over it; return whether either is in front."""
        self._fleet.nodes_left_out = 0 if self._choosing is None else self._choosing.nodes_left_out
        if self.screen is not None and self.is_seen:
            self.screen.show_news()
        elif self._over is not None and self._app.overlay is self._over:
            self._over.draw()
        else:
            return False
        return True

    def show(self) -> None:
        if self.is_seen:
            return
        from ..fleet.screen import FleetScreen

        app = self._app
        self.screen = FleetScreen(self._fleet, self.cluster, self._view, app.clock, app.attachment.remedy)
        self.screen.show_paused(is_paused=app.is_paused)
        app.show_over(self.screen)

    def show_nodes(self) -> None:
        from ..fleet.nodes_screen import NodesScreen

        self._show_over_fleet(NodesScreen(self._fleet, self._app.clock, self._app.attachment.remedy))

    def show_cluster(self) -> None:
        from ..fleet.cluster import ClusterScreen

        self._show_over_fleet(ClusterScreen(self._fleet, self.cluster, self._app.attachment.remedy))

    def _show_over_fleet(self, screen: "NodesScreen | ClusterScreen") -> None:
        self._over = screen
        self._app.show_further(screen)

    def show_in_front(self, screen: Screen[None]) -> None:
        """Show a screen over the fleet; leaving it returns there."""
        while not self.is_seen:
            self._app.step_back()
        self._app.show_further(screen)

    def go_to(self, key: tuple[str, str]) -> None:
        """Show the node of a device, with the device selected."""
        self._app.action_show_live()
        self.select(key)

    def select(self, key: tuple[str, str]) -> None:
        """Have the screens below show the node of a device, with the device selected."""
        node, uuid = key
        self._app.show_node(node)
        self._app.live.devices.selected = uuid

    def export(self) -> dict[str, bytes] | None:
        """Return the data of all nodes, by suffixes of files; None where the fleet is not open."""
        if self.screen is None or not self.is_open:
            return None
        from ...exporters.json_lines import encode_line
        from ...exporters.status.document import write_fleet_table

        fleet = self.screen.describe()
        return {".csv": write_fleet_table(fleet.devices), ".json": encode_line(fleet)}
