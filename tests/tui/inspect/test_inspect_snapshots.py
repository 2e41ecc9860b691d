"""Pictures of the inspect screen, and its text at other sizes; look at them when they change."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from vramscope.tui.inspect.inspected import Inspected, InspectedAdvice, read_inspected
from vramscope.tui.inspect.screen import InspectScreen
from vramscope.tui.screens.terminal_app import TerminalApp
from vramscope.tui.terminal.abilities import TerminalAbilities

from ...engine.files import flight_records
from ..file_apps import first_screen
from ..inspect_files import advised_snapshot, rich_snapshot, save
from .test_inspect import make_inspect_app

SnapCompare = Callable[..., bool]
CompareScreen = Callable[..., None]

LOOKS = {
    "color": TerminalAbilities(),
    "mono": TerminalAbilities(color_depth="none"),
    "ascii": TerminalAbilities(is_ascii=True, color_depth="16"),
}


def write(kind: str, folder: Path) -> Path:
    if kind == "snapshot":
        return save(folder, rich_snapshot())
    return flight_records.write_record(folder, flight_records.record())


def press_when_read(*keys: str) -> Callable[[Pilot[None]], object]:
    async def press(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, TerminalApp)
        while not first_screen(app, InspectScreen).is_advised:
            await pilot.pause(0.02)
        await pilot.press(*keys)
        await pilot.pause()

    return press


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("kind", ["snapshot", "flight"])
def test_inspect(kind: str, look: str, tmp_path: Path, compare_screen: CompareScreen) -> None:
    compare_screen(make_inspect_app(write(kind, tmp_path), abilities=LOOKS[look]), press_when_read())


@pytest.mark.parametrize(
    ("name", "keys"), [("stack", ["enter"]), ("report", ["i"]), ("failures", ["o"]), ("devices", ["d"])]
)
def test_over_the_inspect_screen(
    name: str, keys: list[str], tmp_path: Path, snap_compare: SnapCompare
) -> None:
    app = make_inspect_app(write("snapshot", tmp_path))
    assert snap_compare(app, terminal_size=(100, 32), run_before=press_when_read(*keys)), name


def test_other_allocator_settings(tmp_path: Path, compare_screen: CompareScreen) -> None:
    compare_screen(make_inspect_app(save(tmp_path, advised_snapshot())), press_when_read())


@pytest.mark.parametrize("look", ["color", "ascii"])
def test_two_moments(look: str, tmp_path: Path, compare_screen: CompareScreen) -> None:
    app = make_inspect_app(save(tmp_path, advised_snapshot()), abilities=LOOKS[look])
    compare_screen(app, press_when_read("home", "m", "p", "plus"))


def test_while_other_settings_are_computed(tmp_path: Path, compare_screen: CompareScreen) -> None:
    held = threading.Event()
    path = save(tmp_path, rich_snapshot())

    def read() -> Inspected:
        found = read_inspected(path)
        advise = found.advise
        assert advise is not None

        def advise_late(place: int) -> InspectedAdvice:
            held.wait(60)
            return advise(place)

        return replace(found, advise=advise_late)

    async def press(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, TerminalApp)
        while first_screen(app, InspectScreen).inspected is None:
            await pilot.pause(0.02)
        await pilot.pause()

    try:
        compare_screen(make_inspect_app(path, read=read), press)
    finally:
        held.set()
