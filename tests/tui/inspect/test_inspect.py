"""The inspect screen: what it shows of snapshots and flight records, its keys, and reading meanwhile."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from vramscope.engine.errors import InputFileError
from vramscope.tui.inspect.inspected import Inspected, read_inspected
from vramscope.tui.inspect.screen import InspectScreen, view_file
from vramscope.tui.screens.dialogs import TextScreen
from vramscope.tui.screens.terminal_app import TerminalApp
from vramscope.tui.terminal.abilities import TerminalAbilities
from vramscope.tui.widgets.one_line import OneLine

from ...engine.files import flight_records
from ...engine.files.snapshots import small_snapshot
from ...engine.files.snapshots import snapshot as snapshot_of
from ..file_apps import first_screen, make_file_app, refusal_of
from ..inspect_files import advised_snapshot, bare_segments, rich_snapshot, save
from ..looks import notices

SIZES = [(80, 24), (120, 32), (200, 50)]


@pytest.fixture
def rich_file(tmp_path: Path) -> Path:
    return save(tmp_path, rich_snapshot())


@pytest.fixture
def flight_file(tmp_path: Path) -> Path:
    return flight_records.write_record(tmp_path, flight_records.record())


def make_inspect_app(
    path: Path,
    *,
    abilities: TerminalAbilities | None = None,
    read: Callable[[], Inspected] | None = None,
) -> TerminalApp:
    return make_file_app(view_file(path, read or (lambda: read_inspected(path))), path.parent, abilities)


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    for _ in range(2400):
        await pilot.pause(0.025)
        if condition():
            return
    raise AssertionError("waited in vain")


@asynccontextmanager
async def opened(app: TerminalApp, size: tuple[int, int] = (120, 32)) -> AsyncIterator[Pilot[None]]:
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: first_screen(app, InspectScreen).is_advised)
        await pilot.pause()
        yield pilot


def shown(app: TerminalApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


@pytest.mark.parametrize("size", SIZES)
async def test_a_snapshot_shows_what_failed_what_was_live_and_the_map(
    rich_file: Path, size: tuple[int, int]
) -> None:
    async with opened(app := make_inspect_app(rich_file), size):
        text = shown(app)
        assert "a request of 512 MiB failed" in text
        assert "reserved 1,350 MiB = █ live 1,116 MiB + ▓ stranded 234 MiB" in text
        assert "60 s ─" in text
        assert "out of memory✖" in text
        assert "segments 24" in text
        assert "388 MiB   34.8 %       53  block  /job/model.py:40" in text
        assert len({len(line) for line in text.splitlines()}) == 1, "every row fills the screen"


@pytest.mark.parametrize("size", SIZES)
async def test_a_flight_record_shows_the_verdict_the_gap_and_the_steps(
    flight_file: Path, size: tuple[int, int]
) -> None:
    async with opened(app := make_inspect_app(flight_file), size):
        text = shown(app)
        assert "✖ rank 1: a request of 2.0 GiB failed on a device of 24.0 GiB" in text
        assert "used 23.5 = █ allocated 19.0 + ▓ stranded 2.0 + · cached 1.0" in text
        assert text.lstrip().startswith("simulated device  vramscope inspect")
        assert "step 20" in text or "step 10" in text
        assert "segments 1 of 8" in text
        assert "no stack was recorded" in text
        assert "2.0 GiB requested at block (/job/model.py:40)" in text


@pytest.mark.parametrize("size", [(20, 10), (40, 10), (80, 24)])
async def test_a_simulated_device_is_told_first_at_any_width(tmp_path: Path, size: tuple[int, int]) -> None:
    settings = {"vramscope_simulated": {"total_bytes": 24 << 30, "name": "Modelled"}}
    snapshot = save(
        tmp_path, snapshot_of([], allocator_settings=settings), "a_snapshot_with_a_long_name.pickle"
    )
    name = "oom-20251009T085500Z-1234567-1.json.gz"
    flight = flight_records.write_record(tmp_path, flight_records.record(), name)
    for path in (snapshot, flight):
        async with opened(app := make_inspect_app(path), size):
            assert shown(app).lstrip().startswith("simulated device")
            inspected = first_screen(app, InspectScreen).inspected
            assert inspected is not None
            assert inspected.describe(80).startswith("simulated device")


async def test_a_snapshot_of_a_real_device_is_not_called_simulated(rich_file: Path) -> None:
    async with opened(app := make_inspect_app(rich_file), (200, 50)):
        assert "simulated" not in shown(app)


async def test_what_is_free_is_cut_into_stranded_and_what_can_be_given_back(tmp_path: Path) -> None:
    async with opened(app := make_inspect_app(save(tmp_path, small_snapshot()))):
        parts = "█ live 18 MiB + ▓ stranded 2 MiB + · can be given back 20 MiB"
        assert f"reserved 40 MiB = {parts}" in shown(app)


@pytest.mark.parametrize("size", [(44, 24), (60, 24), *SIZES, (120, 36)])
async def test_the_legend_of_the_map_is_whole_at_the_end_and_at_a_moment(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    app = make_inspect_app(save(tmp_path, advised_snapshot()))
    async with opened(app, size) as pilot:
        for key in ("escape", "p"):
            await pilot.press(key)
            legend = next(line for line in shown(app).splitlines() if "▒ little" in line)
            assert "█ full" in legend
            assert "░ stranded" in legend
            assert legend.rstrip().endswith("· free")
            assert size[0] < 80 or ("segments" in legend and "a cell" in legend)


async def test_enter_shows_the_whole_stack_and_escape_goes_back(rich_file: Path) -> None:
    async with opened(app := make_inspect_app(rich_file)) as pilot:
        await pilot.press("j", "j", "enter")
        await pilot.pause()
        text = shown(app)
        assert "352 MiB in 43 blocks, 31.5 % of what is live" in text
        assert "> forward  /job/model.py:66" in text
        assert "train  /job/train.py:47" in text
        await pilot.press("escape")
        assert app.screen is first_screen(app, InspectScreen)


async def test_the_cursor_stays_in_the_list(rich_file: Path) -> None:
    async with opened(app := make_inspect_app(rich_file)) as pilot:
        screen = first_screen(app, InspectScreen)
        assert screen.device is not None
        groups = screen.device.stacks
        for keys, place in ((["up"], 0), (["G"], 2), (["pagedown"], 2), (["g"], 0), (["down"], 1)):
            await pilot.press(*keys)
            assert first_screen(app, InspectScreen).stacks.current == groups[place]


async def test_another_device_is_chosen_from_a_list(rich_file: Path) -> None:
    async with opened(app := make_inspect_app(rich_file)) as pilot:
        assert "device 0, 1 of 2" in shown(app)
        await pilot.press("d")
        await pilot.pause()
        assert "device 1  524 MiB reserved" in shown(app)
        await pilot.press("j", "enter")
        await pilot.pause()
        text = shown(app)
        assert "device 1, 2 of 2" in text
        assert "reserved 524 MiB" in text
        assert "✖" not in text, "nothing failed on this one"
        assert "settings " in text


async def test_the_report_and_what_failed_can_be_read_in_full(rich_file: Path) -> None:
    async with opened(app := make_inspect_app(rich_file)) as pilot:
        await pilot.press("i")
        await pilot.pause()
        assert "live blocks by stack" in shown(app)
        await pilot.press("pagedown", "escape", "o")
        await pilot.pause()
        text = shown(app)
        assert "live at that moment, by stack" in text
        assert "evaluate  /job/train.py:68" in text


async def test_in_80_columns_report_failures_and_stack_are_as_wide_as_their_dialog(rich_file: Path) -> None:
    async with opened(app := make_inspect_app(rich_file), (80, 60)) as pilot:
        screen = first_screen(app, InspectScreen)
        assert screen.inspected is not None
        assert screen.device is not None
        for key, text in (("i", screen.inspected.describe(74)), ("o", screen.device.describe_failures(74))):
            await pilot.press(key)
            await pilot.pause()
            for line in text.splitlines()[:30]:
                assert f"│ {line}" in shown(app)
            await pilot.press("escape")


async def test_a_file_of_one_device_says_so_and_hides_the_key(tmp_path: Path) -> None:
    path = save(tmp_path, bare_segments())
    async with opened(app := make_inspect_app(path)) as pilot:
        text = shown(app)
        assert "no stack was recorded" in text
        assert " d device" not in text
        assert "o out of memory" not in text
        await pilot.press("d")
        assert notices(app) == ["The file has only one device."]


async def test_an_empty_snapshot_says_that_nothing_was_allocated(tmp_path: Path) -> None:
    path = save(tmp_path, [])
    async with opened(app := make_inspect_app(path)) as pilot:
        assert "nothing was allocated on any device" in shown(app)
        await pilot.press("enter", "o", "d", "i")
        await pilot.pause()
        assert isinstance(app.screen, TextScreen)


async def test_while_a_large_file_is_read_the_screen_says_so_and_q_leaves(rich_file: Path) -> None:
    held = threading.Event()

    def read() -> Inspected:
        held.wait(60)
        return read_inspected(rich_file)

    app = make_inspect_app(rich_file, read=read)
    try:
        async with app.run_test(size=(80, 24)) as pilot:
            await until(
                pilot,
                lambda: (
                    "reading snapshot.pickle"
                    in first_screen(app, InspectScreen).query_one("#verdict", OneLine).text
                ),
            )
            await pilot.press("i", "o", "E", "enter")
            assert app.screen is first_screen(app, InspectScreen), "there is nothing to open yet"
            await pilot.press("q")
            await until(pilot, lambda: not app.is_running)
    finally:
        held.set()


async def test_what_is_wrong_with_the_file_ends_the_screen_and_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "half.pickle"
    path.write_bytes(b"\x80\x04half")
    app = make_inspect_app(path)
    async with app.run_test() as pilot:
        await until(pilot, lambda: not app.is_running)
    assert isinstance(refusal_of(app), InputFileError)


async def test_picture_and_report_are_exported(rich_file: Path) -> None:
    async with opened(make_inspect_app(rich_file)) as pilot:
        await pilot.press("E")
        await pilot.pause()
    (picture,) = rich_file.parent.glob("vramscope-*.svg")
    (report,) = rich_file.parent.glob("vramscope-*.txt")
    assert "live&#160;" in picture.read_text()
    assert "live blocks by stack" in report.read_text()


async def test_ascii_means_seven_bits(rich_file: Path) -> None:
    poor = TerminalAbilities(is_ascii=True, color_depth="16")
    async with opened(app := make_inspect_app(rich_file, abilities=poor)) as pilot:
        assert shown(app).isascii()
        await pilot.press("question_mark")
        await pilot.pause()


@pytest.mark.parametrize("size", [(1, 1), (10, 3), (40, 10), (20, 60), (300, 8)])
async def test_no_size_breaks_the_screen(rich_file: Path, flight_file: Path, size: tuple[int, int]) -> None:
    for path in (rich_file, flight_file):
        async with opened(app := make_inspect_app(path), size) as pilot:
            await pilot.press("down", "enter", "escape", "i", "escape")
            await pilot.pause()
            assert app.is_running


async def test_the_help_names_every_key(rich_file: Path) -> None:
    async with opened(app := make_inspect_app(rich_file)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        text = shown(app)
        for sentence in (
            "Show the whole stack.",
            "Choose the device to show.",
            "Show the requests that failed.",
        ):
            assert sentence in text


async def test_what_other_settings_would_save_is_shown_once_it_is_there(tmp_path: Path) -> None:
    path, held = save(tmp_path, advised_snapshot()), threading.Event()

    def read() -> Inspected:
        found = read_inspected(path)
        advise = found.advise
        assert advise is not None
        return replace(found, advise=lambda place: advise(place) if held.wait(60) else pytest.fail("late"))

    app = make_inspect_app(path, read=read)
    try:
        async with app.run_test(size=(120, 32)) as pilot:
            await until(pilot, lambda: first_screen(app, InspectScreen).inspected is not None)
            await pilot.pause()
            assert "other allocator settings, simulated: computing…" in shown(app)
            await pilot.press("s")
            assert "The screen shows the result when it is ready." in shown(app)
            await pilot.press("escape", "down", "up")
            assert "the trace under other" not in first_screen(app, InspectScreen).report
            held.set()
            await until(pilot, lambda: first_screen(app, InspectScreen).is_advised)
            await pilot.pause()
            text = " ".join(shown(app).split())
            best = (
                "simulated: with PYTORCH_ALLOC_CONF=expandable_segments:True this trace would run in 1.1 GiB"
            )
            assert f"{best}, 36 MiB less (-3 %)" in text
            assert "computing" not in text
            assert best.replace(" ", "") in "".join(first_screen(app, InspectScreen).report.split())
            await pilot.press("s")
            await pilot.pause()
            assert "(recorded: 1.4 GiB)" in shown(app)
    finally:
        held.set()


async def test_a_given_capacity_is_what_settings_are_compared_with(tmp_path: Path) -> None:
    path = save(tmp_path, advised_snapshot())
    app = make_inspect_app(path, read=lambda: read_inspected(path, capacity_bytes=1126 << 20))
    async with opened(app, (120, 40)):
        text = " ".join(shown(app).split())
        assert "with 1.1 GiB for the allocator (as given) and its own settings it does not run" in text
        assert "with 1.1 GiB cache would be given back" in text


async def test_a_flight_record_and_a_file_without_a_trace_say_nothing_of_other_settings(
    flight_file: Path, tmp_path: Path
) -> None:
    for path, keys in ((flight_file, False), (save(tmp_path, bare_segments()), True)):
        async with opened(app := make_inspect_app(path)):
            assert ("s settings" in shown(app)) is keys
            assert "simulated:" not in shown(app).split("step", 1)[0]
            assert "the trace under other" not in first_screen(app, InspectScreen).report
