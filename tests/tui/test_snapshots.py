"""Pictures of the live screen at three sizes in every state; look at them when they change."""

from collections.abc import Callable

import msgspec
import pytest
from textual.pilot import Pilot

from tests.tui.canned import (
    NOON_S,
    UNICODE_COLOR,
    FakeFeed,
    fill_history,
    make_app,
    make_devices,
    make_finding,
    make_past,
    make_sample,
    make_snapshot,
)
from vramscope.engine.settings import Settings
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.app import VramscopeApp
from vramscope.tui.terminal.abilities import TerminalAbilities

SnapCompare = Callable[..., bool]
CompareScreen = Callable[..., None]

NOTE = (
    "No NVIDIA driver library: libnvidia-ml.so.1 was not found. "
    "Install the NVIDIA driver, or in a container start it with --gpus all."
)


def snapshot_none() -> Snapshot:
    return make_snapshot(sample=make_sample((), notes=(NOTE,)))


def snapshot_stale() -> Snapshot:
    first, second, *rest = make_devices(8)
    stale = msgspec.structs.replace(first, state="stale", age_s=7.0, reason="the driver has not answered")
    lost = msgspec.structs.replace(second, state="lost", age_s=90.0, reason="fell off the bus (XID 79)")
    return make_snapshot(sample=make_sample((stale, lost, *rest)), samples_dropped=12)


def snapshot_disconnected() -> Snapshot:
    return make_snapshot(8, connection="lost", silent_s=7.0, reason="the agent (pid 4242) is gone")


def snapshot_eight() -> Snapshot:
    return make_snapshot(8, findings=(make_finding(4), make_finding(1, closed_s=NOON_S - 20)))


CASES: dict[str, tuple[int, Callable[[], Snapshot], TerminalAbilities]] = {
    "none": (0, snapshot_none, UNICODE_COLOR),
    "one": (1, lambda: make_snapshot(1), UNICODE_COLOR),
    "eight": (8, snapshot_eight, UNICODE_COLOR),
    "sixty-four": (64, lambda: make_snapshot(64), UNICODE_COLOR),
    "stale": (8, snapshot_stale, UNICODE_COLOR),
    "disconnected": (8, snapshot_disconnected, UNICODE_COLOR),
    "mono": (8, snapshot_eight, TerminalAbilities(color_depth="none")),
    "ascii": (8, snapshot_eight, TerminalAbilities(is_ascii=True, color_depth="16")),
}


def app_for(case: str, settings: Settings | None = None) -> VramscopeApp:
    count, snapshot, abilities = CASES[case]
    history = fill_history(make_snapshot(count), lambda: make_past(count), 300)
    feed = FakeFeed(snapshot(), history=history)
    return make_app(feed, abilities=abilities, settings=settings)


@pytest.mark.parametrize("case", CASES)
def test_live(case: str, compare_screen: CompareScreen) -> None:
    compare_screen(app_for(case))


@pytest.mark.parametrize("theme", ["light", "high-contrast"])
def test_other_themes(theme: str, snap_compare: SnapCompare) -> None:
    app = app_for("eight", Settings(theme=theme))  # type: ignore[arg-type]  # names from the list above
    assert snap_compare(app, terminal_size=(120, 32))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("help", ["question_mark"]),
        ("sort", ["s"]),
        ("filter", ["slash", *"user1"]),
        ("paused", ["space"]),
        ("palette", ["ctrl+p"]),
    ],
)
def test_over_the_live_screen(name: str, keys: list[str], snap_compare: SnapCompare) -> None:
    async def press(pilot: Pilot[None]) -> None:
        await pilot.press(*keys)
        await pilot.app.workers.wait_for_complete()  # the palette gathers its commands in one
        await pilot.pause()

    assert snap_compare(app_for("eight"), terminal_size=(100, 32), run_before=press), name
