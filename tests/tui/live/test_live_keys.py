"""Every key of the live screen, pressed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from tests.tui.canned import (
    FakeFeed,
    make_app,
    make_device,
    make_process,
    make_sample,
    make_snapshot,
)
from tests.tui.looks import notices, shown_screen, shown_text, title
from vramscope.engine.errors import UsageError
from vramscope.engine.model import STATUS_SCHEMA
from vramscope.engine.settings import Settings, SortColumn
from vramscope.tui.live.dialogs import SortScreen
from vramscope.tui.live.process_rows import COLUMN_NAMES, COLUMNS, SortOrder
from vramscope.tui.live.screen import HostLine, LiveScreen
from vramscope.tui.screens.dialogs import HelpScreen
from vramscope.tui.widgets.verdict_line import VerdictLine

SIZE = (120, 40)


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q", "ctrl+d"])
async def test_quitting_stops_the_feed(key: str) -> None:
    feed = FakeFeed(make_snapshot())
    app = make_app(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(key)
        await pilot.pause()
        assert not app.is_running
    assert feed.is_stopped
    assert app.return_code == 0


async def test_the_first_snapshot_is_on_the_screen_at_once() -> None:
    app = make_app(FakeFeed(make_snapshot(8)))
    async with app.run_test(size=SIZE):
        assert "node03 · 8 GPUs" in title(app)
        assert title(app).endswith("12:00:01")
        assert app.live.query_one(VerdictLine).text.startswith("? OOM risk unknown")
        assert "412.0/1,008.0 GiB" in app.live.query_one(HostLine).text
        assert app.live.processes.process_count == 12


@pytest.mark.parametrize("key", ["question_mark", "f1"])
async def test_help_lists_every_key_with_its_sentence(key: str) -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=(92, 80)) as pilot:
        await pilot.press(key)
        assert isinstance(app.screen, HelpScreen)
        text = shown_text(app)
        for sentence in (
            "Pause or resume the display",
            "Choose the column",
            "Send a signal",
            "Quit vramscope",
        ):
            assert sentence in text
        for entry in app.live.active_bindings.values():
            if entry.binding.id and "-" in entry.binding.id:
                assert entry.binding.tooltip in text, entry.binding.id
        await pilot.press("escape")
        assert shown_screen(app) is LiveScreen


async def test_wrapped_help_keeps_its_column() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=(80, 90)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        lines = [strip.text.strip("│ ╭╮╰╯─\n") for strip in app.screen._compositor.render_strips()]
        rows = [strip.text for strip in app.screen._compositor.render_strips()]
        first = next(index for index, line in enumerate(lines) if line.startswith("3 "))
        column = rows[first].index("All findings")
        assert rows[first + 1][column - 1] == " "
        assert rows[first + 1][column] != " "
        assert not rows[first + 1][:column].strip("│ ")
        assert "Ctrl+P" in shown_text(app)
        assert "^" not in shown_text(app).replace("▲", "")
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert "vramscope: keys" in shown_text(app)
        assert "Esc closes, up and down scroll" in shown_text(app)


async def test_one_leads_back_to_the_live_screen() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("question_mark", "1")
        assert shown_screen(app) is LiveScreen


async def test_pausing_freezes_the_figures_while_history_goes_on() -> None:
    feed = FakeFeed(make_snapshot(1))
    app = make_app(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("space")
        feed.hand_over(make_snapshot(1, seq=61))
        await pilot.pause()
        assert title(app).endswith("paused since 12:00:01")
        assert app.live.snapshot.sample is not None
        assert app.live.snapshot.sample.seq == 1
        assert feed.history.span_s("GPU-0000") >= 60.0
        await pilot.press("space")
        await pilot.pause()
        assert title(app).endswith("12:01:01")


@pytest.mark.parametrize("size", [(80, 24), (120, 32), (200, 50)])
@pytest.mark.parametrize("keys", [["tab"], ["tab", "down"], ["slash"], ["2", "p"], ["2", "slash"]])
async def test_going_to_the_list_moves_nothing_above_it(size: tuple[int, int], keys: list[str]) -> None:
    app = make_app(FakeFeed(make_snapshot(8)))
    async with app.run_test(size=size) as pilot:
        await pilot.press(*keys[:-1])
        await pilot.pause()
        top = app.node_screen.processes.region.y
        before = [strip.text for strip in app.screen._compositor.render_strips()][:top]
        await pilot.press(keys[-1])
        await pilot.pause()
        after = [strip.text for strip in app.screen._compositor.render_strips()][:top]
        assert top > 10
        assert after == before


async def test_tab_moves_between_devices_and_processes() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=SIZE) as pilot:
        focused = []
        for key in ("tab", "shift+tab", "tab"):
            await pilot.press(key)
            focused.append(app.focused and app.focused.id)
        assert focused == ["processes", "devices", "processes"]


async def test_tab_says_why_there_are_no_processes_in_a_sliver() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.press("tab")
        assert app.focused is app.live.devices
        assert notices(app) == ["No room for the process list: make the window taller."]


async def test_the_sort_keys() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=SIZE) as pilot:
        table = app.live.processes
        await pilot.press("less_than_sign")
        assert table.order == SortOrder("user")
        await pilot.press("greater_than_sign", "I")
        assert table.order == SortOrder("memory", True)
        memory = [row.process.used_bytes or 0 for row in table.rows]
        assert memory == sorted(memory)
        await pilot.press("s")
        assert isinstance(app.screen, SortScreen)
        await pilot.press("down", "enter")
        assert table.order == SortOrder("pid")
        await pilot.press("s", "escape")
        assert table.order == SortOrder("pid")
        await pilot.press("s", "enter")
        assert table.order == SortOrder("pid", True)


async def test_every_column_that_keys_reach_is_in_the_menu_and_can_be_saved() -> None:
    saved: list[object] = []
    app = make_app(
        FakeFeed(make_snapshot()),
        save_settings=lambda values: saved.append(values["sort"]) or Path("vramscope.toml"),  # type: ignore[func-returns-value]
    )
    async with app.run_test(size=SIZE) as pilot:
        app.live.processes.chosen_columns = COLUMN_NAMES
        await pilot.resize_terminal(200, 40)
        await pilot.press(*["less_than_sign"] * len(COLUMNS))
        for column in COLUMNS:
            assert app.live.processes.order.column == column.name
            await pilot.press("s")
            assert isinstance(app.screen, SortScreen)
            await pilot.press("escape", "f12", "greater_than_sign")
    assert set(saved) == set(get_args(SortColumn))


async def test_filtering_while_typing_and_clearing_with_escape() -> None:
    processes = (make_process(11, 100, "user1", "train.py"), make_process(12, 90, "user2", "eval.py"))
    device = msgspec.structs.replace(make_device(0), processes=processes)
    app = make_app(FakeFeed(make_snapshot(sample=make_sample((device,)))))
    async with app.run_test(size=SIZE) as pilot:
        table = app.live.processes
        await pilot.press("slash", *"user2")
        assert [row.process.pid for row in table.rows] == [12]
        await pilot.press("enter")
        assert app.focused is table
        assert "1 of 2 match" in table.render_line(0).text
        await pilot.press("escape")
        assert [row.process.pid for row in table.rows] == [11, 12]
        await pilot.press("slash", *"zzz")
        assert "no process matches" in table.render_line(1).text
        await pilot.press("escape")
        assert len(table.rows) == 2


async def test_typing_a_filter_presses_no_other_key() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("slash", *"q 1KsET?", "slash")
        assert app.screen is app.live
        assert app.is_running
        assert app.live.processes.filter_text == "q 1KsET?/"


async def test_themes_step_and_stay_legible() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=SIZE) as pilot:
        seen = [app.theme_choice]
        for _ in range(4):
            await pilot.press("T")
            seen.append(app.theme_choice)
        assert seen == ["dark", "light", "high-contrast", "mono", "dark"]


async def test_the_settings_decide_theme_and_sorting() -> None:
    settings = Settings(theme="light", sort="pid", sort_reversed=True)
    app = make_app(FakeFeed(make_snapshot()), settings=settings)
    async with app.run_test(size=SIZE):
        assert app.theme_choice == "light"
        pids = [row.process.pid for row in app.live.processes.rows]
        assert pids == sorted(pids)


async def test_saving_settings_names_the_file() -> None:
    saved: dict[str, object] = {}

    def save(values: Mapping[str, object]) -> Path:
        saved.update(values)
        return Path("/home/user1/.config/vramscope.toml")

    app = make_app(FakeFeed(make_snapshot()), save_settings=save)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("T", "less_than_sign", "I", "f12")
        look = {"theme": "light", "sort": "user", "sort_reversed": True}
        assert saved == {**look, "columns": None, "tree": False}
        assert notices(app)[-1] == "Settings saved to /home/user1/.config/vramscope.toml"


async def test_settings_that_cannot_be_saved_are_told() -> None:
    def save(values: Mapping[str, object]) -> Path:
        raise UsageError("the disk is full")

    app = make_app(FakeFeed(make_snapshot()), save_settings=save)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f12")
        assert notices(app) == ["Settings not saved: the disk is full"]


async def test_exporting_writes_the_picture_and_its_figures(tmp_path: Path) -> None:
    app = make_app(FakeFeed(make_snapshot(2)), export_folder=tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("E", "E")
        svg, svg_again = sorted(tmp_path.glob("*.svg"), key=lambda path: len(path.name))
        assert svg.name == "vramscope-20251009-120000.svg"
        assert svg_again.name == "vramscope-20251009-120000-2.svg"
        assert "node03" in svg.read_text()
        status = json.loads(svg.with_suffix(".json").read_text())
        assert status["schema"] == STATUS_SCHEMA
        assert len(status["devices"]) == 2
        assert svg.name in notices(app)[0]


async def test_an_export_that_fails_is_told(tmp_path: Path) -> None:
    app = make_app(FakeFeed(make_snapshot(2)), export_folder=tmp_path / "missing")
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("E")
        assert notices(app)[0].startswith("Not exported")
