"""The screen of a process: its own history, and the way there and back."""

import pytest
from msgspec.structs import replace

from tests.tui.canned import NOON_S, FakeFeed, make_app, make_device, make_process, make_sample, make_snapshot
from tests.tui.device_looks import on_device
from tests.tui.looks import shown_text
from vramscope.engine.model import ProcessReading
from vramscope.engine.units import GIB
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.app import VramscopeApp
from vramscope.tui.live.dialogs import SignalScreen
from vramscope.tui.process.screen import ProcessScreen

SIZE = (120, 40)


def reading(pid: int, used_mib: int, **changes: object) -> ProcessReading:
    process = replace(
        make_process(pid, used_mib),
        kind="compute",
        started_s=NOON_S - 3600.0,
        parent_pid=99,
        threads=120,
        sm_percent=88.0,
        memory_bandwidth_percent=41.0,
        cpu_percent=250.0,
        resident_bytes=12 * GIB,
    )
    return replace(process, **changes)


def snapshot_at(seq: int, *processes: ProcessReading) -> Snapshot:
    device = replace(make_device(0), processes=processes)
    return make_snapshot(seq=seq, sample=make_sample((device, make_device(1, processes=0)), seq))


def opened(app: VramscopeApp) -> ProcessScreen:
    screen = app.screen
    assert isinstance(screen, ProcessScreen)
    return screen


async def test_enter_shows_who_it_is_and_its_last_minutes() -> None:
    feed = FakeFeed(snapshot_at(1, reading(7, 20_000)))
    app = make_app(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "enter")
        await pilot.pause()
        text = shown_text(app)
        for words in (
            "process 7 python train.py --rank 7",
            "GPU 0 NVIDIA H100 80GB HBM3",
            "type compute parent 99 threads 120 runs 1 h 00 m",
            "device memory 19.5 GiB, 25 % of the device",
            "SM 88 %, memory bandwidth 41 %",
            "CPU 250 % of one core",
            "host memory 12.0 GiB",
        ):
            assert words in text
        for seq in range(2, 99, 8):
            feed.hand_over(snapshot_at(seq, reading(7, 20_000 + 100 * seq, sm_percent=float(seq))))
            await pilot.pause()
        text = shown_text(app)
        assert "SM 98 %, memory bandwidth 41 % seen 10 % to 98 %" in text
        assert "seen 19.5 GiB to 29.1 GiB" in text
        assert "-99 s ───" in text


async def test_a_short_history_fills_the_graph_over_a_time_axis() -> None:
    feed = FakeFeed(snapshot_at(1, reading(7, 20_000)))
    app = make_app(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "enter")
        for seq in range(3, 41, 2):
            feed.hand_over(snapshot_at(seq, reading(7, 20_000)))
            await pilot.pause()
        lines = [strip.text for strip in app.screen._compositor.render_strips()]
    axis = next(line for line in lines if line.rstrip().endswith(" now"))
    assert axis.startswith(" -40 s ─")
    assert "┴12:00:" in axis
    top = next(number for number, line in enumerate(lines) if line.startswith(" device memory"))
    bottom = next(number for number, line in enumerate(lines) if line.startswith(" SM "))
    lowest = lines[bottom - 1]
    drawn = [at for at, cell in enumerate(lowest) if "\u2801" <= cell <= "\u28ff"]
    assert bottom - top > 2
    assert (drawn[0], drawn[-1] + 1) == (1, len(axis.rstrip()))


async def test_the_graph_rises_with_the_value() -> None:
    feed = FakeFeed(snapshot_at(1, reading(7, 1000)))
    app = make_app(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "enter")
        for seq in range(3, 60, 5):
            feed.hand_over(snapshot_at(seq, reading(7, 1000 * seq)))
            await pilot.pause()
        await pilot.pause()
        lines = [strip.text for strip in app.screen._compositor.render_strips()]
        top = next(number for number, line in enumerate(lines) if line.startswith(" device memory"))
        bottom = next(number for number, line in enumerate(lines) if line.startswith(" SM "))
        filled = [sum("\u2801" <= cell <= "\u28ff" for cell in line) for line in lines[top + 1 : bottom]]
        assert filled == sorted(filled)
        assert filled[0] < filled[-1]


async def test_what_is_not_measured_is_said_and_not_drawn_as_zero() -> None:
    bare = make_process(7, 1000)
    app = make_app(FakeFeed(snapshot_at(1, bare)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "enter")
        await pilot.pause()
        text = shown_text(app)
        for name in ("SM", "CPU", "host memory"):
            assert f"{name} — not measured" in text
        assert "type — parent — threads — runs — started —" in text


async def test_a_process_that_ended_keeps_its_history_and_another_one_of_its_number_is_not_it() -> None:
    feed = FakeFeed(snapshot_at(1, reading(7, 20_000)))
    app = make_app(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "enter")
        feed.hand_over(snapshot_at(3, reading(7, 500, started_s=NOON_S)))
        await pilot.pause()
        assert "process 7 ended" in shown_text(app)
        assert "device memory 19.5 GiB" in shown_text(app)


async def test_left_and_right_go_through_the_list_in_its_order() -> None:
    app = make_app(FakeFeed(snapshot_at(1, reading(7, 100), reading(8, 300), reading(9, 200))))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "enter")
        pids = [opened(app).row.process.pid]
        for key in ("right", "l", "right", "left"):
            await pilot.press(key)
            pids.append(opened(app).row.process.pid)
        assert pids == [8, 9, 7, 8, 7]


@pytest.mark.parametrize("key", ["escape", "1"])
async def test_back_to_the_list(key: str) -> None:
    app = make_app(FakeFeed(snapshot_at(1, reading(7, 100))))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "enter", key)
        await pilot.pause()
        assert app.screen is app.live
        assert app.process_screen is None
        await pilot.press("enter") if key == "escape" else None
        assert (app.screen is app.live) == (key == "1")


async def test_from_the_device_screen_and_back_to_it() -> None:
    app = make_app(FakeFeed(snapshot_at(1, reading(7, 100))))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("2", "p", "enter")
        opened(app)
        await pilot.press("escape")
        assert on_device(app).uuid == "GPU-0000"
        await pilot.press("enter", "3")
        await pilot.press("escape")
        assert on_device(app).uuid == "GPU-0000"


async def test_a_paused_view_stays_still_here_too() -> None:
    feed = FakeFeed(snapshot_at(1, reading(7, 20_000)))
    app = make_app(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "enter", "space")
        feed.hand_over(snapshot_at(3, reading(7, 40_000)))
        await pilot.pause()
        assert "device memory 19.5 GiB" in shown_text(app)
        await pilot.press("space")
        await pilot.pause()
        assert "device memory 39.1 GiB" in shown_text(app)


async def test_k_asks_for_a_signal_to_this_process() -> None:
    import os

    import psutil

    own = reading(os.getpid(), 100, started_s=psutil.Process().create_time())
    app = make_app(FakeFeed(snapshot_at(1, own)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "enter", "K")
        await pilot.pause()
        assert isinstance(app.screen, SignalScreen)
        assert f"Signal process {os.getpid()}?" in shown_text(app)
        await pilot.press("escape")
        opened(app)


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (200, 50)])
async def test_every_size_shows_who_it_is(size: tuple[int, int]) -> None:
    app = make_app(FakeFeed(snapshot_at(1, reading(7, 20_000))))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("tab", "enter")
        await pilot.resize_terminal(*size)
        await pilot.pause()
        assert "process 7" in shown_text(app)


async def test_what_is_used_now_is_never_more_than_the_most_that_was_seen() -> None:
    feed = FakeFeed(snapshot_at(1, reading(7, 600)))
    app = make_app(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "enter")
        feed.hand_over(snapshot_at(2, reading(7, 1536)))
        await pilot.pause()
        assert "device memory 1.5 GiB, 2 % of the device seen 600 MiB to 1.5 GiB" in shown_text(app)
