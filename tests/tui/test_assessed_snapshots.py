"""Pictures of what is foreseen, on both screens; look at them when they change."""

from collections.abc import Callable

import pytest

from tests.tui.assessed_cases import CASES
from tests.tui.canned import FakeFeed, make_app
from tests.tui.canned_ranks import history_of
from tests.tui.test_ranks_snapshots import pressing
from vramscope.tui.app import VramscopeApp

SnapCompare = Callable[..., bool]
CompareScreen = Callable[..., None]

DEVICE = {"leaking": ["home", *5 * ["down"], "enter"], "calm": ["2"], "doubtful": ["2"]}
"""Situations, and the keys that lead to the screen of one device."""


def _app_for(case: str) -> VramscopeApp:
    snapshot, abilities = CASES[case]
    feed = FakeFeed(snapshot(), history=history_of(snapshot()))
    return make_app(feed, abilities=abilities)


@pytest.mark.parametrize("case", CASES)
def test_live(case: str, compare_screen: CompareScreen) -> None:
    compare_screen(_app_for(case))


@pytest.mark.parametrize("case", DEVICE)
def test_device(case: str, compare_screen: CompareScreen) -> None:
    compare_screen(_app_for(case), pressing(*DEVICE[case]))


@pytest.mark.parametrize("size", [(40, 10), (20, 5)], ids=["40x10", "20x5"])
def test_a_sliver(size: tuple[int, int], snap_compare: SnapCompare) -> None:
    assert snap_compare(_app_for("leaking"), terminal_size=size)
