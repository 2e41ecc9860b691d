"""The key that opens memory by module, of training processes or of files."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..controls.tools import PromptTool

if TYPE_CHECKING:
    from textual.screen import Screen

    from ...engine.model import RankSample
    from ...engine.viewer.snapshot import Snapshot
    from ..app import VramscopeApp
    from .live_screen import LiveBreakdownScreen
    from .profiled import Profiled


class BreakdownTool(PromptTool["Sequence[Profiled]"]):
    """Memory by module: of training processes, or of files."""

    QUESTION = "Memory by module"
    EXAMPLE = "e.g. memory_trace  or  run7/rank0_dp0_tp0/memory.log"
    HINT = "profile files, or folders with one per rank; several are compared"

    def __init__(self, app: "VramscopeApp") -> None:
        super().__init__(app)
        self._screen: Screen[None] | None = None
        self._followed: LiveBreakdownScreen | None = None

    @property
    def takes_steps(self) -> bool:
        """Whether profiles lie over the screens of the application: `[` and `]` then move in them."""
        return self._screen is not None and self._app.overlay is self._screen

    def show(self) -> None:
        """Follow the modules of the current process; where none trains, ask for files.

        In the fleet it is a process on the device under the cursor.
        """
        fleet = self._app.fleet
        if fleet is not None and fleet.chosen is not None:
            fleet.select(fleet.chosen)
        ranks = () if self.takes_steps else self._list_running()
        if not ranks:
            self.ask()
            return
        from .live_screen import LiveBreakdownScreen, LiveProfiles

        app = self._app
        live = LiveProfiles(app.feed, app.clock, ranks)
        self._screen = self._followed = LiveBreakdownScreen(live, leave=app.step_back)
        app.show_over(self._screen)

    def open(self, found: "Sequence[Profiled]") -> None:
        from .screen import BreakdownScreen

        screen = self._screen = BreakdownScreen(leave=self._app.step_back)
        screen.show(found)
        self._app.show_over(screen)

    def observe(self, snapshots: "Sequence[Snapshot]") -> None:
        """Show the data of the shown node about the followed processes."""
        if self._followed is None or self._app.overlay is not self._followed:
            return
        for snapshot in snapshots:
            if snapshot.node in ("", self._app.known.shown):
                self._followed.follow(snapshot)

    def _list_running(self) -> "Sequence[RankSample]":
        """Return the processes that can be asked for their modules, the current one first."""
        from ..widgets.device_view import order_of

        app = self._app
        sample = app.shown.sample
        uuid, pid = app.looked_at
        if sample is None or app.signal_policy.is_replay:
            return ()
        running = [rank for rank in sample.ranks if rank.state == "ok"]
        return sorted(running, key=lambda it: (it.pid != pid, it.device_uuid != uuid, order_of(it)))


TOOL = BreakdownTool
