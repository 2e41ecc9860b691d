"""Which nodes there are, in which order, and which of them has a more severe finding than the shown one."""

import msgspec
import pytest

from tests.tui.canned import UNICODE_COLOR, FakeFeed, StillClock, make_finding, make_snapshot
from vramscope.engine.settings import Settings
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.app import VramscopeApp
from vramscope.tui.frame.known_nodes import KnownNodes, NodePlace
from vramscope.tui.live.process_signals import SignalPolicy


def _tell(node: str, severity: str | None = None) -> Snapshot:
    found = () if severity is None else (msgspec.structs.replace(make_finding(0), severity=severity),)
    snapshot = make_snapshot(2, findings=found)
    assert snapshot.sample is not None
    return msgspec.structs.replace(
        snapshot, node=node, sample=msgspec.structs.replace(snapshot.sample, node=node)
    )


def test_nodes_stand_in_the_order_in_which_people_count() -> None:
    nodes = KnownNodes()
    for name in ("node2", "node10", "node1"):
        nodes.note(_tell(name))
    assert (nodes.names, nodes.shown) == (["node1", "node2", "node10"], "node2")
    assert (nodes.after(1), nodes.after(2), nodes.after(-1)) == ("node10", "node1", "node1")
    assert nodes.place == NodePlace(2, 3)


@pytest.mark.parametrize(
    ("shown", "other", "named"),
    [(None, "low", None), (None, "medium", "b"), ("high", "medium", None), ("high", "critical", "b")],
)
def test_a_node_with_a_more_severe_finding_is_named(shown: str | None, other: str, named: str | None) -> None:
    nodes = KnownNodes()
    for name, severity in (("a", shown), ("b", other), ("c", None)):
        nodes.note(_tell(name, severity))
    assert nodes.place is not None
    assert nodes.place.more_severe == named


async def test_nodes_without_live_figures_are_counted_and_the_title_says_how_many_are_there() -> None:
    lost = Snapshot("lost", reason="does not answer", node="c")
    feed = FakeFeed(_tell("a"), _tell("b"), lost)
    app = VramscopeApp(
        feed,
        settings=Settings(),
        abilities=UNICODE_COLOR,
        clock=StillClock(),
        signal_policy=SignalPolicy(local_node=""),
        driver_class=None,
    )
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.pause()
        assert app.live._title.text.startswith("vramscope  a 1/3 · ▲ 2 of 3 nodes · ")
        app.action_step_node(-1)
        await pilot.pause()
        assert app.live._title.text.startswith("vramscope  c 3/3 · ▲ 2 of 3 nodes · not connected")
        assert app.live._verdict.text.startswith("not connected: does not answer")


async def test_any_feed_may_tell_of_several_nodes_and_the_title_says_which_is_worse() -> None:
    feed = FakeFeed(_tell("a", "medium"), _tell("b", "critical"))
    app = VramscopeApp(
        feed,
        settings=Settings(),
        abilities=UNICODE_COLOR,
        clock=StillClock(),
        signal_policy=SignalPolicy(),
        driver_class=None,
    )
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.pause()
        assert app.live._title.text.startswith("vramscope  a 1/2 · ✖ b · ")
        app.action_step_node(1)
        await pilot.pause()
        assert app.live._title.text.startswith("vramscope  b 2/2 · ")
        assert "✖" not in app.live._title.text
