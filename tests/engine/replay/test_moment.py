"""Moments as people write them."""

from datetime import datetime

import pytest

from vramscope.engine.errors import UsageError
from vramscope.engine.replay.moment_text import parse_moment
from vramscope.engine.viewer.snapshot import ReplayState

EVENING = datetime(2025, 10, 9, 22, 30)
START_S = EVENING.timestamp()
HOUR_S = 3600.0
REPLAY = ReplayState(START_S, START_S + 4 * HOUR_S, START_S + HOUR_S, "wall", 1.0, False, False, False, False)


@pytest.mark.parametrize(
    ("text", "after_s"),
    [
        ("50%", 2 * HOUR_S),
        ("1h20m", 4800),
        ("90", 90),
        ("1.5h", 5400),
        ("+10m", HOUR_S + 600),
        ("-30s", HOUR_S - 30),
        ("-9h", 0),
        ("+9h", 4 * HOUR_S),
        ("23:15", 2700),
        ("0:10:05", 6005),
        ("2025-10-09 23:00", 1800),
        ("2025-10-10T01:00:30", 9030),
        (" 22:30 ", 0),
    ],
)
def test_moments_are_found(text: str, after_s: float) -> None:
    assert parse_moment(text, REPLAY) == START_S + after_s


@pytest.mark.parametrize(
    "text", ["", "soon", "5h", "12:00", "25:00", "1x", "2025-10-08", "+", "1e400", "120%"]
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_moment(text, REPLAY)


def test_a_recording_without_times_of_day_has_places_only() -> None:
    trace = ReplayState(0.0, 60.0, 0.0, "trace", 1.0, False, False, False, False)
    assert parse_moment("30", trace) == 30
    with pytest.raises(UsageError, match="not a time"):
        parse_moment("0:30", trace)
