"""Memory traces as a tape."""

import math
from pathlib import Path

import pytest

from tests.engine.files.traces import rank_name, trace, write_trace
from vramscope.engine.replay import tapes as trace_tape
from vramscope.engine.replay.player import ReplayOptions
from vramscope.engine.replay.tapes import TraceTape, find_newest
from vramscope.engine.units import GIB

from .recordings import Played


@pytest.mark.parametrize("interval_s", [0.1, 0.37])
def test_ticks_of_a_trace_are_the_same_from_wherever_it_is_read(tmp_path: Path, interval_s: float) -> None:
    for rank in range(2):
        rows = [
            (0.05 * at + 0.013 * rank, 2000.0 + at % 7, 1000.0 + at % 5) for at in range(0, 200, rank + 1)
        ]
        write_trace(tmp_path, rank_name(rank), trace(rows[:40], rows[40:]))
    tape = TraceTape(tmp_path, interval_s=interval_s, capacity_bytes=80 * GIB)
    whole = list(tape.samples(tape.start_s))
    assert (whole[0].time_s, whole[-1].time_s) == (tape.start_s, tape.end_s)
    assert [sample.is_last for sample in whole] == [False] * (len(whole) - 1) + [True]
    for at in range(0, len(whole), 7):
        assert list(tape.samples(whole[at].time_s)) == whole[at:]
        assert find_newest(tape, whole[at].time_s + interval_s / 3, 2) == whole[max(0, at - 1) : at + 1]


def test_what_is_found_in_a_trace_can_be_gone_to_and_is_told_as_it_opened(tmp_path: Path) -> None:
    rows = [(0.1 * at, 20_000.0 + 20 * at, 15_000.0) for at in range(400)]
    write_trace(tmp_path, rank_name(0), trace(rows))
    played = Played(TraceTape(tmp_path, capacity_bytes=24 * GIB), options=ReplayOptions(is_paused=True))
    played.ask("go", text="95%")
    (mark,) = [it for it in played.player.state.marks if it.severity == "critical"]
    played.ask("go", text="0s")
    assert not played.player.snapshot.findings
    while played.player.state.position_s < mark.time_s:
        played.ask("mark", 1)
    assert played.player.state.position_s == mark.time_s
    assert mark.text in [finding.title for finding in played.player.snapshot.findings]


def test_iterations_are_gone_through_one_by_one_to_the_beginning_and_the_end(tmp_path: Path) -> None:
    for rank in range(3):
        rows = [
            [(10.0 * number + 0.4 * rank + 0.1 * at, 2000.0, 1000.0) for at in range(80)]
            for number in range(4)
        ]
        write_trace(tmp_path, rank_name(rank), trace(*rows))
    played = Played(TraceTape(tmp_path), options=ReplayOptions(is_paused=True))

    def ask(direction: int) -> tuple[float, int | None]:
        played.ask("mark", direction)
        return played.sample.time_s, played.sample.devices[0].step

    assert [ask(1) for _ in range(3)] == [(10.0, 1), (20.0, 2), (30.0, 3)]
    assert ask(1) == (30.0, 3)
    assert [ask(-1) for _ in range(4)] == [(20.0, 2), (10.0, 1), (0.0, 0), (0.0, 0)]


def test_of_a_long_run_a_jump_feeds_as_much_as_of_a_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_tape, "MOST_WHOLE_TICKS", 100)
    monkeypatch.setattr(trace_tape, "WINDOW_TICKS", 30)
    rows = [(0.1 * at, 20_000.0 + at, 15_000.0) for at in range(400)]
    write_trace(tmp_path, rank_name(0), trace(rows[:90]))
    assert TraceTape(tmp_path).window_s == math.inf
    write_trace(tmp_path, rank_name(0), trace(rows))
    jumped, played = (Played(TraceTape(tmp_path), options=ReplayOptions(is_paused=True)) for _ in range(2))
    jumped.ask("go", text="39s")
    for _ in range(5):
        played.ask("skip", 8)
    played.ask("go", text="39s")
    assert jumped.sample == played.sample
    assert jumped.history.span_s(jumped.sample.devices[0].uuid) < 8
