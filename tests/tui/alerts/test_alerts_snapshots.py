"""Pictures of the alerts screen, and its text at other sizes; look at them when they change."""

from collections.abc import Callable

import pytest

from tests.tui.canned import FakeFeed, make_app, make_hub, make_snapshot
from tests.tui.canned_alerts import make_alerts
from tests.tui.test_ranks_snapshots import pressing
from vramscope.engine.settings import Settings, ThemeName
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.terminal.abilities import TerminalAbilities

SnapCompare = Callable[..., bool]
CompareScreen = Callable[..., None]

CASES: dict[str, tuple[Callable[[], Snapshot], TerminalAbilities]] = {
    "color": (make_alerts, TerminalAbilities()),
    "mono": (make_alerts, TerminalAbilities(color_depth="none")),
    "ascii": (make_alerts, TerminalAbilities(is_ascii=True, color_depth="16")),
    "none": (lambda: make_snapshot(8), TerminalAbilities()),
    "lost": (
        lambda: make_alerts(connection="lost", silent_s=7.0, reason="the agent ended", hub=make_hub()),
        TerminalAbilities(),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_alerts(case: str, compare_screen: CompareScreen) -> None:
    snapshot, abilities = CASES[case]
    app = make_app(FakeFeed(snapshot()), abilities=abilities)
    compare_screen(app, pressing("3", "down", "down"))


@pytest.mark.parametrize("theme", ["light", "high-contrast"])
def test_other_themes(theme: ThemeName, snap_compare: SnapCompare) -> None:
    app = make_app(FakeFeed(make_alerts()), settings=Settings(theme=theme))
    assert snap_compare(app, terminal_size=(120, 32), press=["3", "down", "down"])


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("whole", ["down", "down", "enter"]),
        ("mute", ["home", "m"]),
        ("sort", ["s"]),
        ("filter", ["slash", *"leak"]),
    ],
)
def test_over_the_alerts_screen(name: str, keys: list[str], snap_compare: SnapCompare) -> None:
    app = make_app(FakeFeed(make_alerts()))
    assert snap_compare(app, terminal_size=(80, 24), press=["3", *keys])


@pytest.mark.parametrize("keys", [[], ["enter"]], ids=["list", "whole"])
def test_a_sliver(keys: list[str], snap_compare: SnapCompare) -> None:
    app = make_app(FakeFeed(make_alerts()))
    assert snap_compare(app, terminal_size=(40, 10), press=["3", "down", "down", *keys])
