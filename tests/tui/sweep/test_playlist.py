"""A sweep in the player: from configuration to configuration, and what is told of each."""

from pathlib import Path

from textual.pilot import Pilot

from tests.analyzers.planning.sweep.original import name_trace, write_original
from tests.clocks import HandClock
from tests.engine.replay.recordings import fresh_analyzers
from tests.tui.canned import NODE, UNICODE_COLOR, StillClock
from tests.tui.looks import notices, shown_text
from vramscope.cli.replay import DEFAULT_OPTIONS, list_entries, open_first, open_with
from vramscope.engine.replay.feed import HOLD_S, Playlist, PlaylistFeed
from vramscope.engine.replay.player import ReplayOptions
from vramscope.engine.settings import Settings
from vramscope.sweeps import load_sweep
from vramscope.tui.app import VramscopeApp
from vramscope.tui.device.screen import DeviceScreen
from vramscope.tui.frame.keys import collect_keys
from vramscope.tui.live.process_signals import SignalPolicy

from ..replays import press_until


class _Sweep:
    """A sweep in the application; its clock stands until a test moves it."""

    def __init__(self, folder: Path, at: int, *, is_paused: bool) -> None:
        memory_dir, log_dir = write_original(folder)
        self.cells = load_sweep(memory_dir, log_dir, 80.0).grid.cells
        self.clock = HandClock()
        playlist = Playlist(list_entries(self.cells), open_with(DEFAULT_OPTIONS, "485B"))
        self.feed = PlaylistFeed(
            playlist,
            open_first(playlist, at),
            make_analyzers=fresh_analyzers,
            options=ReplayOptions(is_paused=is_paused),
            clock=self.clock,
        )
        # One that is broken only when it is its turn: the index of the sweep has read it.
        (memory_dir / name_trace(8, 32)).write_text("{")
        self.app = VramscopeApp(
            self.feed,
            settings=Settings(),
            abilities=UNICODE_COLOR,
            clock=StillClock(),
            signal_policy=SignalPolicy(local_node=NODE, is_replay=True),
            driver_class=None,
        )

    def let_pass(self, seconds: float) -> None:
        """Let time pass, and have the feed look at its clock."""
        self.clock.now_s += seconds
        self.feed.look_at("")

    async def go(self, pilot: Pilot[None], keys: list[str], name: str) -> None:
        """Press keys and wait for a configuration."""
        await press_until(pilot, keys, lambda it: it.part is not None and it.part.name == name)


async def test_keys_go_from_configuration_to_configuration(tmp_path: Path) -> None:
    sweep = _Sweep(tmp_path, 10, is_paused=True)
    async with sweep.app.run_test(size=(120, 30)) as pilot:
        await sweep.go(pilot, [], "TP 2 PP 64")
        text = shown_text(sweep.app)
        assert "TP 2 PP 64 · configuration 1 of 6 · ok · simulated trace · 1 rank" in text
        assert "peak 57.3 GiB, theory 136.9 GiB (+139 %) · OOM risk unknown" in text
        assert "} next config { previous config" in text
        assert "j −10s k +10s" in text
        await press_until(pilot, ["plus", "right_square_bracket"], lambda it: it.position_s > 0)
        await sweep.go(pilot, ["2", "right_curly_bracket"], "TP 4 PP 32")
        assert notices(sweep.app)[-1] == "TP 4 PP 2, TP 4 PP 4 and 2 more failed: no trace."
        assert isinstance(sweep.app.screen, DeviceScreen)
        text = shown_text(sweep.app)
        assert "peak 76.0 GiB theoretical 99.8 GiB error +31.3 %" in text
        assert "rank 0 tp0 pp0 dp0" in text, "the device screen shows the same rank of this configuration"
        assert sweep.cells[sweep.feed.index].place == (4, 32)
        state = await press_until(pilot, ["k"], lambda it: it.position_s == it.end_s)
        assert (state.speed, state.is_paused) == (2, True), "pace is kept"
        await sweep.go(pilot, ["j", "left_curly_bracket"], "TP 2 PP 64")
        await press_until(
            pilot,
            ["left_curly_bracket"],
            lambda it: it.word is not None and "before this one" in it.word.text,
        )
        assert sweep.cells[sweep.feed.index].place == (2, 64)


async def test_what_cannot_be_read_is_skipped_and_the_keys_have_one_meaning(tmp_path: Path) -> None:
    sweep = _Sweep(tmp_path, 21, is_paused=True)
    async with sweep.app.run_test(size=(120, 30)) as pilot:
        await sweep.go(pilot, [], "TP 8 PP 16")
        await sweep.go(pilot, ["right_curly_bracket"], "TP 8 PP 64")
        assert notices(sweep.app)[-1].startswith("TP 8 PP 32 is skipped: ")
        assert "configuration 6 of 6" in shown_text(sweep.app)
        await sweep.go(pilot, ["left_curly_bracket"], "TP 8 PP 16")
        groups = collect_keys(sweep.app.screen)
        keys = [key for entries in groups.values() for entry in entries for key in entry.keys.split()]
        taken = [key for entry in groups["replay"] for key in entry.keys.split()]
        assert {"j", "k", "{", "}", "[", "]", "g", "n", "L"} <= set(taken)
        assert {key: keys.count(key) for key in taken} == dict.fromkeys(taken, 1)


async def test_the_next_one_begins_at_the_end_and_not_where_one_is_repeated(tmp_path: Path) -> None:
    sweep = _Sweep(tmp_path, 11, is_paused=False)
    async with sweep.app.run_test(size=(80, 24)) as pilot:
        await sweep.go(pilot, [], "TP 2 PP 64")
        await press_until(pilot, ["g", *"100%", "enter"], lambda it: it.position_s == it.end_s)
        sweep.let_pass(HOLD_S / 2)
        await press_until(pilot, ["2"], lambda _: isinstance(sweep.app.screen, DeviceScreen))
        assert sweep.cells[sweep.feed.index].place == (2, 64), "its last picture stays a while"
        sweep.let_pass(HOLD_S)
        await sweep.go(pilot, [], "TP 4 PP 32")
        await press_until(pilot, ["L"], lambda it: it.is_looping)
        await press_until(pilot, ["g", *"100%", "enter"], lambda it: it.position_s == it.end_s)
        sweep.let_pass(HOLD_S)
        await press_until(pilot, [], lambda it: it.position_s < it.end_s)
        assert sweep.cells[sweep.feed.index].place == (4, 32)
