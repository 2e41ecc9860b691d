"""A day of recording in one line: where the trouble is, and where nothing was recorded."""

from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.replay.recordings import START_S, record
from tests.tui.canned import make_device, make_sample
from vramscope.engine.recording import OverviewMinute
from vramscope.engine.replay.tapes import MOST_SPANS, RecordingTape, fold_minutes
from vramscope.engine.units import GIB
from vramscope.engine.viewer.snapshot import ReplayState
from vramscope.tui.draw.glyphs import UNICODE
from vramscope.tui.widgets.time_bar import draw_overview

HOURS = 4


def _state(start_s: float, end_s: float) -> ReplayState:
    return ReplayState(start_s, end_s, start_s, "wall", 1.0, False, False, False, False)


def test_a_short_spike_and_a_hole_stand_where_they_were(tmp_path: Path) -> None:
    ticks = [it for it in range(0, HOURS * 3600, 30) if not 9000 < it < 10800]
    samples = [
        msgspec.structs.replace(
            make_sample((make_device(0, 20.0), make_device(1, 79.0 if tick == 3600 else 30.0)), tick),
            time_s=START_S + tick,
            interval_s=30.0,
        )
        for tick in ticks
    ]
    tape = RecordingTape(record(tmp_path / "day.vscope", samples))
    overview = tape.overview()
    assert overview is not None
    assert overview.is_of_capacity
    pieces = list(draw_overview(overview, _state(tape.start_s, tape.end_s), 41, UNICODE))
    line = "".join(piece.text for piece in pieces)
    spike, hole = round(3600 / (HOURS * 3600) * 40), round(9900 / (HOURS * 3600) * 40)
    assert [at for at, cell in enumerate(line) if cell == "█"] == [spike]
    assert line[hole] == " "
    assert line.count(" ") in (3, 4, 5)
    assert [piece.text for piece in pieces if piece.role == "high"] == ["█"]


minutes = st.dictionaries(st.integers(0, 6 * MOST_SPANS), st.integers(1, 80), min_size=1, max_size=40)


@given(most=minutes, width=st.integers(16, 200), has_total=st.booleans())
def test_no_minute_is_lost_at_any_width(most: dict[int, int], width: int, has_total: bool) -> None:
    recorded = [
        OverviewMinute(60.0 * minute, "a", "x", 60, 0, gib * GIB, None)
        for minute, gib in sorted(most.items())
    ]
    overview = fold_minutes(recorded, {"x": 80 * GIB if has_total else None})
    assert overview is not None
    assert len(overview.shares) <= MOST_SPANS + 1
    whole = 80 if has_total else max(most.values())
    replay = _state(60.0 * min(most), 60.0 * max(most) + 59)
    line = "".join(piece.text for piece in draw_overview(overview, replay, width, UNICODE))
    assert len(line) == width
    assert max(UNICODE.levels.find(cell) for cell in line) == min(7, int(8 * max(most.values()) / whole))


def test_what_nobody_measured_has_no_overview() -> None:
    assert fold_minutes([OverviewMinute(0.0, "a", "x", 60, None, None, None)], {"x": None}) is None
    assert fold_minutes([], {}) is None
