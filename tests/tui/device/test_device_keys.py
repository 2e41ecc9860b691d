"""The keys of the screen of one device: how one gets there, from device to device, and back."""

from tests.tui.canned import FakeFeed, make_app, make_snapshot
from tests.tui.canned_ranks import (
    make_crowd,
    make_job,
    make_rank,
    make_trained,
    with_ranks,
)
from tests.tui.device_looks import SIZE, feed_of, later, on_device, rows
from tests.tui.looks import notices, shown_screen, shown_text, title
from vramscope.tui.device.screen import DeviceScreen
from vramscope.tui.live.dialogs import SortScreen
from vramscope.tui.live.node_screen import CHOOSE_FIRST
from vramscope.tui.live.process_rows import SortOrder
from vramscope.tui.live.screen import LiveScreen
from vramscope.tui.screens.dialogs import HelpScreen
from vramscope.tui.screens.terminal_app import PaletteCommands


async def test_enter_opens_the_device_and_escape_leads_back_to_it() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("down", "down", "down", "enter")
        await pilot.pause()
        assert on_device(app).uuid == "GPU-0002"
        await pilot.press("right", "escape")
        await pilot.pause()
        assert shown_screen(app) is LiveScreen
        assert app.live.devices.selected == "GPU-0003"


async def test_two_shows_the_device_of_the_process_that_is_open_and_lists_its_processes_alone() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "enter", "2")
        await pilot.pause()
        screen = on_device(app)
        assert screen.uuid == "GPU-0004"
        assert {row.device.index for row in screen.processes.rows} == {4}
        await pilot.press("1")
        await pilot.pause()
        assert app.live.processes.process_count == 12


async def test_two_shows_the_selected_device_or_else_the_fullest() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("2")
        await pilot.pause()
        assert on_device(app).uuid == "GPU-0004", "77 of 79.6 GiB"
        await pilot.press("question_mark", "1")
        await pilot.pause()
        assert shown_screen(app) is LiveScreen
        await pilot.press("home", "2", "2")
        await pilot.pause()
        assert on_device(app).uuid == "GPU-0000"


async def test_two_says_so_where_there_is_no_device() -> None:
    app = make_app(FakeFeed(make_snapshot(0)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("2")
        assert notices(app) == ["No device to show."]
        assert shown_screen(app) is LiveScreen


async def test_palette_and_help_know_the_screen() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=(92, 140)) as pilot:
        assert "view: device" in [entry.name for entry in PaletteCommands(app.live)._entries()]
        await pilot.press("2", "question_mark")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        text = shown_text(app)
        for binding in app.screen._explained.active_bindings.values():
            if binding.binding.id and "-" in binding.binding.id:
                assert binding.binding.tooltip in text, binding.binding.id
        await pilot.press("escape")
        assert shown_screen(app) is DeviceScreen


async def test_arrows_and_tab_go_from_device_to_device_and_round() -> None:
    app = make_app(feed_of(with_ranks(*make_job(3))))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home", "enter")
        seen = []
        for key in ("right", "l", "tab", "left", "shift+tab", "h"):
            await pilot.press(key)
            await pilot.pause()
            seen.append(on_device(app).uuid[-1])
        assert seen == ["1", "2", "0", "2", "1", "0"]


async def test_tab_chooses_among_the_ranks_of_a_device_before_it_goes_on() -> None:
    devices, ranks = make_crowd()
    other = make_rank(2, device_uuid="GPU-0001")
    snapshot = with_ranks([*devices, make_trained(1, [other])], [*ranks, other])
    app = make_app(feed := feed_of(snapshot))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home", "enter")
        await pilot.pause()
        assert "▌rank 0 tp0 pp0   rank 1 tp1 pp0" in "\n".join(rows(app))
        seen = [(on_device(app).uuid[-1], on_device(app)._pid)]
        for key in ("tab", "tab", "tab", "shift+tab", "shift+tab"):
            await pilot.press(key)
            await pilot.pause()
            seen.append((on_device(app).uuid[-1], on_device(app)._pid))
        assert seen == [("0", 4000), ("0", 4010), ("1", 4020), ("0", 4000), ("1", 4020), ("0", 4010)]
        assert set(feed.asked) == {4000, 4010, 4020}, "each map is asked for when its rank comes in sight"


async def test_the_list_of_processes_has_all_its_keys() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("down", "down", "enter", "K")
        await pilot.pause()
        assert notices(app) == [CHOOSE_FIRST.format("p")]
        screen = on_device(app)
        assert screen.processes.process_count == 2
        await pilot.press("p", "less_than_sign", "I")
        assert app.focused is screen.processes
        assert screen.processes.order == SortOrder("user", True)
        await pilot.press("slash", *"rank 3", "enter")
        await pilot.pause()
        assert [row.process.pid for row in screen.processes.rows] == [4011]
        await pilot.press("escape", "escape", "s")
        assert isinstance(app.screen, SortScreen)
        await pilot.press("escape", "escape")
        await pilot.pause()
        assert shown_screen(app) is LiveScreen
        assert app.live.processes.order == SortOrder("user", True), "the order goes along"


async def test_a_pause_freezes_this_screen_too() -> None:
    snapshot = with_ranks(*make_job(1))
    app = make_app(feed := feed_of(snapshot))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("2", "space")
        feed.hand_over(later(snapshot, 60))
        await pilot.pause()
        assert "paused since 12:00:01" in shown_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert title(app).endswith("paused since 12:00:01")
        await pilot.press("2", "space")
        await pilot.pause()
        assert "12:01:00" in shown_text(app)
        await pilot.press("1")
        await pilot.pause()
        assert title(app).endswith("12:01:00"), "nothing is paused on the way back"


async def test_what_is_not_seen_is_not_drawn_and_is_of_now_when_it_is_seen_again() -> None:
    snapshot = with_ranks(*make_job(1))
    app = make_app(feed := feed_of(snapshot))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("2", "question_mark")
        feed.hand_over(later(snapshot, 9))
        await pilot.pause()
        assert app.live.snapshot.sample is not None
        assert app.live.snapshot.sample.seq == 1
        await pilot.press("escape")
        assert "12:00:09" in shown_text(app), "it was drawn below the help"
        await pilot.press("escape")
        await pilot.pause()
        assert "12:00:09" in title(app)


async def test_a_device_that_is_gone_says_so() -> None:
    app = make_app(feed := feed_of(with_ranks(*make_job(2))))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("end", "enter")
        feed.hand_over(later(with_ranks(*make_job(1)), 2))
        await pilot.pause()
        assert "This device is gone; Esc goes back" in shown_text(app)
        await pilot.press("right")
        await pilot.pause()
        assert on_device(app).uuid == "GPU-0000"
