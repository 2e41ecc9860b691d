"""The process table: moving, clicking, and a selection that stays with its process."""

from pathlib import Path

import msgspec
import pytest

from tests.tui.canned import (
    NOON_S,
    FakeFeed,
    make_app,
    make_device,
    make_process,
    make_sample,
    make_snapshot,
)
from vramscope.engine.settings import Settings
from vramscope.engine.units import GIB
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.app import VramscopeApp
from vramscope.tui.live.process_rows import SortOrder
from vramscope.tui.screens.dialogs import MarkedList


def snapshot_of(used_by_pid: dict[int, int], seq: int = 1) -> Snapshot:
    processes = tuple(make_process(pid, used) for pid, used in used_by_pid.items())
    device = msgspec.structs.replace(make_device(0), processes=processes)
    return make_snapshot(seq=seq, sample=make_sample((device,), seq))


def shown_pids(app: VramscopeApp) -> list[int]:
    return [row.process.pid for row in app.live.processes.rows]


def selected_pid(app: VramscopeApp) -> int | None:
    row = app.live.processes.selected_row
    return row.process.pid if row else None


async def test_the_selection_stays_with_its_process_when_rows_move() -> None:
    feed = FakeFeed(snapshot_of({1: 300, 2: 200, 3: 100}))
    app = make_app(feed)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("tab", "down")
        assert selected_pid(app) == 2
        feed.hand_over(snapshot_of({1: 300, 2: 50, 3: 100, 4: 700}, 2))
        await pilot.pause()
        assert shown_pids(app) == [4, 1, 3, 2]
        assert selected_pid(app) == 2
        feed.hand_over(snapshot_of({1: 300, 3: 100}, 3))
        await pilot.pause()
        assert selected_pid(app) == 3


async def test_the_selection_survives_a_moment_without_processes() -> None:
    feed = FakeFeed(snapshot_of({1: 300}))
    app = make_app(feed)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("tab")
        feed.hand_over(snapshot_of({}, 2))
        await pilot.pause()
        assert selected_pid(app) is None
        assert "no process holds memory" in app.live.processes.render_line(1).text
        feed.hand_over(snapshot_of({7: 1, 1: 300}, 3))
        await pilot.pause()
        assert selected_pid(app) == 1


async def test_a_narrow_list_keeps_the_script_and_explains_one_that_has_gone_without_a_dash() -> None:
    folder = "/data/users/somebody/projects/language-models"
    training = make_process(1, 300, command=f"{folder}/env/bin/python -u {folder}/train.py --lr 1e-3")
    gone = msgspec.structs.replace(make_process(2, 200), command=None, location="gone")
    device = msgspec.structs.replace(make_device(0), processes=(training, gone))
    app = make_app(FakeFeed(make_snapshot(sample=make_sample((device,)))))
    async with app.run_test(size=(80, 30)) as pilot:
        await pilot.pause()
        rows = [app.live.processes.render_line(y).text.rstrip() for y in (1, 2)]
        assert rows[0].endswith("python -u …/train.py --lr 1e-3")
        assert rows[1].endswith("(exited, memory still held)")


async def test_arrows_letters_and_pages_move_the_cursor() -> None:
    app = make_app(FakeFeed(snapshot_of({pid: 1000 - pid for pid in range(100, 200)})))
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.press("tab")
        await pilot.pause()
        table = app.live.processes
        page = table.size.height - 2
        moves = [("down", 1), ("j", 2), ("k", 1), ("pagedown", 1 + page), ("end", 99), ("up", 98)]
        for key, index in [*moves, ("pageup", 98 - page), ("g", 0), ("up", 0), ("G", 99), ("home", 0)]:
            await pilot.press(key)
            assert selected_pid(app) == 100 + index, key
            top = table.scroll_offset.y
            assert top <= index < top + table.size.height - 1


async def test_sideways_keys_scroll_the_commands() -> None:
    app = make_app(FakeFeed(snapshot_of({1: 300})))
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("tab", "l")
        assert app.live.processes.render_line(1).text.rstrip().endswith("  rain.py --rank 1"[2:])
        await pilot.press("h", "left")
        assert "python train.py" in app.live.processes.render_line(1).text


async def test_a_click_selects_a_row_and_a_heading_sorts() -> None:
    app = make_app(FakeFeed(snapshot_of({1: 300, 2: 200, 3: 100})))
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.click("#processes", offset=(20, 3))
        assert selected_pid(app) == 3
        heading = app.live.processes.render_line(0).text
        await pilot.click("#processes", offset=(heading.index("PID") + 1, 0))
        assert app.live.processes.order == SortOrder("pid")
        assert shown_pids(app) == [3, 2, 1]
        await pilot.click("#processes", offset=(heading.index("PID") + 1, 0))
        assert shown_pids(app) == [1, 2, 3]
        await pilot.click("#processes", offset=(heading.index("COMMAND") + 9, 0))
        assert app.live.processes.order.column == "command"


@pytest.mark.parametrize(("name", "title"), [("NVIDIA H100", "SM"), ("Intel Arc B580", "BUSY")])
async def test_only_a_gpu_of_nvidia_has_an_sm_column(name: str, title: str) -> None:
    busy = msgspec.structs.replace(make_process(1, 9), sm_percent=50.0)
    device = msgspec.structs.replace(make_device(0), name=name, processes=(busy,))
    app = make_app(FakeFeed(make_snapshot(sample=make_sample((device,)))))
    async with app.run_test(size=(140, 30)) as pilot:
        heading = app.live.processes.render_line(0).text.split()
        assert [word for word in heading if word in {"SM", "BUSY"}] == [title]
        for key in ("c", "s"):  # the dialogs that choose columns and their order say the same
            await pilot.press(key)
            lines = [str(it.prompt).lower().split() for it in app.screen.query_one(MarkedList).options]
            assert [word for line in lines for word in line if word in {"sm", "busy"}] == [title.lower()]
            await pilot.press("escape")


async def test_a_driver_that_does_not_tell_is_not_an_empty_list() -> None:
    untold = msgspec.structs.replace(make_device(0), processes=None)
    told = make_device(1)
    feed = FakeFeed(make_snapshot(sample=make_sample((untold,))))
    app = make_app(feed)
    async with app.run_test(size=(100, 30)) as pilot:
        table = app.live.processes
        assert table.render_line(0).text.rstrip().endswith("— processes")
        assert "process list not available: the driver does not report" in table.render_line(1).text
        refused = msgspec.structs.replace(untold, state="stale", reason="the driver has not answered")
        feed.hand_over(make_snapshot(seq=2, sample=make_sample((refused,), 2)))
        await pilot.pause()
        assert "process list not available: the driver has not answered" in table.render_line(1).text
        feed.hand_over(make_snapshot(seq=3, sample=make_sample((untold, told), 3)))
        await pilot.pause()
        assert table.render_line(0).text.rstrip().endswith("1 process, unknown on GPU 0")
        feed.hand_over(make_snapshot(seq=4, sample=make_sample((make_device(0, processes=0), told), 4)))
        await pilot.pause()
        assert table.render_line(0).text.rstrip().endswith(" 1 process")


async def test_a_command_is_cut_with_an_ellipsis_beside_the_scroll_bar() -> None:
    command = "python train.py " + "--option " * 30
    processes = tuple(make_process(pid, 9, command=command) for pid in range(1, 60))
    device = msgspec.structs.replace(make_device(0), processes=processes)
    app = make_app(FakeFeed(make_snapshot(sample=make_sample((device,)))))
    async with app.run_test(size=(100, 30)):
        table = app.live.processes
        line = [strip.text for strip in app.screen._compositor.render_strips()][table.region.y + 1]
        assert table.show_vertical_scrollbar
        assert line[98] == "…"


async def test_only_rows_that_changed_are_repainted() -> None:
    feed = FakeFeed(snapshot_of({1: 300, 2: 200, 3: 100}))
    app = make_app(feed)
    async with app.run_test(size=(100, 30)) as pilot:
        table = app.live.processes
        await pilot.pause()
        painted: list[int] = []
        draw = table.render_line

        def note(y: int):  # type: ignore[no-untyped-def]  # noqa: ANN202 - as render_line
            painted.append(y)
            return draw(y)

        table.render_line = note  # type: ignore[method-assign]
        feed.hand_over(snapshot_of({1: 300, 2: 201, 3: 100}, 2))
        await pilot.pause()
        assert set(painted) == {2}
        painted.clear()
        feed.hand_over(snapshot_of({1: 300, 2: 201, 3: 100}, 3))
        await pilot.pause()
        assert painted == []


async def test_a_command_that_is_too_long_leaves_out_the_folder_of_its_program_until_it_is_scrolled() -> None:
    long = f"/opt/environments/{'deep/' * 8}bin/python train.py --rank 1"
    process = msgspec.structs.replace(make_process(1, 300), command=long)
    device = msgspec.structs.replace(make_device(0), processes=(process,))
    app = make_app(FakeFeed(make_snapshot(sample=make_sample((device,)))))
    async with app.run_test(size=(100, 30)) as pilot:
        assert app.live.processes.render_line(1).text.rstrip().endswith("  python train.py --rank 1")
        await pilot.press("tab", "l")
        assert long[8:30] in app.live.processes.render_line(1).text
        await pilot.resize_terminal(160, 30)
        await pilot.press("h")
        assert long in app.live.processes.render_line(1).text


def titles(app: VramscopeApp) -> list[str]:
    return [column.title for column in app.live.processes.columns]


async def test_c_chooses_columns_that_f12_saves_and_the_next_start_has() -> None:
    saved: dict[str, object] = {}
    app = make_app(
        FakeFeed(snapshot_of({1: 300})),
        save_settings=lambda values: saved.update(values) or Path("vramscope.toml"),
    )
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.pause()
        assert titles(app) == ["GPU", "PID", "USER", "MEMORY", "OF GPU", "COMMAND"]
        await pilot.press("c", "enter", "down", "down", "space", "escape", "f12")
        await pilot.pause()
        assert titles(app) == ["PID", "MEMORY", "OF GPU", "COMMAND"]
        assert app.live.processes.render_line(0).text.split()[:2] == ["PID", "▼MEMORY"]
        assert "— " not in app.live.processes.render_line(1).text
    assert saved["columns"] == ["pid", "memory", "share", "command"]
    settings = Settings(columns=("pid", "sm"), tree=True)
    again = make_app(FakeFeed(snapshot_of({1: 300})), settings=settings)
    async with again.run_test(size=(120, 30)) as pilot:
        await pilot.pause()
        assert titles(again) == ["PID", "SM"]
        assert again.live.processes.render_line(1).text.split() == ["1", "—"]
        assert again.live.processes.is_tree
        await pilot.press("c", "a")
        await pilot.pause()
        assert titles(again) == ["GPU", "PID", "USER", "MEMORY", "OF GPU", "COMMAND"]


async def test_the_last_column_stays() -> None:
    app = make_app(FakeFeed(snapshot_of({1: 300})), settings=Settings(columns=("pid",)))
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("c", "down", "enter", "escape")
        assert titles(app) == ["PID"]


async def test_columns_that_nobody_has_a_value_for_wait_until_somebody_has() -> None:
    feed = FakeFeed(snapshot_of({1: 300}))
    app = make_app(feed)
    async with app.run_test(size=(160, 30)) as pilot:
        await pilot.pause()
        assert "SM" not in titles(app)
        process = msgspec.structs.replace(make_process(1, 300), sm_percent=88.0)
        device = msgspec.structs.replace(make_device(0), processes=(process,))
        feed.hand_over(make_snapshot(seq=2, sample=make_sample((device,), 2)))
        await pilot.pause()
        assert "SM" in titles(app)
        assert "88 %" in app.live.processes.render_line(1).text
        feed.hand_over(snapshot_of({1: 300}, 3))
        await pilot.pause()
        assert "SM" in titles(app), "columns do not come and go with their values"


async def test_sort_keys_go_through_the_columns_that_are_shown() -> None:
    app = make_app(FakeFeed(snapshot_of({1: 300})), settings=Settings(columns=("pid", "memory", "time")))
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("greater_than_sign")
        assert app.live.processes.order == SortOrder("time")
        await pilot.press("less_than_sign", "less_than_sign")
        assert app.live.processes.order == SortOrder("pid")


async def test_rows_that_stay_are_of_the_newest_sample_and_count_their_minutes() -> None:
    processes = tuple(
        msgspec.structs.replace(make_process(pid, used), started_s=NOON_S - 90.0)
        for pid, used in ((1, 100), (2, 300))
    )

    def at(seq: int, used_gib: float) -> Snapshot:
        device = msgspec.structs.replace(make_device(0, used_gib), processes=processes)
        return make_snapshot(seq=seq, sample=make_sample((device,), seq))

    app = make_app(feed := FakeFeed(at(1, 40.0)))
    async with app.run_test(size=(160, 30)) as pilot:
        await pilot.pause()
        table = app.live.processes
        feed.hand_over(at(2, 50.0))
        await pilot.pause()
        assert shown_pids(app) == [2, 1]
        assert {row.device.memory.used_bytes for row in table.rows} == {50 * GIB}
        assert [row.runs_s for row in table.rows] == [92.0, 92.0]
        assert "  1 m  " in table.render_line(1).text
        feed.hand_over(at(40, 50.0))
        await pilot.pause()
        assert "  2 m  " in table.render_line(1).text
