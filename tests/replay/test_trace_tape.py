"""Memory traces as a tape."""

from pathlib import Path

import pytest

from tests.readers.traces import rank_name, trace, write_trace
from vramscope.engine.replay.player import ReplayOptions
from vramscope.engine.replay.tape import find_newest
from vramscope.engine.replay.trace_tape import TraceTape
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
    played = Played(TraceTape(tmp_path, capacity_bytes=24 * GIB), ReplayOptions(is_paused=True))
    played.ask("go", text="95%")
    (mark,) = [it for it in played.player.state.marks if it.severity == "critical"]
    played.ask("go", text="0s")
    assert not played.player.snapshot.findings
    while played.player.state.position_s < mark.time_s:
        played.ask("mark", 1)
    assert played.player.state.position_s == mark.time_s
    assert mark.text in [finding.title for finding in played.player.snapshot.findings]
