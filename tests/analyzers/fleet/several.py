"""A feed of several nodes, and the application that shows them."""

from pathlib import Path

from textual.pilot import Pilot

from tests.tui.canned import NODE, UNICODE_COLOR, FakeFeed, StillClock
from tests.tui.looks import shown_text
from vramscope.engine.history import History
from vramscope.engine.settings import Settings
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.app import VramscopeApp
from vramscope.tui.live.process_signals import SignalPolicy
from vramscope.tui.terminal.abilities import TerminalAbilities


class SeveralNodes(FakeFeed):
    """Hands over what a test gives it of any node."""

    def __init__(self, *snapshots: Snapshot) -> None:
        super().__init__(*snapshots)
        self.histories = {snapshot.node: History() for snapshot in snapshots}
        self.looked_at = ""

    def hand_over(self, snapshot: Snapshot) -> None:
        if snapshot.sample is not None:
            self.histories[snapshot.node].add(snapshot.sample)
        assert self._on_snapshot is not None
        self._on_snapshot(snapshot)

    def history_of(self, node: str) -> History:
        return self.histories[node]

    def look_at(self, node: str) -> None:
        self.looked_at = node


def make_nodes_app(
    feed: SeveralNodes, abilities: TerminalAbilities = UNICODE_COLOR, export_folder: Path | None = None
) -> VramscopeApp:
    """Return the application, without a terminal."""
    return VramscopeApp(
        feed,
        settings=Settings(),
        abilities=abilities,
        clock=StillClock(),
        signal_policy=SignalPolicy(local_node=NODE),
        export_folder=export_folder,
        driver_class=None,
    )


async def wait_for_text(pilot: Pilot[None], *texts: str) -> None:
    """Return once all of these texts are on the screen."""
    for _ in range(600):
        if all(text in shown_text(pilot.app) for text in texts):  # type: ignore[arg-type]  # ours
            return
        await pilot.pause(0.01)
    raise AssertionError(f"{texts} in {shown_text(pilot.app)}")  # type: ignore[arg-type]
