"""What the live screen tells: trouble, recordings, notes, filters, and life without a GPU."""

import asyncio

import msgspec
import pytest
from textual.widgets import Input

from tests.tui.canned import (
    NOON_S,
    FakeFeed,
    StillClock,
    make_app,
    make_devices,
    make_finding,
    make_hub,
    make_sample,
    make_snapshot,
)
from tests.tui.looks import notices, shown_screen, shown_text, title
from vramscope.engine.model import HostSample
from vramscope.tui.live.node_screen import NO_LIST_RECORDED, NO_LIST_WITHOUT_GPU
from vramscope.tui.live.screen import AlertLine, HostLine, LiveScreen, NoteLine
from vramscope.tui.screens.dialogs import HelpScreen, NotesScreen
from vramscope.tui.screens.terminal_app import PaletteCommands
from vramscope.tui.widgets.one_line import KeyLine
from vramscope.tui.widgets.verdict_line import VerdictLine

SIZE = (120, 40)


async def test_losing_the_hub_ages_the_picture_and_keeps_it() -> None:
    clock = StillClock()
    feed = FakeFeed(make_snapshot(2))
    app = make_app(feed, clock=clock)
    async with app.run_test(size=SIZE) as pilot:
        verdict = app.live.query_one(VerdictLine)
        feed.hand_over(make_snapshot(2, connection="lost", silent_s=7.0, reason="the agent was killed."))
        await pilot.pause()
        assert verdict.text.startswith("agent lost 7 s ago, data is stale: the agent was killed")
        assert app.live.has_class("-stale")
        assert app.live.processes.process_count == 3
        clock.now_s = NOON_S + 5
        app.live._show_verdict()
        assert verdict.text.startswith("agent lost 12 s ago")
        feed.hand_over(make_snapshot(2, seq=9))
        await pilot.pause()
        assert verdict.text.startswith("? OOM risk")
        assert not app.live.has_class("-stale")
        assert app.live._age_timer is None


async def test_drops_and_workers_are_counted_in_the_title() -> None:
    worker = msgspec.structs.replace(make_hub().workers[0], restarts=2, samples_dropped=5)
    hub = make_hub(workers=(worker,))
    app = make_app(FakeFeed(make_snapshot(2, samples_dropped=1234, hub=hub)))
    async with app.run_test(size=(200, 50)):
        for words in (
            "1,234 samples dropped",
            "worker analyzers restarted 2×",
            "worker analyzers missed 5 samples",
            "agent up 12 h 00 m, 0.2 % CPU",
        ):
            assert words in title(app)


async def test_a_recording_says_so() -> None:
    sample = msgspec.structs.replace(make_sample(make_devices(2)), clock="trace", time_s=12.345)
    app = make_app(FakeFeed(make_snapshot(sample=sample)))
    async with app.run_test(size=SIZE):
        assert "recorded trace" in title(app)
        assert "sort" not in app.live.query_one(KeyLine).text
        assert title(app).endswith("t 12.3 s")


@pytest.mark.parametrize("key", ["s", "slash", "K", "I", "less_than_sign", "greater_than_sign", "tab"])
async def test_keys_of_a_list_that_is_not_there_say_why(key: str) -> None:
    recorded = msgspec.structs.replace(make_sample(make_devices(2)), clock="trace")
    for sample, reason in ((make_sample(()), NO_LIST_WITHOUT_GPU), (recorded, NO_LIST_RECORDED)):
        app = make_app(FakeFeed(make_snapshot(sample=sample)))
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press(key)
            assert notices(app) == [reason]
            assert app.screen is app.live


async def test_all_notes_are_read_by_a_key_and_some_without_it() -> None:
    notes = (
        "plug-in idle-memory was left out: no module named idle",
        "GPU 1 shares the host's memory: its figures are the host's",
        "the third note is long enough to have no room in a low and narrow window",
    )
    feed = FakeFeed(make_snapshot(sample=make_sample(make_devices(8), notes=notes)))
    app = make_app(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        assert "Notes  plug-in idle-memory was" in app.live.query_one(AlertLine).text
        assert app.live.query_one(AlertLine).text.endswith("i all 3 notes")
        await pilot.press("i")
        assert isinstance(app.screen, NotesScreen)
        for note in notes:
            assert note in shown_text(app)
        await pilot.press("escape")
        assert shown_screen(app) is LiveScreen
        await pilot.resize_terminal(200, 50)
        await pilot.pause()
        assert app.live.query_one(AlertLine).text == "Alerts  none"
        assert app.live.query_one(NoteLine).text == "Notes   " + "   ".join(notes)
        feed.hand_over(make_snapshot(sample=make_sample(make_devices(8), 2)))
        await pilot.pause()
        assert not app.live.query_one(NoteLine).display
        await pilot.press("i")
        assert "No notes." in shown_text(app)


async def test_alerts_say_how_grave_they_are_in_a_word() -> None:
    low = msgspec.structs.replace(make_finding(6), severity="low")
    app = make_app(FakeFeed(make_snapshot(findings=(low, make_finding(5), make_finding(1, closed_s=NOON_S)))))
    async with app.run_test(size=SIZE):
        assert app.live.query_one(AlertLine).text == (
            "Alerts  11:58:20 · pressure GPU 6, low   11:58:20 ◆ pressure GPU 5, high   "
            "11:58:20 ◆ pressure GPU 1, closed 12:00:00"
        )


async def test_alerts_are_words_and_not_names_of_programs() -> None:
    met = msgspec.structs.replace(make_finding(5), kind="oom_met", severity="critical")
    app = make_app(FakeFeed(make_snapshot(findings=(met,))))
    async with app.run_test(size=SIZE):
        assert app.live.query_one(AlertLine).text.endswith(" out of memory GPU 5, critical")


@pytest.mark.parametrize("height", [24, 32, 50])
async def test_filtering_leaves_no_blank_rows_and_moves_no_device(height: int) -> None:
    app = make_app(FakeFeed(make_snapshot(8)))
    async with app.run_test(size=(80, height)) as pilot:
        await pilot.press("tab")
        await pilot.pause()
        devices, rows = app.live.devices, app.live.processes.size.height
        await pilot.press("slash")
        await pilot.pause()
        assert app.live.processes.size.height >= rows - 1
        shown = [devices.render_line(y).text for y in range(devices.size.height)]
        assert sum(not line.strip() for line in shown) <= 8
        top = app.live.processes.region
        await pilot.press(*"rank 7")
        await pilot.pause()
        assert app.live.processes.region == top
        await pilot.press("enter")
        await pilot.pause()
        heading = app.live.processes.render_line(0).text
        assert "of 12 match “rank 7”" in heading
        assert app.live.processes.size.height >= rows - 1, "the list keeps its share while it has the keys"


async def test_the_filter_says_what_is_searched() -> None:
    app = make_app(FakeFeed(make_snapshot(8)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("slash", *"rank")
        await pilot.pause()
        assert "rank in user, PID, pod, job, command; Enter keeps, Esc clears" in shown_text(app)


async def test_the_palette_speaks_in_lower_case() -> None:
    app = make_app(FakeFeed(make_snapshot(8)))
    async with app.run_test(size=SIZE):
        names = [entry.name for entry in PaletteCommands(app.live)._entries()]
        assert names == [name.lower() for name in names]
        assert "view: notes" in names
        assert "view: live" in names


async def test_the_cursor_of_the_palette_does_not_blink() -> None:
    app = make_app(FakeFeed(make_snapshot(2)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("ctrl+p")
        await app.workers.wait_for_complete()
        async with asyncio.timeout(60):
            while app.screen.query_one(Input).cursor_blink:
                await pilot.pause()


async def test_the_host_line_shows_whole_figures_only() -> None:
    app = make_app(FakeFeed(make_snapshot(2)))
    async with app.run_test(size=(40, 10)) as pilot:
        assert app.live.query_one(HostLine).text == "host   412.0/1,008.0 GiB  41 %"
        await pilot.resize_terminal(200, 10)
        await pilot.pause()
        line = app.live.query_one(HostLine)
        assert line.text.endswith("cpu  23 %")
        line.show(HostSample(cpu_percent=23.0, load_average=12.345))
        assert line.text.endswith("cpu  23 %   load 12.3")


async def test_snapshots_that_come_too_fast_are_counted_for_a_minute() -> None:
    feed, clock = FakeFeed(*(make_snapshot(1, seq=seq) for seq in range(1, 6))), StillClock()
    app = make_app(feed, clock=clock)
    async with app.run_test(size=SIZE) as pilot:
        assert "skipped" not in title(app), "what came before the first picture was late for nobody"
        for seq in range(6, 12):
            feed.hand_over(make_snapshot(1, seq=seq))
        await pilot.pause()
        assert app.live.snapshot.sample is not None
        assert app.live.snapshot.sample.seq == 11
        assert "screen behind: 5 updates skipped" in title(app)
        clock.now_s += 60
        feed.hand_over(make_snapshot(1, seq=12))
        await pilot.pause()
        assert "behind" not in title(app)


async def test_the_key_line_is_read_from_the_bindings() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=SIZE) as pilot:
        text = app.live.query_one(KeyLine).text
        for words in ("1 Live", "space pause", "s sort", "/ filter", "K signal", "? help", "q quit"):
            assert words in text
        await pilot.resize_terminal(40, 24)
        await pilot.pause()
        narrow = app.live.query_one(KeyLine).text
        assert narrow.endswith("? help  q quit")


async def test_a_click_on_a_key_presses_it() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=SIZE) as pilot:
        column = app.live.query_one(KeyLine).render_line(0).text.index("? help") + 1
        await pilot.click("#keys", offset=(column, 0))
        assert isinstance(app.screen, HelpScreen)


async def test_without_a_device_the_host_is_live_and_words_say_how_to_go_on() -> None:
    note = "No NVIDIA driver: libnvidia-ml.so.1 was not found."
    feed = FakeFeed(make_snapshot(sample=make_sample((), notes=(note,))))
    app = make_app(feed)
    async with app.run_test(size=SIZE) as pilot:
        text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "412.0" not in app.live.query_one(HostLine).text, "the panel shows it already"
        for words in (note, "vramscope doctor", "vramscope replay DIR", "used 412.0/1,008.0 GiB", "41 %"):
            assert words in text
        assert "sort" not in app.live.query_one(KeyLine).text
        feed.hand_over(make_snapshot(2, seq=2))
        await pilot.pause()
        assert app.live.devices.display
        assert "s sort" in app.live.query_one(KeyLine).text
