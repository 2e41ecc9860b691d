"""A plan over the live view: the key, the question, and what the job was measured to need."""

from pathlib import Path

import msgspec
import pytest

from tests.engine.replay.recordings import record
from tests.tui.replays import make_replay, press_until
from vramscope.cli.plan_screen import present_words
from vramscope.engine.errors import UsageError
from vramscope.tui.app import VramscopeApp
from vramscope.tui.frame.keys import collect_keys
from vramscope.tui.live.screen import LiveScreen
from vramscope.tui.plan.planned import JobDefaults, Planned
from vramscope.tui.plan.screen import PlanScreen
from vramscope.tui.widgets.one_line import KeyLine

from ..canned import FakeFeed, make_app
from ..canned_ranks import make_allocator, make_job, with_ranks
from ..inspect.test_inspect import until
from ..looks import shown_text


def make_planning_app(asked: list[tuple[str, JobDefaults]]) -> VramscopeApp:
    """Return the live view of a job of four stages with two tensor ranks each."""

    def plan(words: str, defaults: JobDefaults) -> Planned:
        asked.append((words, defaults))
        return present_words(words, defaults)

    app = make_app(FakeFeed(with_ranks(*make_job(8))))
    app.tools["plan"].read = plan
    return app


async def test_a_model_is_asked_for_and_its_plan_shows_what_the_job_needs() -> None:
    asked: list[tuple[str, JobDefaults]] = []
    app = make_planning_app(asked)
    async with app.run_test(size=(150, 40)) as pilot:
        assert "6 Plan" in shown_text(app)
        await pilot.press("6")
        await until(pilot, lambda: "devices of 79.6 GiB" in shown_text(app))
        await pilot.press(*"llama2-13", "enter")
        await until(pilot, lambda: "unknown model" in shown_text(app))
        await pilot.press("b", "enter")
        await until(pilot, lambda: isinstance(app.screen, PlanScreen))
        await pilot.pause()
        assert asked[-1][1].stages == 4
        text = shown_text(app)
        assert "Use 4 stages, exact" in text
        assert "4 of 4 stages measured since 12:00:01, 2 tensor ranks together" in text
        assert "measured 102.0 GiB" in text, "both tensor ranks of the first stage"
        grown = [msgspec.structs.replace(rank, allocator=make_allocator(70.0)) for rank in make_job(8)[1]]
        app._receive(with_ranks(make_job(8)[0], grown, seq=2))
        await until(pilot, lambda: "measured 141.0 GiB" in shown_text(app))
        await pilot.press("escape")
        assert isinstance(app.screen, LiveScreen)
        await pilot.press("6", "enter")
        await until(pilot, lambda: isinstance(app.screen, PlanScreen))
        await pilot.press("1")
        assert isinstance(app.screen, LiveScreen)


async def test_over_a_replay_lists_have_their_keys_and_time_still_moves(tmp_path: Path) -> None:
    app = make_replay(record(tmp_path / "run.vscope"))
    app.tools["plan"].read = present_words
    async with app.run_test(size=(120, 32)) as pilot:
        await press_until(pilot, ["space"], lambda it: it.is_paused)
        before = await press_until(pilot, ["6", *"gpt-1.5b 2,4", "enter"], lambda _: app.overlay is not None)
        plan = app.screen
        assert isinstance(plan, PlanScreen)
        await pilot.press("home", "down", "down")
        assert plan.table.chosen == 2
        keys = collect_keys(app.screen)
        at_j = [(name, key.verb) for name in keys for key in keys[name] if "j" in key.keys.split("/")]
        assert at_j == [("replay", "back")], "the same ten seconds on every screen of a replay"
        assert [key.verb for group in keys.values() for key in group if key.keys == "E"] == ["export"]
        assert "Esc back  Enter open" in app.screen.query_one(KeyLine).text, "not those of the replay"
        await press_until(pilot, ["right_square_bracket"], lambda it: it.position_s == before.position_s + 1)
        await pilot.press("escape")
        await press_until(pilot, ["k"], lambda it: it.position_s == before.position_s + 11)


async def test_flags_follow_the_model_and_nothing_is_offered_where_nothing_plans() -> None:
    plan = present_words("gpt-1.5b 2,3 --strategy exact", JobDefaults(stages=8, capacity_bytes=1 << 40))
    assert [len(each.stages) for each in plan.candidates] == [2, 3]
    assert plan.most_bytes == 1 << 40
    over = present_words("llama2-13b 4 --strategy exact", JobDefaults(capacity_bytes=40 << 30))
    assert over.verdict.fit(200).startswith("None fits: the least any needs is")
    assert (over.best, over.recommended, over.candidates[0].note) == (None, None, "over")
    assert any(stage.is_over for stage in over.candidates[0].stages)
    app = make_planning_app([])
    async with app.run_test(size=(150, 40)) as pilot:
        await pilot.press("6", *"llama2-13b 4 --capacity 10GiB", "enter")
        await until(pilot, lambda: isinstance(app.screen, PlanScreen))
        await pilot.pause()
        text = shown_text(app)
        assert "None fits: the least any needs is" in text
        assert "best" not in text
        assert "no capacity was given" not in text
    app = make_app(FakeFeed(with_ranks(*make_job(8))))
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.press("6")
        assert isinstance(app.screen, LiveScreen)
        assert "6 Plan" not in shown_text(app)


async def test_words_that_mean_nothing_are_refused_in_a_sentence() -> None:
    for words in ("gpt-1.5b '", "gpt-1.5b --help", "gpt-1.5b --nosuch"):
        with pytest.raises(UsageError):
            present_words(words, JobDefaults())
