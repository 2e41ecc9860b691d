"""Notices take one line that is no data, whatever screen is open; none is lost, and the line comes back."""

import asyncio
from pathlib import Path

import pytest
from textual.pilot import Pilot

from vramscope.tui.inspect.inspected import read_inspected
from vramscope.tui.inspect.screen import view_file
from vramscope.tui.screens.notices import Notice, NoticeQueue, split_notice
from vramscope.tui.screens.terminal_app import TerminalApp

from ..canned import FakeFeed, make_app, make_finding, make_snapshot
from ..file_apps import make_file_app
from ..inspect_files import bare_segments, save

TEXT = "Settings saved to /home/user1/.config/vramscope.toml"


def rows(app: TerminalApp) -> list[str]:
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


async def differing(app: TerminalApp, pilot: Pilot[None], text: str = TEXT) -> list[tuple[int, str]]:
    """Return the rows that a notice changes."""
    before = rows(app)
    app.notify(text, timeout=60)
    await pilot.pause()
    return [(y, row) for y, (row, old) in enumerate(zip(rows(app), before, strict=True)) if row != old]


def test_the_newest_is_shown_and_earlier_ones_come_after_it() -> None:
    queue = NoticeQueue()
    for text in ("first", "second", "third"):
        queue.add(Notice(text, timeout_s=6.0))
    seen = []
    while queue.shown is not None:
        seen.append((queue.shown.text, queue.earlier))
        queue.step()
    assert seen == [("third", 2), ("second", 1), ("first", 0)]


def test_a_notice_replaces_what_it_repeats_and_what_it_overtakes() -> None:
    queue = NoticeQueue()
    for theme in ("light", "mono"):
        queue.add(Notice(f"Theme: {theme}", subject="theme"))
    queue.add(Notice("No device to show."))
    queue.add(Notice("No device to show."))
    assert queue.texts == ["Theme: mono", "No device to show."]


@pytest.mark.parametrize(
    "keys",
    [[], ["2"], ["3"], ["3", "enter"], ["tab", "enter"]],
    ids=["live", "device", "alerts", "alert", "process"],
)
@pytest.mark.parametrize("size", [(40, 10), (80, 24), (120, 32), (200, 50)])
async def test_a_notice_takes_one_line_that_is_no_data(size: tuple[int, int], keys: list[str]) -> None:
    app = make_app(FakeFeed(make_snapshot(8, findings=(make_finding(3),))))
    async with app.run_test(size=size) as pilot:
        await pilot.press(*keys)
        app.clear_notifications()
        await pilot.pause()
        kept = rows(app)
        ((y, row),) = await differing(app, pilot)
        assert row.strip().removeprefix("▌ ").startswith(TEXT[: min(len(TEXT), size[0] // 2)])
        if not keys and size[1] > 10:
            assert kept[y].startswith(" Alerts")
        if size[1] > 10:
            assert "q quit" in rows(app)[-1], "keys can be read meanwhile"
        app.clear_notifications()
        await pilot.pause()
        assert rows(app) == kept


async def test_screens_of_files_show_it_on_their_line_of_keys(tmp_path: Path) -> None:
    path = save(tmp_path, bare_segments())
    app = make_file_app(view_file(path, lambda: read_inspected(path)))
    async with app.run_test(size=(120, 32)) as pilot:
        async with asyncio.timeout(60):
            while "q quit" not in rows(app)[-1] or "MiB reserved are live" not in "".join(rows(app)):
                await pilot.pause()
        assert await differing(app, pilot) == [(31, f" ▌ {TEXT}")]


async def test_over_a_dialog_it_is_on_the_border_and_then_on_the_line_below() -> None:
    app = make_app(FakeFeed(make_snapshot(8)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        ((y, row),) = await differing(app, pilot)
        assert y == 23
        assert TEXT in row
        await pilot.press("escape")
        await pilot.pause()
        assert any(row.strip().startswith(f"▌ {TEXT}") for row in rows(app))


async def test_it_follows_to_the_next_screen_and_to_another_size() -> None:
    app = make_app(FakeFeed(make_snapshot(8)))
    async with app.run_test(size=(120, 32)) as pilot:
        app.notify(TEXT, timeout=60)
        for key in ("3", "1", "2"):
            await pilot.press(key)
            await pilot.pause()
            assert sum(TEXT in row for row in rows(app)) == 1, key
        await pilot.press("1")
        await pilot.resize_terminal(60, 10)
        await pilot.pause()
        assert sum(TEXT in row for row in rows(app)) == 1


async def test_several_wait_and_their_number_is_said_and_a_long_one_comes_in_parts() -> None:
    app = make_app(FakeFeed(make_snapshot(8)))
    long = "Not exported: " + " ".join(f"/a/folder/of/number/{number}" for number in range(12))
    async with app.run_test(size=(80, 24)) as pilot:
        app.notify(TEXT, timeout=60)
        app.notify(long, timeout=60)
        shown: list[str] = []
        for _ in range(20):
            await pilot.pause()
            shown.append(next(row for row in rows(app) if row.strip().startswith("▌")))
            if TEXT in shown[-1]:
                break
            app.notices._step()
        assert all("1 earlier" in row for row in shown[:-1])
        assert "1/" in shown[0]
        assert "earlier" not in shown[-1]
        told = " ".join(shown)
        assert all(f"/a/folder/of/number/{number}" in told for number in range(12))


def test_each_part_of_a_long_notice_says_what_it_is_about_and_that_it_goes_on() -> None:
    text = (
        "Not attached to process 4711: gdb is not installed; install it, or start the job with vramscope run"
    )
    parts = split_notice(text, 74)
    assert parts == [
        "Not attached to process 4711: gdb is not installed; install it, or …",
        "Not attached to process 4711: … start the job with vramscope run",
    ]
    assert max(map(len, parts)) <= 74 - len("  1/2")
    both = split_notice("medium: GPU 7 nearly full: 79.0 of 80.0 GiB used and 389 MiB free at its peak", 70)
    assert both[1] == "medium: GPU 7 nearly full: … free at its peak"
    assert split_notice("Settings saved.", 72) == ["Settings saved."]
    narrow = split_notice(text, 34)
    assert narrow[0] == "Not attached to process …"
    assert all(part.startswith("… ") and len(part) <= 34 for part in narrow[1:])


async def test_a_notice_goes_by_itself_and_the_alerts_come_back() -> None:
    app = make_app(FakeFeed(make_snapshot(8, findings=(make_finding(3),))))
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.pause()
        before = rows(app)
        app.notify(TEXT, timeout=0.01)
        assert app.notices.texts == [TEXT]
        async with asyncio.timeout(60):
            while app.notices.texts:
                await pilot.pause(0.01)
        await pilot.pause()
        assert rows(app) == before


async def test_what_the_verdict_says_never_takes_its_line() -> None:
    app = make_app(FakeFeed(make_snapshot(1)))
    async with app.run_test(size=(40, 2)) as pilot:
        await pilot.pause()
        before = rows(app)
        app.notices.add(Notice("✖ 2 open alerts", "error", 60, is_in_verdict=True))
        await pilot.pause()
        assert rows(app) == before
        app.notify("No device to show.", timeout=60)
        await pilot.pause()
        assert "No device to show." in rows(app)[0]
