"""Advice from the live view: to the process that is marked, after a choice, and what became of it."""

import msgspec
import pytest

from tests.tui.canned import FakeFeed, StillClock
from tests.tui.canned_ranks import make_job, with_ranks
from tests.tui.looks import notices
from vramscope.engine.model import AdviceAction
from vramscope.engine.settings import Settings
from vramscope.engine.viewer.snapshot import RankAdvice
from vramscope.engine.wire.messages import Advised
from vramscope.tui.app import VramscopeApp
from vramscope.tui.controls.advice import CHOOSE_FIRST, READ_ONLY, REASON
from vramscope.tui.frame import keys
from vramscope.tui.live.process_signals import SignalPolicy
from vramscope.tui.screens.dialogs import ChoiceScreen
from vramscope.tui.terminal.abilities import TerminalAbilities

SIZE = (150, 40)


class PassingFeed(FakeFeed):
    """A feed that passes advice on."""

    advised: list[tuple[int, AdviceAction, str]]

    def advise(self, pid: int, action: AdviceAction, reason: str) -> None:
        self.advised = [*getattr(self, "advised", []), (pid, action, reason)]


def make_app(feed: FakeFeed, *, is_read_only: bool = False) -> VramscopeApp:
    return VramscopeApp(
        feed,
        settings=Settings(),
        abilities=TerminalAbilities(),
        clock=StillClock(),
        signal_policy=SignalPolicy(is_read_only=is_read_only),
        driver_class=None,
    )


async def test_the_marked_process_is_advised_and_what_it_made_of_that_is_said_once() -> None:
    devices, ranks = make_job(2)
    snapshot = with_ranks(devices, ranks)
    feed = PassingFeed(snapshot)
    app = make_app(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("A")
        assert notices(app) == [CHOOSE_FIRST]
        await pilot.press("tab", "A")
        await pilot.pause()
        assert isinstance(app.screen, ChoiceScreen)
        await pilot.press("j", "enter")
        ((pid, action, reason),) = feed.advised
        assert (action, reason) == ("skip_long_batch", REASON)
        assert pid in {rank.pid for rank in ranks}
        answered = RankAdvice(pid, 3, action, Advised(3, pid, False, "has no callback for skip_long_batch"))
        refused = RankAdvice(pid, 4, action, refusal=f"process {pid} accepts no advice")
        for _ in range(2):
            feed.hand_over(msgspec.structs.replace(snapshot, advice=(refused, answered)))
            await pilot.pause()
        told = [
            f"Process {pid} has no callback for skip_long_batch.",
            f"Not done: process {pid} accepts no advice.",
        ]
        assert notices(app)[-2:] == told
        assert sum(told[0] == notice for notice in notices(app)) == 1


@pytest.mark.parametrize("is_read_only", [True, False])
async def test_no_key_is_offered_where_nobody_passes_advice_on(is_read_only: bool) -> None:
    snapshot = with_ranks(*make_job(2))
    app = make_app(PassingFeed(snapshot) if is_read_only else FakeFeed(snapshot), is_read_only=is_read_only)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "A")
        assert notices(app) == ([READ_ONLY] if is_read_only else [])
        assert app.offers(keys.ADVISE) == is_read_only
