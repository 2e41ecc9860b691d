"""Several nodes in one replay: which one is seen, what the others have, and where one has nothing."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from tests.clocks import HandClock
from tests.engine.replay.recordings import START_S, fresh_analyzers, grow, record
from tests.tui.canned import NODE, UNICODE_COLOR, StillClock
from tests.tui.looks import notices, shown_text
from tests.tui.replays import press_until
from vramscope.engine.replay.feed import ReplayFeed
from vramscope.engine.replay.tapes import open_tapes
from vramscope.engine.settings import Settings
from vramscope.tui.app import VramscopeApp
from vramscope.tui.device.screen import DeviceScreen
from vramscope.tui.frame.keys import collect_keys
from vramscope.tui.live.process_signals import SignalPolicy


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Record a node that stays calm, and two that fill up, of which one begins later and ends earlier."""
    folder = tmp_path_factory.mktemp("nodes")
    for name, seqs, shift in (
        ("node2", range(300), None),
        ("node10", range(100, 200), 70),
        ("node1", range(300), 0),
    ):
        samples = [
            msgspec.structs.replace(
                grow(1 if shift is None else seq + shift), node=name, seq=seq, time_s=START_S + seq
            )
            for seq in seqs
        ]
        record(folder / f"{name}.vscope", samples)
    return sorted(folder.iterdir())


def _make_app(paths: list[Path]) -> VramscopeApp:
    feed = ReplayFeed(lambda: open_tapes(paths), make_analyzers=fresh_analyzers, clock=HandClock())
    return VramscopeApp(
        feed,
        settings=Settings(),
        abilities=UNICODE_COLOR,
        clock=StillClock(),
        signal_policy=SignalPolicy(local_node=NODE, is_replay=True),
        driver_class=None,
    )


async def _wait_for(pilot: Pilot[None], *texts: str) -> None:
    app = pilot.app
    assert isinstance(app, VramscopeApp)
    for _ in range(6000):
        if all(text in shown_text(app) for text in texts):
            return
        await pilot.pause(0.01)
    raise AssertionError(f"{texts} in {shown_text(app)}")


async def test_tab_shows_node_after_node_and_each_says_what_it_has(paths: list[Path]) -> None:
    app = _make_app(paths)
    async with app.run_test(size=(120, 32)) as pilot:
        await press_until(pilot, ["space"], lambda it: it.is_paused)
        assert any("3 nodes, replayed together" in text for text in notices(app))
        await press_until(pilot, ["g", *"50s", "enter"], lambda it: it.position_s == START_S + 50)
        await _wait_for(pilot, "node1 1/3")
        await pilot.press("tab")
        await _wait_for(pilot, "node2 2/3", "40.3 / 79.6 GiB")
        await pilot.press("tab")
        await _wait_for(pilot, "node10 3/3", "its recording begins 50 s later")
        await press_until(pilot, ["g", *"157s", "enter"], lambda it: it.position_s == START_S + 157)
        await _wait_for(pilot, "node10 3/3", "69.1 / 79.6 GiB")
        await press_until(pilot, ["g", *"250s", "enter"], lambda it: it.position_s == START_S + 250)
        await _wait_for(pilot, "node10 3/3", "its recording has ended, its last data is 51 s old")
        await pilot.press("2", "tab")
        await _wait_for(pilot, "node1 1/3")
        assert isinstance(app.screen, DeviceScreen)
        await pilot.press("shift+tab")
        await _wait_for(pilot, "node10 3/3")


async def test_a_mark_brings_its_node_and_help_knows_the_keys(paths: list[Path]) -> None:
    app = _make_app(paths)
    async with app.run_test(size=(120, 32)) as pilot:
        await press_until(pilot, ["space"], lambda it: it.is_paused)
        await press_until(pilot, ["g", *"130s", "enter"], lambda it: it.position_s == START_S + 130)
        found = await press_until(pilot, ["n"], lambda it: it.position_s > START_S + 130)
        (mark,) = [it for it in found.marks if it.time_s == found.position_s]
        await _wait_for(pilot, f"{mark.node} ")
        assert any(mark.text in text for text in notices(app))
        await pilot.press(
            *["tab"] * (["node1", "node2", "node10"].index("node2") - 0 if mark.node == "node1" else 2)
        )
        await _wait_for(pilot, "node2 2/3")
        groups = collect_keys(app.screen)
        assert [entry.keys for entry in groups["node"]] == ["Tab", "Shift+Tab"]
        assert "signal" not in [entry.verb for entry in groups["process"]]


def test_three_nodes(paths: list[Path], snap_compare: Callable[..., bool]) -> None:
    async def go(pilot: Pilot[None]) -> None:
        await press_until(pilot, ["space", "g", *"129s", "enter"], lambda it: it.position_s == START_S + 129)
        await pilot.press("tab")
        await _wait_for(pilot, "node2 2/3")

    assert snap_compare(_make_app(paths), terminal_size=(80, 24), run_before=go)
