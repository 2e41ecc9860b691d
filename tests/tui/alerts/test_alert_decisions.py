"""Acknowledging, muting and taking back: what the keys ask of the hub, and when they refuse."""

import pytest

from tests.tui.canned import FakeFeed, make_app
from tests.tui.canned_alerts import FRAGMENTATION, LEAK, OOM, PRESSURE, make_alerts
from tests.tui.device_looks import later
from tests.tui.looks import notices, shown_screen, shown_text
from vramscope.engine.alerts.state import FindingDecision
from vramscope.engine.viewer.snapshot import DecisionRefused
from vramscope.tui.alerts.screen import READ_ONLY, AlertsScreen
from vramscope.tui.live.process_signals import SignalPolicy
from vramscope.tui.screens.dialogs import ChoiceScreen


async def test_keys_decide_and_the_hub_is_asked() -> None:
    feed = FakeFeed(make_alerts())
    app = make_app(feed)
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.press("3", "home", "a")
        await pilot.press("m")
        await pilot.pause()
        assert shown_screen(app) is ChoiceScreen
        assert "Mute out of memory ahead on GPU 5" in shown_text(app)
        await pilot.press("j", "enter")
        await pilot.press("m", "escape")
        await pilot.press("down", "u", "down", "m", "enter", "u")
        await pilot.pause()
        assert feed.decisions == [
            FindingDecision("acknowledge", OOM.id),
            FindingDecision("mute", OOM.id, "open"),
            FindingDecision("release", PRESSURE.id),
            FindingDecision("mute", LEAK.id, "hour"),
        ]
        assert notices(app)[-1] == "This alert is neither acknowledged nor muted."


async def test_a_closed_finding_is_not_acknowledged_and_its_kind_can_be_muted() -> None:
    feed = FakeFeed(make_alerts())
    app = make_app(feed)
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.press("3", "end", "a")
        assert notices(app)[-1] == "This alert has closed: there is nothing to acknowledge."
        await pilot.press("m")
        await pilot.pause()
        assert "until this one closes" not in shown_text(app)
        await pilot.press("j", "enter")
        await pilot.pause()
        assert feed.decisions == [FindingDecision("mute", FRAGMENTATION.id, "always")]


async def test_the_next_key_decides_on_the_same_finding_when_the_list_moved() -> None:
    feed = FakeFeed(make_alerts(findings=(LEAK,)))
    app = make_app(feed)
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.press("3", "a")
        feed.hand_over(later(make_alerts(findings=(OOM, LEAK)), 2))
        await pilot.pause()
        await pilot.press("m", "enter")
        await pilot.pause()
        assert feed.decisions == [
            FindingDecision("acknowledge", LEAK.id),
            FindingDecision("mute", LEAK.id, "hour"),
        ]


@pytest.mark.parametrize("key", ["a", "m", "u"])
async def test_a_read_only_view_decides_nothing(key: str) -> None:
    feed = FakeFeed(make_alerts())
    app = make_app(feed, policy=SignalPolicy(is_read_only=True))
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.press("3", "home", "down", key)
        await pilot.pause()
        assert notices(app)[-1] == READ_ONLY
        assert shown_screen(app) is AlertsScreen
    assert feed.decisions == []


async def test_without_an_agent_nothing_is_decided() -> None:
    feed = FakeFeed(make_alerts(connection="lost", silent_s=7.0))
    app = make_app(feed)
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.press("3", "home", "a")
        await pilot.pause()
        assert notices(app)[-1] == "Not connected to the agent: alerts cannot be changed now."
    assert feed.decisions == []


async def test_what_the_hub_refused_is_told_once() -> None:
    feed = FakeFeed(make_alerts())
    app = make_app(feed)
    async with app.run_test(size=(120, 32)) as pilot:
        refused = DecisionRefused(7, "that finding has already closed")
        for seq in (2, 3, 4):
            feed.hand_over(later(make_alerts(decision_refused=refused), seq))
            await pilot.pause()
        assert notices(app).count("Not done: that finding has already closed.") == 1
