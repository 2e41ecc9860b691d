"""Moments as people type them: a time of day, a date, a place from the start, a share, a distance."""

import math
import re
from datetime import datetime, timedelta
from typing import Literal, Protocol

from ..errors import UsageError

EXPECTED = "14:03, 14:03:21, 2025-10-09 14:03, 1h20m, 35%, +10m or -30s"
_UNITS_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_LENGTH = re.compile(r"(?:\d+(?:\.\d+)?[dhms])+|\d+(?:\.\d+)?")
_PART = re.compile(r"(\d+(?:\.\d+)?)([dhms]?)")
_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


class TimeSpan(Protocol):
    """What a moment is looked for in."""

    @property
    def start_s(self) -> float: ...

    @property
    def end_s(self) -> float: ...

    @property
    def position_s(self) -> float | None:
        """The present moment, from which `+10m` counts; None where there is none."""

    @property
    def clock(self) -> Literal["wall", "trace"]: ...


def parse_moment(text: str, replay: TimeSpan, expected: str = EXPECTED) -> float:
    """Parse the moment that a person typed, in seconds of the samples' own clock, within the recording.

    `35%` is a share of the recording, `1h20m` or `90` a place from its start, `+10m` and `-30s` count from
    the present one. A time of day is the first such moment of the recording, in the time zone of this
    machine.
    """
    written = text.strip()
    moment_s = _read_place(written, replay)
    if moment_s is None and replay.clock == "wall":
        moment_s = _read_wall(written, replay)
    if moment_s is None or not math.isfinite(moment_s):
        raise UsageError(f"not a time: {written[:40]!r}; expected for example {expected}")
    if written[:1] in ("+", "-"):
        return min(max(moment_s, replay.start_s), replay.end_s)
    if not math.floor(replay.start_s) <= moment_s <= math.ceil(replay.end_s):
        length_s = replay.end_s - replay.start_s
        raise UsageError(f"{written[:40]} is not within what was recorded, which is {length_s:.1f} s long")
    return min(max(moment_s, replay.start_s), replay.end_s)


def _read_place(written: str, replay: TimeSpan) -> float | None:
    share = _SHARE.fullmatch(written)
    if share is not None:
        return replay.start_s + float(share[1]) / 100 * (replay.end_s - replay.start_s)
    sign, length = (written[0], written[1:].strip()) if written[:1] in ("+", "-") else ("", written)
    if _LENGTH.fullmatch(length) is None:
        return None
    if sign and replay.position_s is None:
        return None
    seconds = sum(float(count) * _UNITS_S[unit or "s"] for count, unit in _PART.findall(length))
    if sign and replay.position_s is not None:
        return replay.position_s + (seconds if sign == "+" else -seconds)
    return replay.start_s + seconds


def _read_wall(written: str, replay: TimeSpan) -> float | None:
    of_day = _OF_DAY.fullmatch(written)
    try:
        if of_day is None:
            return datetime.fromisoformat(written).timestamp()
        hour = int(of_day[1])
        minute = int(of_day[2])
        second = float(of_day[3] or 0)
        first = datetime.fromtimestamp(math.floor(replay.start_s))
        named = first.replace(hour=hour, minute=minute, second=0) + timedelta(seconds=second)
        return (named if named >= first else named + timedelta(days=1)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
