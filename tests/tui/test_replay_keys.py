"""The keys of a replay, on every screen, against a real recording that a real thread reads."""

import re
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from tests.engine.replay.recordings import START_S, grow, record
from tests.tui.canned import make_sample
from tests.tui.looks import notices, shown_text
from tests.tui.replays import make_replay, press_until, replay_of
from vramscope.tui.alerts.screen import AlertsScreen
from vramscope.tui.device.screen import DeviceScreen
from vramscope.tui.frame.keys import collect_keys
from vramscope.tui.widgets.time_bar import TimeBar

# Half of the way through the recording.
MIDDLE_S = START_S + 149


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("replay") / "run.vscope")


async def test_keys_move_in_time_on_every_screen(path: Path) -> None:
    app = make_replay(path)
    async with app.run_test(size=(80, 24)) as pilot:
        await press_until(pilot, [], lambda it: it.position_s == START_S and not it.is_paused)
        await press_until(pilot, ["space"], lambda it: it.is_paused)
        await press_until(pilot, ["k", "k"], lambda it: it.position_s == START_S + 20)
        await press_until(pilot, ["j"], lambda it: it.position_s == START_S + 10)
        await press_until(pilot, ["right_square_bracket"], lambda it: it.position_s == START_S + 11)
        await press_until(pilot, ["2"], lambda _: isinstance(app.screen, DeviceScreen))
        await press_until(pilot, ["left_square_bracket"], lambda it: it.position_s == START_S + 10)
        await press_until(pilot, ["plus", "plus"], lambda it: it.speed == 4)
        await press_until(pilot, ["minus"], lambda it: it.speed == 2)
        await press_until(pilot, ["3"], lambda _: isinstance(app.screen, AlertsScreen))
        await press_until(pilot, ["L"], lambda it: it.is_looping)
        await press_until(pilot, ["g", *"50%", "enter"], lambda it: it.position_s == START_S + 149)
        found = await press_until(pilot, ["n"], lambda it: it.position_s > START_S + 149)
        assert found.position_s in {mark.time_s for mark in found.marks}
        assert any(text.startswith("finding: GPU 0") for text in notices(app))
        await press_until(pilot, ["N"], lambda it: it.position_s < START_S + 149)
        bar = app.screen.query_one(TimeBar)
        assert bar.display
        assert bar.text.startswith("paused 2×")
        assert "loop" in bar.text
        await press_until(pilot, ["g", *"100%", "enter"], lambda it: it.position_s == it.end_s)
        assert bar.text.startswith("paused 2×"), "it begins again"
        await press_until(pilot, ["L"], lambda it: not it.is_looping)
        assert bar.text.startswith("ended"), "nothing plays any more"


async def test_what_is_typed_is_no_key_and_what_is_no_moment_is_told(path: Path) -> None:
    app = make_replay(path)
    async with app.run_test(size=(80, 24)) as pilot:
        start = await press_until(pilot, ["space"], lambda it: it.is_paused)
        await pilot.press("g", *"jkn9", "enter")
        await pilot.pause()
        assert "not a time" in shown_text(app)
        await pilot.press("escape", "slash", *"jk ng")
        await pilot.press("escape")
        after = await press_until(pilot, ["L"], lambda it: it.is_looping)
        assert (after.position_s, after.is_paused) == (start.position_s, True)


async def test_a_recording_is_not_acted_upon(path: Path) -> None:
    app = make_replay(path)
    async with app.run_test(size=(120, 40)) as pilot:
        await press_until(pilot, ["space", "g", *"127s", "enter"], lambda it: it.position_s == START_S + 127)
        await pilot.press("tab", "K")
        await pilot.pause()
        assert any("is part of a recording" in text for text in notices(app)), notices(app)
        await press_until(pilot, ["escape", "3", "a"], lambda it: it.word is not None)
        assert any("no agent to save decisions" in text for text in notices(app))


async def test_help_gives_each_key_one_meaning(path: Path) -> None:
    app = make_replay(path)
    async with app.run_test(size=(80, 24)) as pilot:
        await press_until(pilot, [], lambda _: True)
        groups = collect_keys(app.screen)
        keys = [key for entries in groups.values() for entry in entries for key in entry.keys.split()]
        taken = [key for entry in groups["replay"] for key in entry.keys.split()]
        assert {"space", "[", "]", "j", "k", "n", "N", "g", "+", "-", "L"} <= set(taken)
        assert {key: keys.count(key) for key in taken} == dict.fromkeys(taken, 1)


async def test_the_time_bar_goes_where_it_is_clicked_and_by_its_arrows(path: Path) -> None:
    app = make_replay(path)
    async with app.run_test(size=(100, 30)) as pilot:
        start = await press_until(pilot, ["space"], lambda it: it.is_paused)
        bar = app.screen.query_one(TimeBar)
        length_s = start.end_s - start.start_s
        end = bar.text.rindex("─") + 1  # and the padding before the text
        await pilot.click(bar, offset=(end, 0))
        await press_until(pilot, [], lambda it: it.position_s == it.end_s)
        first = bar.text.index("─") + 1
        await pilot.click(bar, offset=((first + end) // 2, 0))
        middle = await press_until(pilot, [], lambda it: it.position_s < it.end_s)
        assert abs(middle.position_s - start.start_s - length_s / 2) <= 0.02 * length_s
        assert app.focused is bar
        await press_until(pilot, ["right"], lambda it: it.position_s == middle.position_s + 10)
        await press_until(pilot, ["shift+left"], lambda it: it.position_s == middle.position_s + 9)
        await press_until(pilot, ["home"], lambda it: it.position_s == it.start_s)
        await pilot.click(bar, offset=(1, 0))
        await pilot.pause()
        shown = replay_of(app)
        assert shown is not None
        assert shown.position_s == shown.start_s, "the words at its left are no moment"


async def test_tab_leads_to_the_time_bar(path: Path) -> None:
    app = make_replay(path)
    async with app.run_test(size=(100, 40)) as pilot:
        await press_until(pilot, ["space"], lambda it: it.is_paused)
        for _ in range(3):
            await pilot.press("tab")
            if isinstance(app.focused, TimeBar):
                break
        assert isinstance(app.focused, TimeBar)


async def test_a_replay_opens_at_the_first_device_and_says_where_there_is_none(tmp_path: Path) -> None:
    samples = [make_sample((), seq) for seq in range(1, 4)] + [grow(seq) for seq in range(4, 30)]
    app = make_replay(record(tmp_path / "late.vscope", samples))
    async with app.run_test(size=(100, 30)) as pilot:
        await press_until(pilot, ["space"], lambda it: it.is_paused)
        assert "GPU 0" in shown_text(app)
        await press_until(pilot, ["g", *"0%", "enter"], lambda it: it.position_s == it.start_s)
        text = shown_text(app)
        assert "No device was recorded at this moment." in text
        assert "doctor" not in text


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=["80x24", "200x50"])
async def test_zooming_shows_a_part_of_the_time_around_the_moment(path: Path, size: tuple[int, int]) -> None:
    app = make_replay(path)
    async with app.run_test(size=size) as pilot:
        whole = await press_until(
            pilot, ["space", "g", *"50%", "enter"], lambda it: it.position_s == MIDDLE_S
        )
        bar = app.screen.query_one(TimeBar)
        assert whole.window is None
        assert " of " not in bar.text
        zoomed = await press_until(pilot, ["z", "z"], lambda it: it.window is not None)
        quarter_s = (whole.end_s - whole.start_s) / 4
        assert zoomed.window == pytest.approx((MIDDLE_S - quarter_s / 2, MIDDLE_S + quarter_s / 2))
        assert "75 s of 5 min" in bar.text
        first, last = (f"{datetime.fromtimestamp(it):%H:%M:%S}" for it in zoomed.window or ())
        assert first in bar.text
        assert last in bar.text
        reach = {int(it) for it in re.findall(r"-(\d+) s ", shown_text(app))}
        assert reach, "each chart says how far back it goes"
        assert max(reach) <= 80, "no further than the bar, to a whole bucket"
        await press_until(pilot, ["2"], lambda it: it.window == zoomed.window)
        assert "75 s of 5 min" in app.screen.query_one(TimeBar).text, "on every screen"
        await press_until(pilot, ["Z"], lambda it: it.window is not None and it.window != zoomed.window)
        await press_until(pilot, ["Z"], lambda it: it.window is None)


async def test_a_zoomed_bar_follows_the_moment_and_is_moved_away_from_it(path: Path) -> None:
    app = make_replay(path)
    async with app.run_test(size=(100, 30)) as pilot:
        await press_until(pilot, ["space", "g", *"50%", "enter"], lambda it: it.position_s == MIDDLE_S)
        await pilot.press("right_parenthesis")
        await pilot.pause()
        assert any("z zooms in" in text for text in notices(app)), "there is nothing to move"
        zoomed = await press_until(pilot, ["z", "z", "z"], lambda it: it.window is not None)
        assert zoomed.window is not None
        start_s, end_s = zoomed.window
        half_s = (end_s - start_s) / 2
        moved = await press_until(pilot, ["right_parenthesis"] * 2, lambda it: it.window != zoomed.window)
        assert moved.window == pytest.approx((start_s + 2 * half_s, end_s + 2 * half_s))
        assert moved.position_s == MIDDLE_S
        bar = app.screen.query_one(TimeBar)
        assert "█" not in bar.text, "the moment is outside"
        # A click goes to a moment of the part, not of the whole.
        await pilot.click(bar, offset=(bar.text.index("─") + 1, 0))
        clicked = await press_until(pilot, [], lambda it: it.position_s != MIDDLE_S)
        assert clicked.window == pytest.approx(moved.window, abs=1), "less than a sample apart"
        assert abs(clicked.position_s - (start_s + 2 * half_s)) <= 1
        far = await press_until(pilot, ["g", *"10%", "enter"], lambda it: it.position_s < MIDDLE_S)
        assert far.window is not None
        assert far.window[0] <= far.position_s <= far.window[1], "it follows the moment"
        assert far.window[1] - far.window[0] == pytest.approx(end_s - start_s)
        least = await press_until(pilot, ["z"] * 9, lambda it: it.window is not None)
        assert least.window is not None
        assert least.window[1] - least.window[0] >= 10, "ten samples of 1 s"


async def test_a_bar_that_was_moved_away_stays_while_the_replay_plays_on(path: Path) -> None:
    app = make_replay(path)
    async with app.run_test(size=(100, 30)) as pilot:
        await press_until(pilot, ["space", "g", *"20%", "enter"], lambda it: it.position_s < MIDDLE_S)
        control = app.replay
        assert control is not None
        before = await press_until(
            pilot, ["z", "z", "z", *["right_parenthesis"] * 4], lambda it: it.window is not None
        )
        playing = msgspec.structs.replace(
            before, is_paused=False, position_s=before.position_s + 1, window=None
        )
        shown = control.frame(msgspec.structs.replace(app.newest, replay=playing)).replay
        assert shown is not None
        assert shown.window == before.window
        assert not before.window[0] <= shown.position_s <= before.window[1] if before.window else False
