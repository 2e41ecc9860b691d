"""The screen of a fleet: shown first, filtered, grouped, left for a node and come back to."""

from collections.abc import Callable

import msgspec
import pytest

from tests.analyzers.fleet.nodes import make_node
from tests.analyzers.fleet.several import SeveralNodes, make_nodes_app, wait_for_text
from tests.tui.looks import notices, shown_text
from vramscope.engine.history import History
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.fleet.nodes_screen import NodesScreen
from vramscope.tui.fleet.screen import FleetScreen
from vramscope.tui.frame.keys import collect_keys
from vramscope.tui.live.screen import LiveScreen
from vramscope.tui.modules.live_screen import LiveBreakdownScreen
from vramscope.tui.terminal.abilities import TerminalAbilities


def _make_feed() -> SeveralNodes:
    """Return thirty nodes of eight devices: one near an error, one lost, one not heard of yet."""
    nodes = [make_node(f"n{number:03d}", level="low") for number in range(2, 29)]
    lost = msgspec.structs.replace(
        make_node("n029"), connection="lost", silent_s=41.0, reason="the connection is cut"
    )
    return SeveralNodes(make_node("n001", level="low", oom=5), *nodes, lost, Snapshot(node="n030"))


async def test_the_fleet_is_first_and_enter_shows_a_node_and_back() -> None:
    feed = _make_feed()
    app = make_nodes_app(feed)
    async with app.run_test(size=(100, 24)) as pilot:
        await wait_for_text(
            pilot, "GPU 5 of n001: out of memory in 1 m 16 s", "28 of 30 nodes", "lost 41s", "n030 connecting"
        )
        assert "fleet" in collect_keys(app.screen)
        assert isinstance(app.screen, FleetScreen)
        assert app.screen.current is not None
        assert app.screen.current.key == ("n001", "GPU-0005")
        await pilot.press("enter")
        await wait_for_text(pilot, "n001 1/30")
        assert isinstance(app.screen, LiveScreen)
        assert (app.live.devices.selected, feed.looked_at) == ("GPU-0005", "n001")
        await pilot.press("escape")
        await wait_for_text(pilot, "by node sort risk")
        await pilot.press("tab", "right", "2")
        await wait_for_text(pilot, "vramscope n002", "rank 1 tp1")
        await pilot.press("backspace")
        await wait_for_text(pilot, "n002 GPU 1")


async def test_why_a_node_was_never_reached_is_said_in_full_in_its_place() -> None:
    what_to_do = f"run there `vramscope keys allow {'ab' * 32} --name NAME`"
    refused = Snapshot(node="n2", connection="lost", reason=f"refused: this key is not allowed: {what_to_do}")
    app = make_nodes_app(SeveralNodes(refused))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("1")
        await wait_for_text(pilot, what_to_do)


async def test_a_relay_makes_way_for_the_nodes_behind_it() -> None:
    feed = SeveralNodes(Snapshot(node="relay"))
    app = make_nodes_app(feed)
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.pause()
        for snapshot in (Snapshot(node="relay", is_gone=True), make_node("n1"), make_node("n2")):
            feed.histories[snapshot.node] = History()
            feed.hand_over(snapshot)
        await wait_for_text(pilot, "2 nodes", "by node")
        assert "relay" not in shown_text(app)
        assert feed.looked_at == "n1"


async def test_filter_group_and_sort_choose_what_is_seen() -> None:
    app = make_nodes_app(_make_feed())
    async with app.run_test(size=(100, 24)) as pilot:
        await wait_for_text(pilot, "by node")
        await pilot.press("slash", *"node:n00* tp:5", "enter")
        await wait_for_text(pilot, "devices 9 of 232", "filter node:n00* tp:5")
        await pilot.press("slash", *" usd>9", "enter")
        await pilot.pause()
        assert any("filter usd>9: did you mean used?" in text for text in notices(app))
        await wait_for_text(pilot, "devices 9 of 232", "filter node:n00* tp:5")
        await pilot.press("escape", "g", "down", "down", "enter")
        await wait_for_text(pilot, "by tp", "tp 5", "devices 232")
        await pilot.press("end")
        assert isinstance(app.screen, FleetScreen)
        assert app.screen.current is not None
        assert (app.screen.current.tp, app.screen.current.node) == (7, "n029")
        await wait_for_text(pilot, "node lost 41 s, data is old")


async def test_nodes_are_listed_with_their_age_clock_and_agent() -> None:
    feed = _make_feed()
    app = make_nodes_app(feed)
    app.tools["modules"].read = lambda _: []
    async with app.run_test(size=(130, 24)) as pilot:
        await wait_for_text(pilot, "28 of 30 nodes")
        await pilot.press("n")
        await wait_for_text(pilot, "n029 lost 41s", "the connection is cut", "n030 connecting", "in step")
        assert isinstance(app.screen, NodesScreen)
        first = [app.screen.nodes.current]
        await pilot.press("down", "down")
        assert [it and it.node.name for it in (*first, app.screen.nodes.current)] == ["n029", "n001"]
        late = make_node("n005", level="low", seq=2)
        assert late.sample is not None
        sample = msgspec.structs.replace(late.sample, time_s=late.sample.time_s + 3600.0)
        feed.hand_over(msgspec.structs.replace(late, sample=sample))
        await wait_for_text(pilot, "+1h")
        chosen = make_node("n001", level="low", oom=5)
        assert chosen.sample is not None
        named = msgspec.structs.replace(chosen.sample, node="gpu-host-1")
        feed.hand_over(msgspec.structs.replace(chosen, sample=named))
        await wait_for_text(pilot, "its agent calls it gpu-host-1")
        await pilot.press("enter")
        await wait_for_text(pilot, "gpu-host-1 1/30 · n001")
        await pilot.press("0", "n", "escape")
        await wait_for_text(pilot, "by node sort risk")
        await pilot.press("7")
        await pilot.pause()
        assert isinstance(app.screen, LiveBreakdownScreen)
        await pilot.press("escape")
        await wait_for_text(pilot, "by node sort risk")


async def test_one_bad_node_changes_its_own_cells_and_frozen_figures_stay() -> None:
    feed = _make_feed()
    app = make_nodes_app(feed)
    async with app.run_test(size=(100, 24)) as pilot:
        await wait_for_text(pilot, "28 of 30")
        feed.hand_over(make_node("n030", 8))
        await wait_for_text(pilot, "29 of 30 nodes")
        await pilot.press("space")
        feed.hand_over(make_node("n029", 8))
        await wait_for_text(pilot, "paused", "29 of 30")
        await pilot.press("space")
        await wait_for_text(pilot, "30 nodes")


@pytest.mark.parametrize("size", [(40, 10), (2, 3), (17, 4)])
async def test_small_panes_are_drawn(size: tuple[int, int]) -> None:
    app = make_nodes_app(_make_feed())
    async with app.run_test(size=size) as pilot:
        await pilot.press("down", "right", "end", "tab", "pagedown")
        strips = app.screen._compositor.render_strips()
        assert [strip.cell_length for strip in strips] == [size[0]] * size[1]


@pytest.mark.parametrize(
    ("size", "abilities"),
    [
        ((40, 10), TerminalAbilities(is_ascii=True, color_depth="none")),
        ((80, 24), TerminalAbilities(color_depth="none")),
        ((200, 50), TerminalAbilities()),
    ],
    ids=["40x10-ascii", "80x24-mono", "200x50"],
)
def test_pictures(
    size: tuple[int, int], abilities: TerminalAbilities, snap_compare: Callable[..., bool]
) -> None:
    app = make_nodes_app(_make_feed(), abilities)
    assert snap_compare(app, terminal_size=size, press=["tab"])


def test_picture_of_the_nodes(snap_compare: Callable[..., bool]) -> None:
    app = make_nodes_app(_make_feed(), TerminalAbilities(color_depth="none"))
    assert snap_compare(app, terminal_size=(80, 24), press=["n", "down"])
