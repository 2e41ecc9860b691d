"""The moment on the inspect screen: it moves along the history, lists what lived, and compares two."""

from pathlib import Path

import pytest

from vramscope.analyzers.snapshot_summary.cursor import LiveChange
from vramscope.tui.frame.keys import collect_keys
from vramscope.tui.inspect.moment import StandingMoment
from vramscope.tui.inspect.screen import InspectScreen
from vramscope.tui.screens.terminal_app import TerminalApp

from ...engine.files import flight_records
from ...engine.files.snapshots import BASE, EMBED, LINEAR, MIB, Row, block, event, free, segment, snapshot
from ..file_apps import first_screen
from ..inspect_files import save
from .test_inspect import make_inspect_app, opened, shown

SECOND_US = 1_000_000


def history() -> Row:
    """Return 8 MiB that stay, and 32 MiB of another line that live from 40 s to 60 s of 100 s."""
    events = [
        event("alloc", BASE, 8 * MIB, SECOND_US, frames=EMBED),
        event("alloc", BASE + 8 * MIB, 32 * MIB, 41 * SECOND_US, frames=LINEAR),
        event("free_requested", BASE + 8 * MIB, 32 * MIB, 61 * SECOND_US, frames=LINEAR),
        event("snapshot", 0, 0, 101 * SECOND_US),
    ]
    return snapshot([segment([block(8 * MIB, frames=EMBED), free(32 * MIB)])], events)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return save(tmp_path, history())


def standing(app: TerminalApp) -> StandingMoment:
    moment = first_screen(app, InspectScreen).moment
    assert moment is not None
    return moment


def listed(app: TerminalApp) -> list[int]:
    screen = first_screen(app, InspectScreen)
    rows = screen.stacks.rows
    return [row.change_bytes or 0 if isinstance(row, LiveChange) else row.size_bytes for row in rows]


async def test_bar_and_sums_are_of_the_moment_and_the_rest_says_that_it_is_of_the_end(file: Path) -> None:
    async with opened(app := make_inspect_app(file)) as pilot:
        assert "reserved 40 MiB = █ live 8 MiB + " in shown(app)
        await pilot.press("p")
        text = shown(app)
        assert "reserved 40 MiB = █ allocated 40 MiB" in text
        assert "live 8 MiB" not in text
        assert "of the live bytes" not in text
        assert text.count("At the end: ") == 1
        assert "segments at the end 1 " in text
        await pilot.press("home")
        assert "= · no tensor 40 MiB" in shown(app)


async def test_the_peak_shows_what_lived_then_and_escape_the_end_again(file: Path) -> None:
    async with opened(app := make_inspect_app(file)) as pilot:
        assert listed(app) == [8 * MIB]
        await pilot.press("p")
        assert listed(app) == [32 * MIB, 8 * MIB]
        text = shown(app)
        assert "40.000 s, event 2 of 4 · allocated 40 MiB of 40 MiB reserved" in text
        assert "▲" in text
        await pilot.press("escape")
        assert "At the end" not in shown(app)
        assert listed(app) == [8 * MIB]
        assert first_screen(app, InspectScreen).moment is None


async def test_arrows_move_by_a_column_of_the_graph_and_always_by_an_event(file: Path) -> None:
    async with opened(app := make_inspect_app(file)) as pilot:
        await pilot.press("left")
        assert standing(app).event == 2, "a column before the end"
        for _ in range(5):
            await pilot.press("left")
        assert standing(app).event < 2
        await pilot.press("home")
        assert standing(app).event == -1
        assert listed(app) == []
        await pilot.press("left")
        assert standing(app).event == -1
        await pilot.press("right", "right", "shift+right")
        assert standing(app).event == 2
        await pilot.press("end")
        assert standing(app).event == 3


async def test_a_mark_lists_what_differs_from_it(file: Path) -> None:
    async with opened(app := make_inspect_app(file), (140, 40)) as pilot:
        await pilot.press("home", "m")
        assert "nothing differs from the mark" in shown(app)
        await pilot.press("p")
        assert listed(app) == [32 * MIB, 8 * MIB]
        text = shown(app)
        assert "+40 MiB since the mark" in text
        assert "mark at 0.000 s, event 0 of 4" in text
        assert "+32 MiB        0 B     32 MiB  block  /job/model.py:40" in text
        await pilot.press("end")
        assert listed(app) == [8 * MIB]
        await pilot.press("m")
        assert standing(app).mark is None


async def test_in_80_columns_the_change_since_the_mark_is_whole_and_marks_cut_no_word(file: Path) -> None:
    async with opened(app := make_inspect_app(file), (80, 24)) as pilot:
        assert "100 s " in shown(app)
        assert " end" in shown(app)
        await pilot.press("home", "m", "p")
        assert "+40 MiB since the mark" in shown(app)
        assert "100 s" not in shown(app), "the mark stands there"
        (facts,) = (line for line in shown(app).splitlines() if "since the mark" in line)
        assert "…" not in facts
        await pilot.resize_terminal(140, 40)
        await pilot.pause()
        assert "· mark at 0.000 s, event 0 of 4 " in shown(app)
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        await pilot.press("end")
        assert "en▲" not in shown(app)


async def test_groupings_follow_one_another(file: Path) -> None:
    async with opened(app := make_inspect_app(file)) as pilot:
        await pilot.press("p", "v")
        assert "by line, 2" in shown(app)
        await pilot.press("v")
        assert "by module, 2" in shown(app)
        assert "linear" in shown(app)
        await pilot.press("v")
        assert "by kind, 1" in shown(app)
        assert "forward pass" in shown(app)
        await pilot.press("v")
        assert "by stack, 2" in shown(app)


async def test_zooming_draws_a_part_of_the_time_around_the_moment(file: Path) -> None:
    root = history()
    root["device_traces"][0][3:3] = [event("snapshot", 0, 0, (62 + at) * SECOND_US) for at in range(30)]
    path = save(file.parent, root, "long.pickle")
    async with opened(app := make_inspect_app(path)) as pilot:
        await pilot.press("p", "plus")
        window = standing(app).window
        assert window == (16 * 1.0, 66 * 1.0)
        (axis,) = [line for line in shown(app).splitlines() if line.startswith(" 15.000 s ")]
        assert "65.000 s" in axis
        assert not axis.endswith("end")
        await pilot.press("end")
        window = standing(app).window
        assert window is not None
        assert window[1] == 101.0
        await pilot.press("minus")
        assert standing(app).window is None
        assert "100 s" in shown(app)


async def test_help_has_each_key_of_a_pair_that_the_key_line_names_together(file: Path) -> None:
    async with opened(app := make_inspect_app(file)):
        keys = {it.verb: it.keys for it in collect_keys(app.screen)["moment"]}
    assert (keys["back"], keys["on"]) == ("← h", "→ l")


async def test_a_file_without_events_has_no_moments(tmp_path: Path) -> None:
    path = flight_records.write_record(tmp_path, flight_records.record())
    async with opened(app := make_inspect_app(path)) as pilot:
        before = shown(app)
        await pilot.press("left", "p", "m", "v", "plus", "escape")
        assert first_screen(app, InspectScreen).moment is None
        assert shown(app) == before
