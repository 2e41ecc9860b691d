"""When the KV pool of an engine is exhausted, from its use over the last minutes alone.

It is for servers that do not count their requests; of others `arrivals.py` says it earlier.

Use of a pool fluctuates with the lengths of requests. It is averaged over slots; a line through the slots of
a window is growth if it rises by much more than the slots scatter, if it has not levelled off, and if it has
lasted as long as what is left would last. `docs/serving-watch.md` explains the numbers; they were chosen on
the tuning workloads of `benchmarks/serving_verdicts.py`.
"""

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

SLOT_S = 10.0
# Windows that are tried, in slots; the shortest that shows growth counts.
WINDOWS = (18, 30, 45, 60)
# Standard errors by which a slope must exceed nothing.
CERTAIN = 2.5
# Neighbouring slots go together at least and at most as much as this: less is chance, more is the growth.
CORRELATIONS = (0.2, 0.9)
# Share of the pool by which the use has grown within the window, and that is in use by now: less comes and
# goes with a burst of requests.
GROWN_SHARE = 0.2
LEAST_LEVEL = 0.55
# Pace of the newest third of the window, and its least slots, as a share of that of the whole, below which
# growth levels off; and the most by which a faster pace counts.
NEWEST = 3
NEWEST_SLOTS = 6
LEAST_PACE = 0.5
MOST_PACE = 2.0
# Time that is left, as a share of the window, and in seconds, up to which growth is worth a word.
EVIDENCE = 0.8
HORIZON_S = 300.0
# Standard deviations by which the use exceeds its mean where the pool runs out.
PEAK = 1.0
# Least scatter of slots, as a share of the pool: use is rounded by some servers.
LEAST_SCATTER = 0.005
# Longest time without a reading; what happened since is unknown.
GAP_S = 30.0
DEVIATIONS = 1.2816


class PoolForecast(NamedTuple):
    """The end of the pool, if it goes on like this."""

    in_s: float | None
    """None where the mean stays a little below the end, which bursts will reach."""
    low_s: float | None
    high_s: float | None
    growth_per_s: float
    """Share of the pool."""
    window_s: float
    peak_share: float | None = None
    """Share of the pool that will be used within two minutes; None if it was not computed."""
    arriving_per_s: float | None = None
    """Requests; None if they are not counted."""
    few: int | None = None
    """Sequences that fill a small pool, which ends by chance; None for a larger pool."""
    looks: int = 3
    """Looks in a row that must find it before it is said."""


class PoolTrack:
    """The use of one pool over the last minutes."""

    def __init__(self) -> None:
        self._slots: deque[float] = deque(maxlen=max(WINDOWS))
        self._slot: int | None = None
        self._sum = 0.0
        self._count = 0
        self._last_s: float | None = None

    def restart(self) -> None:
        """Forget everything: what happened since the last reading is unknown."""
        self._slots.clear()
        self._slot = None
        self._sum = 0.0
        self._count = 0
        self._last_s = None

    def add(self, time_s: float, share: float) -> bool:
        """Note one reading; return whether a slot is complete and a forecast is worth asking for."""
        if self._last_s is not None and not 0.0 <= time_s - self._last_s <= GAP_S:
            self.restart()
        self._last_s = time_s
        slot = int(time_s // SLOT_S)
        is_complete = self._slot is not None and slot != self._slot
        if is_complete and self._slot is not None:
            mean = self._sum / self._count
            # A slot without a reading is as its neighbours.
            self._slots.extend([mean] * min(slot - self._slot, 3))
            self._sum = 0.0
            self._count = 0
        self._slot = slot
        self._sum += share
        self._count += 1
        return is_complete

    @property
    def level(self) -> float | None:
        """Mean of the newest complete slots, over a minute."""
        newest = list(self._slots)[-6:]
        return sum(newest) / len(newest) if newest else None

    def forecast(self, limit: float = 1.0) -> PoolForecast | None:
        """Return when the use reaches a limit, as a share of the pool; None where it does not grow."""
        slots = list(self._slots)
        for window in WINDOWS:
            if len(slots) < window:
                return None
            found = _forecast(slots[-window:], limit)
            if found is not None:
                return found
        return None


class _Line(NamedTuple):
    slope: float
    """A slot."""
    end: float
    scatter: float
    error: float
    """Standard error of the slope."""


def _forecast(slots: Sequence[float], limit: float) -> PoolForecast | None:
    line = _fit(slots)
    grown = line.slope * (len(slots) - 1)
    if line.slope <= CERTAIN * line.error or grown < GROWN_SHARE:
        return None
    newest = _fit(slots[-max(NEWEST_SLOTS, len(slots) // NEWEST) :])
    level = max(line.end, newest.end)
    if newest.slope < LEAST_PACE * line.slope or level < LEAST_LEVEL:
        return None
    window_s = len(slots) * SLOT_S
    per_s = max(line.slope, min(newest.slope, MOST_PACE * line.slope)) / SLOT_S
    room = limit - PEAK * line.scatter - level
    in_s = max(0.0, room / per_s)
    if in_s > min(HORIZON_S, EVIDENCE * window_s):
        return None
    error = DEVIATIONS * line.error / SLOT_S
    return PoolForecast(
        in_s,
        max(0.0, (room - line.scatter) / (per_s + error)),
        max(0.0, (room + 2 * line.scatter) / max(per_s - error, 0.2 * per_s)),
        per_s,
        window_s,
    )


def _fit(values: Sequence[float]) -> _Line:
    """Fit a line by least squares; neighbours that go together count as fewer than they are."""
    count = len(values)
    middle = (count - 1) / 2
    mean = sum(values) / count
    spread = sum((at - middle) ** 2 for at in range(count))
    slope = sum((at - middle) * (value - mean) for at, value in enumerate(values)) / spread
    rests = [value - mean - slope * (at - middle) for at, value in enumerate(values)]
    scatter = max(math.sqrt(sum(rest * rest for rest in rests) / max(1, count - 2)), LEAST_SCATTER)
    square = sum(rest * rest for rest in rests)
    together = sum(one * other for one, other in pairwise(rests)) / square if square else 0.0
    correlation = min(max(together, CORRELATIONS[0]), CORRELATIONS[1])
    inflation = math.sqrt((1 + correlation) / (1 - correlation))
    return _Line(slope, mean + slope * middle, scatter, inflation * scatter / math.sqrt(spread))
