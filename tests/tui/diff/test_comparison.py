"""A simulation beside the real run: in the verdict, on every panel, and as curves on the device screen."""

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.clocks import HandClock
from tests.engine.replay.recordings import fresh_analyzers
from tests.engine.replay.simulated_runs import write_pair
from tests.tui.canned import NODE, UNICODE_COLOR, StillClock
from vramscope.analyzers.sentence import Sentence
from vramscope.analyzers.verdict import Verdict
from vramscope.engine.files.memory_trace.run import TracePair
from vramscope.engine.history import History
from vramscope.engine.replay.feed import ReplayFeed
from vramscope.engine.replay.player import ReplayOptions
from vramscope.engine.replay.simulated_run import TraceComparison, compare_runs
from vramscope.engine.replay.tapes import TraceTape
from vramscope.engine.sampling.trace_player import TracePlayer
from vramscope.engine.settings import Settings
from vramscope.engine.viewer.snapshot import ReplayState, Snapshot
from vramscope.tui.app import VramscopeApp
from vramscope.tui.device.simulated_run import draw_comparison, draw_curve
from vramscope.tui.draw.glyphs import UNICODE
from vramscope.tui.draw.spans import line_text
from vramscope.tui.live.device_picture import DevicePicture
from vramscope.tui.live.process_signals import SignalPolicy
from vramscope.tui.widgets.replay_words import comparison_fact, judge_comparison

from ..replays import press_until

CALM = Verdict("unknown", Sentence((("OOM risk unknown",),)))
GRAVE = Verdict("critical", Sentence((("would not fit 70.0 GiB",),)))


def compare(pair: TracePair) -> TraceComparison:
    return compare_runs(TracePlayer(pair.real), pair.simulated)


def make_app(pair: TracePair) -> VramscopeApp:
    feed = ReplayFeed(
        lambda: [TraceTape(pair.real, simulated=pair.simulated)],
        make_analyzers=fresh_analyzers,
        options=ReplayOptions(is_paused=True),
        clock=HandClock(),
    )
    return VramscopeApp(
        feed,
        settings=Settings(),
        abilities=UNICODE_COLOR,
        clock=StillClock(),
        signal_policy=SignalPolicy(local_node=NODE, is_replay=True),
        driver_class=None,
    )


def test_verdict_says_the_worst_error_after_what_is_dangerous(tmp_path: Path) -> None:
    found = compare(write_pair(tmp_path))
    calm, grave = judge_comparison(CALM, found), judge_comparison(GRAVE, found)
    assert calm.text(90) == "simulated peaks are off by -2.00 % at worst (rank 1) · OOM risk unknown"
    assert calm.text(50) == "simulated -2.00 % at worst · OOM risk unknown"
    assert grave.text(60) == "would not fit 70.0 GiB · simulated -2.00 % at worst"
    assert grave.text(30) == "would not fit 70.0 GiB"
    assert judge_comparison(CALM, None) is CALM


def test_ranks_without_a_simulation_say_so_everywhere(tmp_path: Path) -> None:
    found = compare(write_pair(tmp_path, simulated_ranks=1))
    assert (
        judge_comparison(CALM, found)
        .text(99)
        .startswith("simulated peaks of 1 of 2 ranks are off by +0.500 % at worst (rank 0)")
    )
    assert (
        judge_comparison(CALM, found)
        .text(78)
        .startswith("simulated peaks +0.500 % at worst (rank 0; 1 of 2 compared)")
    )
    alone = found.ranks[1]
    assert line_text(comparison_fact(alone)) == "no simulated trace of this rank"
    assert line_text(comparison_fact(alone, 20)) == "not simulated"
    assert [line_text(line) for line in draw_comparison(alone, 1, (80, 6), UNICODE)] == [
        " Simulation: no simulated trace of this rank"
    ]


def test_panel_says_peak_and_error_in_the_room_there_is(tmp_path: Path) -> None:
    first = compare(write_pair(tmp_path)).ranks[0]
    assert line_text(comparison_fact(first)) == "simulated peak 40,200.00 MiB, +0.500 %"
    assert line_text(comparison_fact(first, 20)) == "simulated +0.500 %"
    assert comparison_fact(first, 5) == []


def test_row_of_a_rank_has_the_error_in_a_column(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, simulated_ranks=1)
    tape = TraceTape(pair.real, simulated=pair.simulated)
    (sample,) = tape.samples(5.0, 5.0)
    state = ReplayState(0.0, 9.0, 5.0, "trace", 1.0, True, False, False, False, comparison=tape.comparison)
    snapshot = Snapshot("live", sample=sample, replay=state)
    picture = DevicePicture(UNICODE).draw(snapshot, History(), 70, 2)
    assert [line_text(line).rstrip().split("dp0")[1] for line in picture] == ["  sim +0.500 %", "  no sim"]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_section_says_the_errors_and_draws_both_curves_on_one_scale(tmp_path: Path, width: int) -> None:
    first = compare(write_pair(tmp_path)).ranks[0]
    lines = [line_text(line) for line in draw_comparison(first, 2, (width, 5), UNICODE)]
    assert all(len(line) <= width for line in lines)
    if width < 80:
        assert len(lines) == 2
        return
    assert lines[0] == " real peak 40,000.00 MiB   simulated peak 40,200.00 MiB   error +0.500 %"
    assert lines[1].startswith(" iteration 2 peak 40,000.00 MiB, error +0.500 %   all 3 iterations +0.500 %")
    assert len(lines) == 2 + 1 + 5 + 1
    assert lines[2].split() == ["allocated,", "real,", "iteration", "2", "allocated,", "simulated"]
    assert (lines[3].split()[-2:], lines[7].split()[-1]) == (["38.5", "GiB"], "29.3")
    assert lines[8].count("2.90 s") == 2


def test_iteration_without_samples_and_a_moment_before_the_first_have_no_curves(tmp_path: Path) -> None:
    first = compare(write_pair(tmp_path)).ranks[0]
    for step in (None, 9):
        assert len(draw_comparison(first, step, (80, 6), UNICODE)) == 1


def test_curve_is_as_high_as_its_values_and_holds_each_until_the_next() -> None:
    rows = draw_curve(
        [0.0, 6.0],
        [10.0, 20.0],
        base=0.0,
        top=20.0,
        span_s=10.0,
        shape=(10, 2),
        glyphs=UNICODE,
    )
    assert [line_text(row) for row in rows] == ["      ⡆   ", "⣿⣿⣿⣿⣿⣿⡇   "]


@pytest.mark.parametrize("screen", ["live", "device"])
def test_pictures(screen: str, tmp_path: Path, snap_compare: Callable[..., bool]) -> None:
    app = make_app(write_pair(tmp_path))

    async def go(pilot: Pilot[None]) -> None:
        await press_until(pilot, [], lambda it: it.position_s == 0.0)
        await press_until(pilot, ["g", *"9s", "enter"], lambda it: it.position_s == 9.0)
        if screen == "device":
            await pilot.press("2")

    assert snap_compare(app, terminal_size=(80, 24), run_before=go)
