"""Why nodes are lost, in whatever room there is: the most telling words stay."""

from tests.analyzers.fleet.nodes import make_node
from tests.analyzers.fleet.several import SeveralNodes, make_nodes_app, wait_for_text
from vramscope.analyzers.fleet.model import FleetNode
from vramscope.tui.fleet.screen import LostLines
from vramscope.tui.widgets.verdict_words import shorten_reason, word_lost

CLOSED = "does not answer: no agent listens at n1:5757, or the way to it is closed"
REFUSED = f"refused: this key is not allowed: run there `vramscope keys allow {'ab' * 32} --name NAME`"


def _lose(name: str, reason: str, silent_s: float | None = None) -> FleetNode:
    return FleetNode(name, "lost", reason, silent_s)


def test_a_reason_gives_up_what_to_do_then_its_details() -> None:
    assert shorten_reason(CLOSED, "n1:5757") == (
        "does not answer: no agent listens there, or the way to it is closed",
        "does not answer: no agent listens there",
        "does not answer",
    )
    assert (
        shorten_reason("n1 was reached and did not go on: it hangs", "n1")[-1]
        == "was reached and did not go on"
    )


def test_two_reasons_are_both_told_in_80_columns() -> None:
    lost = [_lose("n1:5757", CLOSED), _lose("n2:5757", REFUSED, 39.0)]
    assert word_lost(lost, 2.0, 70, 2) == [
        "n1:5757: does not answer: no agent listens there",
        "n2:5757 41s: refused: this key is not allowed",
    ]
    assert word_lost(lost, 2.0, 70, 1) == ["n1:5757: does not answer · n2:5757 41s: refused"]
    assert " ".join(word_lost(lost[1:], 2.0, 70, 4)) == f"n2:5757 41s: {REFUSED}"


def test_one_reason_of_many_nodes_is_told_once_and_they_are_counted_where_room_is_short() -> None:
    lost = [_lose(f"n{number:03d}", "the connection is cut; trying again") for number in range(100)]
    assert word_lost(lost, 0.0, 70, 1) == ["n000, n001 and 98 more: the connection is cut; trying again"]
    assert word_lost(lost, 0.0, 40, 1) == ["n000, n001 and 98 more: the connection…"]
    many = [_lose(f"node-{number}", f"fault {number}") for number in range(1024)]
    rows = word_lost(many, 0.0, 70, 2)
    assert len(rows) == 2
    assert rows[1].endswith("1,016 more")
    assert max(map(len, rows)) <= 70


async def test_what_is_told_to_lines_that_have_left_the_screen_is_left_out() -> None:
    app = make_nodes_app(SeveralNodes(make_node("n1"), make_node("n2")))
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "2 nodes")
        lines = app.screen.query_one(LostLines)
        await lines.remove()
        lines.show([FleetNode("n1", "lost", "cut", 3.0)], 0.0)
