"""Pictures of what training processes tell, on both screens; look at them when they change."""

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from tests.tui.ranks_cases import app_for
from vramscope.engine.settings import Settings

SnapCompare = Callable[..., bool]
CompareScreen = Callable[..., None]

LIVE = ("one-rank", "eight-ranks", "two-on-one", "simulated", "processors", "troubled", "mono", "ascii")
DEVICE = {
    "mapped": ["2"],
    "phases": ["2"],
    "two-on-one": ["2", "tab"],
    "simulated": ["2"],
    "processors": ["2"],
    "no-probe": ["2"],
    "troubled": ["home", "down", "enter"],
    "mapped-mono": ["2"],
    "mapped-ascii": ["2"],
}
"""Situations, and the keys that lead to the screen of one device."""


def pressing(*keys: str) -> Callable[[Pilot[None]], object]:
    """Return what presses keys before the picture is taken."""

    async def press(pilot: Pilot[None]) -> None:
        await pilot.press(*keys)
        await pilot.pause()

    return press


@pytest.mark.parametrize("case", LIVE)
def test_live(case: str, compare_screen: CompareScreen) -> None:
    compare_screen(app_for(case))


@pytest.mark.parametrize("case", DEVICE)
def test_device(case: str, compare_screen: CompareScreen) -> None:
    scrolling = ("home", "pagedown") if case == "phases" else ()
    compare_screen(app_for(case), pressing(*DEVICE[case]), keys_at_each_size=scrolling)


@pytest.mark.parametrize("theme", ["light", "high-contrast"])
def test_other_themes(theme: str, snap_compare: SnapCompare) -> None:
    app = app_for("mapped", Settings(theme=theme))  # type: ignore[arg-type]  # names from the list above
    assert snap_compare(app, terminal_size=(120, 50), run_before=pressing("2"))


@pytest.mark.parametrize(("name", "keys"), [("live", []), ("device", ["2"]), ("scrolled", ["2", "end"])])
def test_a_sliver(name: str, keys: list[str], snap_compare: SnapCompare) -> None:
    assert snap_compare(app_for("mapped"), terminal_size=(40, 10), run_before=pressing(*keys)), name


def test_the_map_and_the_stacks_at_the_end_of_the_page(snap_compare: SnapCompare) -> None:
    assert snap_compare(app_for("mapped"), terminal_size=(80, 24), run_before=pressing("2", "end"))
