"""What is known across nodes, on the screen of the fleet and on a page of its own."""

from collections.abc import Callable
from unittest.mock import patch

import pytest
from textual.geometry import Region

from tests.analyzers.cluster_state.clusters import Word, make_node
from vramscope.analyzers.cluster_state import ClusterPicture, ClusterState
from vramscope.engine.model import Finding
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.app import VramscopeApp
from vramscope.tui.fleet.cluster import ClusterScreen, ClusterWatch
from vramscope.tui.terminal.abilities import TerminalAbilities

from ...analyzers.fleet.several import SeveralNodes, make_nodes_app, wait_for_text
from ...waiting import wait_until

HEAVY = Word(floor_gib=60, peak_gib=70, reserved_gib=75)
GRAVE = HEAVY._replace(level="high", left_s=300.0)


def _tell(at_s: float) -> list[Snapshot]:
    return [make_node(number, at_s, {0: HEAVY, 1: GRAVE}, stages=2) for number in range(2)]


def _make_app(size: TerminalAbilities) -> VramscopeApp:
    """Return an application that has watched two nodes for half a minute, and goes on from there."""
    cluster = ClusterState(planned=(64 * 1024**3, 40 * 1024**3))
    for second in range(30):
        for snapshot in _tell(float(second)):
            cluster.observe(snapshot, float(second))
    app = make_nodes_app(SeveralNodes(*_tell(30.0)), size)
    assert app.fleet is not None
    app.fleet.cluster = ClusterWatch(cluster)
    return app


def test_conclusions_are_shown_while_nodes_go_on_telling() -> None:
    shown: list[float] = []

    class Told(ClusterState):
        def observe(self, snapshot: Snapshot, received_s: float) -> list[Finding]:
            shown.append(watch.picture.time_s)
            return super().observe(snapshot, received_s)

    watch = ClusterWatch(Told())
    watch._pending.extend((_tell(float(second))[0], float(second)) for second in range(10))
    watch._conclude()
    assert shown[-1] == 8.0


def test_conclusions_are_drawn_beside_the_screens() -> None:
    watch = ClusterWatch()
    for second in range(30):
        for snapshot in _tell(float(second)):
            watch.note(snapshot, float(second))

    def has_found() -> bool:
        watch.note(_tell(99.0)[0], 99.0)  # what was told before is concluded from by now, or soon
        return bool(watch.findings)

    wait_until(has_found, what="a finding across nodes")
    assert watch.picture.total == 2


async def test_a_finding_across_nodes_is_on_the_fleet_and_in_full_behind_a_key() -> None:
    app = _make_app(TerminalAbilities())
    async with app.run_test(size=(120, 30)) as pilot:
        await wait_for_text(pilot, "Job run-0 (4 ranks on 2 nodes) out of memory in", "2 more across nodes")
        await pilot.press("c")
        await wait_for_text(pilot, "One rank's error ends the whole job", "stage skew 1.27 (planned 1.23)")
        await wait_for_text(pilot, "0 2 70.0 GiB 64.0 GiB +6.0 GiB", "1 2 40.0 GiB 40.0 GiB +0 B")
        assert isinstance(app.screen, ClusterScreen)
        await pilot.press("pagedown", "escape")
        await wait_for_text(pilot, "by node sort risk")


@pytest.mark.parametrize("size", [(80, 24), (2, 3)], ids=["80x24", "2x3"])
def test_pictures(size: tuple[int, int], snap_compare: Callable[..., bool]) -> None:
    app = _make_app(TerminalAbilities(color_depth="none"))
    assert snap_compare(app, terminal_size=size, press=["c"])


async def test_a_line_of_another_number_is_painted_anew_from_its_first_cell() -> None:
    app = make_nodes_app(SeveralNodes(*_tell(30.0)))
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "2 nodes", "by node")
        await pilot.press("c")
        await wait_for_text(pilot, "0 nodes")
        assert isinstance(app.screen, ClusterScreen)
        page, painted = app.screen.page, list[Region]()
        with patch.object(page, "repaint", lambda *regions: painted.extend(regions)):
            page.show(ClusterPicture(live=2, total=2, balance=0.9), ())
        first = min(painted, key=lambda region: region.y).translate(page.content_offset)
        assert (first.x, first.y) == page.content_region.offset - page.region.offset
