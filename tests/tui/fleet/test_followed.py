"""Some nodes and devices are followed and others are not: whoever looks is told, and never of a loss."""

import msgspec

from tests.tui.looks import shown_text
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.engine.wire.selection import DeviceSelection, trim_sample

from ...analyzers.fleet.nodes import make_node
from ...analyzers.fleet.several import SeveralNodes, make_nodes_app, wait_for_text


class _Choosing(SeveralNodes):
    """Knows nodes that it does not follow."""

    def __init__(self, *snapshots: Snapshot, nodes_left_out: int) -> None:
        super().__init__(*snapshots)
        self.nodes_left_out = nodes_left_out


def _follow(name: str, *words: str) -> Snapshot:
    """Return a node of eight devices of which some are followed."""
    snapshot = make_node(name)
    assert snapshot.sample is not None
    return msgspec.structs.replace(snapshot, sample=trim_sample(snapshot.sample, DeviceSelection(words)))


async def test_the_fleet_and_the_node_say_how_much_of_them_is_followed() -> None:
    feed = _Choosing(_follow("n1", "0-2"), _follow("n2", "0-2"), nodes_left_out=126)
    app = make_nodes_app(feed)
    async with app.run_test(size=(120, 20)) as pilot:
        await wait_for_text(pilot, "2 of 128 nodes followed", "devices 6, 10 not followed")
        await wait_for_text(pilot, "6 of 16 devices followed · 2 of 128 nodes followed")
        assert "lost" not in shown_text(app)
        await pilot.press("enter")
        await wait_for_text(pilot, "3 of 8 devices followed")
        await pilot.resize_terminal(60, 14)
        await wait_for_text(pilot, "3/8 followed")


async def test_where_nothing_matches_the_view_says_what_there_is() -> None:
    app = make_nodes_app(_Choosing(_follow("n1", "9"), nodes_left_out=0))
    async with app.run_test(size=(100, 20)) as pilot:
        await wait_for_text(
            pilot, "0 of 8 devices followed", "No device of n1 matches --devices 9: it has 0-7"
        )
    app = make_nodes_app(_Choosing(_follow("n1", "9"), _follow("n2", "9"), nodes_left_out=0))
    async with app.run_test(size=(100, 20)) as pilot:
        await wait_for_text(pilot, "No device matches --devices", "no match")
