"""Rules that others use to call a leak or forecast an error; ours is scored with them.

Each sees one level a sample (allocated where it is known, else device used), step floors where they are known
(else the least of each ten seconds), the recent peak, and what the allocator can get. Each is asked every ten
seconds, or at every fourth sample. Of a trend that a rule claims, the forecast time is the room left over
its slope.

- gpulse: least squares over five minutes of raw level, R² of 0.7 or more and 1 MB/s or more (its
  documentation of leak detection).
- 90 % threshold: the recent peak is above 90 % of what the allocator can get.
- least squares: the same window, a slope above zero at 1 % (one-sided t).
- Theil–Sen: the median of pairwise slopes, where its 95 % interval (Sen 1968) is above zero; on raw levels,
  and on step floors, sixty of them.
- Mann–Kendall: a rising trend at 1 % (Mann 1945, Kendall 1975, with the correction for ties), on raw levels.
"""

import math
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from vramscope.analyzers.findings.subjects import subjects_of
from vramscope.engine.model import Sample

from .verdict_detectors import Claim, Forecast
from .verdict_runs.job import Floats, Ints

ASKED_EVERY_S = 10.0
ASKED_EVERY_TICKS = 4
"""Or more seldom, where samples are few."""
RAW_WINDOW_S = 300.0
LEAST_WINDOW_S = 280.0
RAW_POINTS = 120
"""Most points of the raw window that a rule looks at, evenly spaced."""
FLOORS = 60
PEAKS = 30
CONFIRMED, RETRACTED = 2, 6
"""Answers in a row that open a finding of a rule, and that close it."""
OOM_SOON_S = 3600.0
"""A rule warns of an error once it forecasts one within the hour, as vramtop caps it."""
SHARPNESS = 3.0


class Window(NamedTuple):
    """What a rule looks at."""

    times_s: Floats
    levels: Floats
    floor_times_s: Floats
    floors: Floats
    peak: float
    limit: float


class Trend(NamedTuple):
    """What a rule makes of it: a slope that it claims, in bytes a second, or that room is short already."""

    slope: float | None
    is_short: bool = False


Rule = Callable[[Window], Trend]
NOTHING = Trend(None)


def judge_as_gpulse(window: Window) -> Trend:
    """Apply the published rule of gpulse."""
    slope, r_squared, _ = fit_line(window.times_s, window.levels)
    return Trend(slope) if r_squared >= 0.7 and slope >= 1e6 else NOTHING


def judge_by_threshold(window: Window) -> Trend:
    """Alarm at 90 % of what the allocator can get."""
    return Trend(None, is_short=window.peak > 0.9 * window.limit)


def judge_by_least_squares(window: Window) -> Trend:
    """Claim a trend where the slope of the raw level is significantly above zero."""
    slope, _, t = fit_line(window.times_s, window.levels)
    return Trend(slope) if t > 2.33 else NOTHING


def judge_by_theil_sen(window: Window) -> Trend:
    """Claim a trend where the lower bound of the median slope of the raw level is above zero."""
    return _claim_median(window.times_s[::2], window.levels[::2])


def judge_by_theil_sen_on_floors(window: Window) -> Trend:
    """Claim a trend where the lower bound of the median slope of step floors is above zero."""
    return _claim_median(window.floor_times_s, window.floors)


def judge_by_mann_kendall(window: Window) -> Trend:
    """Claim a trend where pairs of raw levels rise more often than chance explains."""
    times, levels = window.times_s[::2], window.levels[::2]
    if len(levels) < 10 or measure_trend(levels) < 2.33:
        return NOTHING
    return Trend(find_median_slope(times, levels)[0])


RULES: dict[str, Rule] = {
    "gpulse": judge_as_gpulse,
    "90 % threshold": judge_by_threshold,
    "least squares": judge_by_least_squares,
    "Theil–Sen": judge_by_theil_sen,
    "Theil–Sen, floors": judge_by_theil_sen_on_floors,
    "Mann–Kendall": judge_by_mann_kendall,
}


def fit_line(times: Floats, levels: Floats) -> tuple[float, float, float]:
    """Return slope, R² and the t value of the slope by least squares; zeros where there is no spread."""
    if len(times) < 10:
        return 0.0, 0.0, 0.0
    x, y = times - times.mean(), levels - levels.mean()
    xx, yy, xy = float(x @ x), float(y @ y), float(x @ y)
    if not xx or not yy:
        return 0.0, 0.0, 0.0
    r_squared = min(xy * xy / (xx * yy), 1.0)
    t = math.inf if r_squared >= 1 else math.sqrt(r_squared * (len(x) - 2) / (1 - r_squared))
    return xy / xx, r_squared, math.copysign(t, xy)


def find_median_slope(times: Floats, levels: Floats) -> tuple[float, float]:
    """Return the median of pairwise slopes and the lower bound of its 95 % interval (Sen 1968)."""
    count = len(times)
    first, second = _pair(count)
    slopes = np.sort((levels[second] - levels[first]) / (times[second] - times[first]))
    spread = 1.96 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = max(int((len(slopes) - spread) / 2), 0)
    return float(slopes[len(slopes) // 2]), float(slopes[low])


def measure_trend(levels: Floats) -> float:
    """Return the standardised statistic of Mann and Kendall, corrected for ties."""
    count = len(levels)
    first, second = _pair(count)
    score = float(np.sign(levels[second] - levels[first]).sum())
    ties = np.unique(levels, return_counts=True)[1].astype(np.float64)
    of_ties = float((ties * (ties - 1) * (2 * ties + 5)).sum())
    variance = (count * (count - 1) * (2 * count + 5) - of_ties) / 18
    return 0.0 if variance <= 0 else (score - math.copysign(1, score)) / math.sqrt(variance) if score else 0.0


@cache
def _pair(count: int) -> tuple[Ints, Ints]:
    """Return the indices of all pairs of so many points."""
    first, second = np.triu_indices(count, 1)
    return first, second


def _claim_median(times: Floats, levels: Floats) -> Trend:
    if len(times) < 10:
        return NOTHING
    slope, low = find_median_slope(times, levels)
    return Trend(slope) if low > 0 else NOTHING


class Watch:
    """The windows that all rules share, filled sample by sample."""

    def __init__(self) -> None:
        self._raw: deque[tuple[float, float]] = deque()
        self._floors: deque[tuple[float, float]] = deque(maxlen=FLOORS)
        self._peaks: deque[float] = deque(maxlen=PEAKS)
        self._limit = 0.0
        self._block_s = -math.inf
        self._asked_s = -math.inf
        self._least = math.inf

    def observe(self, sample: Sample) -> Window | None:
        """Take a sample; return the windows where the rules shall be asked."""
        subject = next(iter(subjects_of(sample)), None)
        if subject is None:
            return None
        allocator, rank, time_s = subject.allocator, subject.rank, sample.time_s
        memory = None if subject.device is None else subject.device.memory
        level = allocator.allocated_bytes
        if level is None:
            level = None if memory is None else memory.used_bytes
        if level is None:
            return None
        self._limit = float(subject.limit_bytes or 0)
        floor = None if rank is None else rank.floor_min_bytes
        peak = None if rank is None else rank.peak_max_bytes
        self._raw.append((time_s, float(level)))
        self._peaks.append(float(peak or allocator.allocated_max_bytes or level))
        self._least = min(self._least, float(level if floor is None else floor))
        if time_s - self._block_s >= ASKED_EVERY_S:
            self._floors.append((time_s, self._least))
            self._block_s, self._least = time_s, math.inf
        while self._raw[0][0] < time_s - RAW_WINDOW_S:
            self._raw.popleft()
        pause_s = max(ASKED_EVERY_S, ASKED_EVERY_TICKS * sample.interval_s)
        if time_s - self._asked_s < pause_s or time_s - self._raw[0][0] < LEAST_WINDOW_S:
            return None
        self._asked_s = time_s
        return self._read()

    def _read(self) -> Window:
        raw = np.array(self._raw)[:: max(1, len(self._raw) // RAW_POINTS)]
        floors = np.array(self._floors)
        columns = (raw[:, 0], raw[:, 1], floors[:, 0], floors[:, 1])
        return Window(*columns, peak=max(self._peaks), limit=self._limit)


class Baseline:
    """One rule as a detector."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.claims: list[Claim] = []
        self._rule = RULES[name]
        self._streaks = {"leak": 0, "oom": 0}
        self._open: dict[str, Claim] = {}
        self._eta_s: float | None = None
        self._asked_s = 0.0

    def judge(self, window: Window) -> None:
        """Ask the rule, and open or close what it claims."""
        trend, time_s = self._rule(window), float(window.times_s[-1])
        self._asked_s = time_s
        self._eta_s = None
        if trend.is_short:
            self._eta_s = 0.0
        elif trend.slope is not None and trend.slope > 0:
            self._eta_s = max(window.limit - window.peak, 0.0) / trend.slope
        self._follow("leak", time_s, is_claimed=self._eta_s is not None)
        self._follow("oom", time_s, is_claimed=self._eta_s is not None and self._eta_s <= OOM_SOON_S)

    def _follow(self, kind: str, time_s: float, *, is_claimed: bool) -> None:
        streak = self._streaks[kind]
        self._streaks[kind] = streak = max(streak, 0) + 1 if is_claimed else min(streak, 0) - 1
        if streak >= CONFIRMED and kind not in self._open:
            self._open[kind] = Claim(f"{kind} {time_s}", kind, time_s)
            self.claims.append(self._open[kind])
        elif streak <= -RETRACTED and kind in self._open:
            self._open.pop(kind).closed_s = time_s

    def forecast(self, time_s: float, horizon_s: float) -> Forecast:
        """Return its forecast: certain where room is short, else a logistic function of its time."""
        if self._eta_s is None:
            return Forecast(0.0, horizon_s)
        left_s = max(self._eta_s - (time_s - self._asked_s), 0.0)
        return Forecast(1 / (1 + (left_s / horizon_s) ** SHARPNESS), horizon_s, left_s)
