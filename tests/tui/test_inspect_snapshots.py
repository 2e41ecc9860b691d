"""Pictures of the inspect screen at three sizes; look at them when they change."""

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from vramscope.tui.inspect_app import InspectApp
from vramscope.tui.terminal import TerminalAbilities

from ..readers import flight_records
from .inspect_files import rich_snapshot, save
from .test_inspect import SIZES, make_inspect_app

SnapCompare = Callable[..., bool]

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
        assert isinstance(app, InspectApp)
        while app.view.inspected is None:
            await pilot.pause(0.02)
        await pilot.press(*keys)
        await pilot.pause()

    return press


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "120x32", "200x50"])
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("kind", ["snapshot", "flight"])
def test_inspect(
    kind: str, look: str, size: tuple[int, int], tmp_path: Path, snap_compare: SnapCompare
) -> None:
    app = make_inspect_app(write(kind, tmp_path), abilities=LOOKS[look])
    assert snap_compare(app, terminal_size=size, run_before=press_when_read())


@pytest.mark.parametrize(
    ("name", "keys"), [("stack", ["enter"]), ("report", ["i"]), ("failures", ["o"]), ("devices", ["d"])]
)
def test_over_the_inspect_screen(
    name: str, keys: list[str], tmp_path: Path, snap_compare: SnapCompare
) -> None:
    app = make_inspect_app(write("snapshot", tmp_path))
    assert snap_compare(app, terminal_size=(100, 32), run_before=press_when_read(*keys)), name
