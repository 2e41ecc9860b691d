"""When the KV pool of an engine runs out at the present arrival rate, from what arrives and what is computed.

The use of a pool follows the arrival of requests late. So it is computed forward instead of extended:
requests arrive at their present rate and its trend, a step takes as long as it did with as many sequences
before, and `pool_model.py` follows the sequences that run and those that come. A wave of load that stays
below the pool has a rate that stays below, however steeply its use rises. A word is given from a chance on
that the use of the next two minutes reaches the end of the pool.

A line through ten minutes of use (`forecast.py`) takes over where a server does not count its requests.
`docs/serving-watch.md` explains the numbers; they were chosen on the earlier workloads of
`benchmarks/serving_verdicts.py`.
"""

import math
from collections import deque
from typing import NamedTuple

from ...engine.model import EngineReading
from .forecast import DEVIATIONS, GAP_S, PoolForecast
from .pool_model import Count, Law, PoolModel, Use

SLOT_S = 5.0
# Samples repeat a reading until the next one, and know its time only as well as its age is rounded.
SAME_S = 0.5
# Slots from which there is a forecast, and that are kept.
LEAST_SLOTS = 12
MOST_SLOTS = 60
# Slots over which the present use is a mean.
LEVEL_SLOTS = 6
# Outputs are measured by the newest requests, as many that began and as many that left, over a minute at
# least: where requests are many, longer outputs are seen within a minute.
LENGTH_REQUESTS = 100
LENGTH_SLOTS = 12
# Requests that must have begun or left in these slots: fewer say nothing of their length.
LEAST_REQUESTS = 8
# Below this share of the pool nothing is computed.
LEAST_LEVEL = 0.3
# How far the use is computed ahead for a word, and for the use that is shown with it.
STEP_S = 10.0
PEAK_S = 120.0
# Chance from which a word is given.
LEAST_CHANCE = 0.11
# What is computed is wrong by this share of it as well, in full where all of it has yet to come, and the rate
# by this share of its standard error.
MODEL_ERROR = 0.07
LEAST_ERROR_PART = 0.2
RATE_ERROR = 0.8
# Sizes of sequences are skewed, and so is the use of a pool: for each deviation squared that its end is away,
# it is nearer by this share of the relative scatter.
SKEW = 0.075
# A server whose requests wait though its pool has room computes all that it can, and its pool fills little
# further. The chance is less by this exponent where they always wait; readings of the last so many seconds
# count.
QUEUE_EXPONENT = 4.0
QUEUE_S = 60.0
# Deviations of scatter that are added to the use that is shown, and to that which ends the time left.
SCATTER = 0.5
# A sequence that takes more than the first share of the pool is large: few fill it, its end has no time, and
# so many looks in a row must agree. Where it takes more than the second share the chance is less by the
# exponent: which of a few sequences are long is known worst.
LARGE_SHARE = 0.012
LARGE_LOOKS = 2
FEW_SHARE = 0.035
FEW_EXPONENT = 1.5
# The arrival rate: what its trend (a second) and its level (a slot) may change by, as a share of the rate,
# and how much of a trend is left after a slot.
TREND_CHANGE = 0.004
LEVEL_CHANGE = 0.015
TREND_KEPT = 0.98
# Times of steps are kept apart by the sequences that ran, in bins of a quarter octave; the older count less.
BINS_PER_OCTAVE = 4
BIN_KEPT = 0.9
MOST_BIN_S = 100.0
# Steps in which the time is looked for at which the pool is full, and how far.
AHEAD_STEP_S = 30.0
AHEAD_S = 600.0


class _Slot(NamedTuple):
    seconds: float
    running: float
    """Mean."""
    used_share: float
    """Mean."""
    admitted: int
    left: int
    tokens: int


class _Point(NamedTuple):
    """One reading of the server's own numbers."""

    time_s: float
    engine: Count

    @property
    def began(self) -> int:
        """Requests since the start that were admitted."""
        return self.engine.finished + self.engine.running

    @property
    def arrived(self) -> int:
        """Requests since the start."""
        return self.began + self.engine.waiting


class _Rate:
    """The arrival rate and its trend, filtered: what is seen is a count whose variance is its mean."""

    def __init__(self, first_per_s: float, seconds: float) -> None:
        self.level = first_per_s
        self.trend = 0.0
        self._level_variance = max(first_per_s, 0.1) / seconds + (0.5 * first_per_s) ** 2
        self._common = 0.0
        self._trend_variance = (0.001 * max(first_per_s, 0.1)) ** 2

    @property
    def error(self) -> float:
        """Standard error of the level."""
        return math.sqrt(max(0.0, self._level_variance))

    def add(self, per_s: float, seconds: float) -> None:
        kept = TREND_KEPT ** (seconds / SLOT_S)
        level = self.level + self.trend * seconds
        trend = kept * self.trend
        scale = max(self.level, 0.05)
        common = kept * (self._common + seconds * self._trend_variance)
        level_variance = (
            self._level_variance
            + 2 * seconds * self._common
            + seconds * seconds * self._trend_variance
            + (LEVEL_CHANGE * scale) ** 2
        )
        trend_variance = kept**2 * self._trend_variance + (TREND_CHANGE * scale) ** 2 * (1 - kept**2)
        total = level_variance + max(level, 0.5 / seconds) / seconds
        surprise = per_s - level
        self.level = max(0.0, level + level_variance / total * surprise)
        self.trend = trend + common / total * surprise
        self._trend_variance = trend_variance - common * common / total
        self._common = common * (1 - level_variance / total)
        self._level_variance = level_variance * (1 - level_variance / total)

    def ahead(self, seconds: float, deviations: float = 0.0) -> float:
        """Return the rate in so many seconds; its trend fades."""
        decay = -math.log(TREND_KEPT) / SLOT_S
        level = self.level + deviations * self.error
        return max(0.0, level + self.trend * (1 - math.exp(-decay * seconds)) / decay)


class _StepTime(NamedTuple):
    """Seconds of a step without sequences, and what each sequence adds."""

    step_s: float
    each_s: float

    def find_s(self, running: float) -> float:
        return self.step_s + self.each_s * running


class _Steps:
    """How long a step takes with so many sequences: a line through what was seen, at each number of them."""

    def __init__(self) -> None:
        # Sequence seconds, tokens, seconds.
        self._bins: dict[int, tuple[float, float, float]] = {}

    def add(self, slot: _Slot) -> None:
        if slot.running < 1.0 or slot.tokens <= 0:
            return
        key = int(BINS_PER_OCTAVE * math.log2(slot.running))
        sequences, tokens, seconds = self._bins.get(key, (0.0, 0.0, 0.0))
        self._bins[key] = (
            BIN_KEPT * sequences + slot.running * slot.seconds,
            BIN_KEPT * tokens + slot.tokens,
            BIN_KEPT * seconds + slot.seconds,
        )

    def fit(self) -> _StepTime | None:
        """Return the line; None before anything was computed."""
        points = [
            (sequences / seconds, sequences / tokens, min(seconds, MOST_BIN_S))
            for sequences, tokens, seconds in self._bins.values()
        ]
        weight = sum(point[2] for point in points)
        if not weight:
            return None
        running = sum(point[0] * point[2] for point in points) / weight
        step_s = sum(point[1] * point[2] for point in points) / weight
        spread = sum(point[2] * (point[0] - running) ** 2 for point in points)
        together = sum(point[2] * (point[0] - running) * (point[1] - step_s) for point in points)
        each_s = max(0.0, together / spread) if spread > 0 else 0.0
        return _StepTime(max(1e-4, step_s - each_s * running), each_s)


class ArrivalTrack:
    """The requests and the pool of one engine over the last minutes."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget everything: what happened since the last reading is unknown."""
        self._slots: deque[_Slot] = deque(maxlen=MOST_SLOTS)
        self._rate: _Rate | None = None
        self._steps = _Steps()
        self._model = PoolModel()
        self._law: Law | None = None
        self._pool_tokens = 1
        self._begin: _Point | None = None
        self._points: list[_Point] = []

        # Share of the newest readings in which requests waited.
        self._queued = 0.0

    @property
    def is_known(self) -> bool:
        """Whether the server counts what this needs."""
        return bool(self._points)

    def add(self, time_s: float, engine: EngineReading) -> bool:
        """Note one reading; return whether a slot is complete and a forecast is worth asking for."""
        count = _read_count(engine)
        if count is None or not engine.pool_tokens:
            self.restart()
            return False
        self._pool_tokens = engine.pool_tokens
        point = _Point(time_s, count)
        last = self._points[-1] if self._points else None
        if last is not None and abs(time_s - last.time_s) < SAME_S:
            return False
        if last is not None and not (
            0.0 < time_s - last.time_s <= GAP_S
            and count.finished >= last.engine.finished
            and count.generated >= last.engine.generated
        ):
            self.restart()
            self._pool_tokens = engine.pool_tokens
            last = None
        if last is not None:
            seconds = time_s - last.time_s
            kept = math.exp(-seconds / QUEUE_S)
            self._queued = kept * self._queued + (1.0 - kept) * (count.waiting > 0)
            self._model.add(seconds, last.engine, count, self._law)
        is_complete = last is not None and int(time_s // SLOT_S) != int(last.time_s // SLOT_S)
        if is_complete:
            self._complete()
        self._points.append(point)
        return is_complete

    def _complete(self) -> None:
        points = self._points
        end = points[-1]
        begin = self._begin or points[0]
        self._begin = end
        self._points = []
        seconds = end.time_s - begin.time_s
        if seconds <= 0:
            return
        slot = _Slot(
            seconds,
            sum(point.engine.running for point in points) / len(points),
            sum(point.engine.used_share for point in points) / len(points),
            max(0, end.began - begin.began),
            end.engine.finished - begin.engine.finished,
            end.engine.generated - begin.engine.generated,
        )
        self._slots.append(slot)
        self._steps.add(slot)
        per_s = max(0, end.arrived - begin.arrived) / seconds
        if self._rate is None:
            self._rate = _Rate(per_s, seconds)
        else:
            self._rate.add(per_s, seconds)
        if len(self._slots) >= LEAST_SLOTS:
            self._law = self._measure() or self._law

    def _measure(self) -> Law | None:
        """Return how long outputs are; None where too few requests began and left."""
        requests = tokens = 0
        for number, slot in enumerate(reversed(self._slots), 1):
            requests += slot.admitted + slot.left
            tokens += slot.tokens
            if number >= LENGTH_SLOTS and requests >= 2 * LENGTH_REQUESTS:
                break
        # Those that began have generated less than all of their output here, those that left the rest.
        return Law.of_mean(2 * tokens / requests) if requests > LEAST_REQUESTS and tokens > 0 else None

    def forecast(self) -> PoolForecast | None:
        """Return what is about to happen to the pool; None where it does not run out."""
        slots = list(self._slots)
        steps = self._steps.fit()
        law, rate, prompt = self._law, self._rate, self._model.prompt
        if len(slots) < LEAST_SLOTS or steps is None or law is None or rate is None or prompt is None:
            return None
        newest = slots[-LEVEL_SLOTS:]
        level = max(slots[-1].used_share, sum(it.used_share for it in newest) / len(newest))
        if level < LEAST_LEVEL:
            return None
        uses = self._look_ahead(law, steps, rate, 0.0, STEP_S, PEAK_S)
        stay_s = max(1.0, law.mean * steps.find_s(slots[-1].running))
        chance = _find_chance(uses, min(1.0, rate.error / max(rate.level, 0.05)), stay_s)
        share = (prompt + law.mean_age) / self._pool_tokens
        chance *= math.exp(-QUEUE_EXPONENT * self._queued) * min(1.0, FEW_SHARE / share) ** FEW_EXPONENT
        if chance < LEAST_CHANCE:
            return None
        times = [
            _find_end(level, self._look_ahead(law, steps, rate, deviations, AHEAD_STEP_S, AHEAD_S))
            for deviations in (0.0, DEVIATIONS, -DEVIATIONS)
        ]
        peak = max(map(_add_scatter, uses))
        is_large = share > LARGE_SHARE
        return PoolForecast(
            times[0],
            times[1],
            times[2],
            max(0.0, (1.0 - level) / times[0] if times[0] else (peak - level) / PEAK_S),
            sum(slot.seconds for slot in slots),
            min(1.0, peak),
            rate.level,
            round(1.0 / share) if is_large else None,
            LARGE_LOOKS if is_large else 1,
        )

    def _look_ahead(
        self, law: Law, steps: _StepTime, rate: _Rate, deviations: float, every_s: float, until_s: float
    ) -> list[Use]:
        return self._model.look_ahead(
            self._points[-1].engine,
            law,
            steps.find_s,
            lambda ahead_s: rate.ahead(ahead_s, deviations),
            self._pool_tokens,
            every_s=every_s,
            looks=round(until_s / every_s),
        )


def _read_count(engine: EngineReading) -> Count | None:
    """Return what is needed of a reading; None where the server does not say it."""
    if (
        engine.running is None
        or engine.waiting is None
        or engine.pool_tokens is None
        or engine.used_share is None
        or engine.finished is None
        or engine.generation_tokens is None
    ):
        return None
    prompts = engine.prompt_tokens
    if engine.prefix_queries is not None and engine.prefix_hits is not None:
        prompts = engine.prefix_queries - engine.prefix_hits
    if prompts is None:
        return None
    return Count(
        engine.running,
        engine.waiting,
        engine.used_share * engine.pool_tokens,
        engine.used_share,
        engine.finished,
        engine.generation_tokens,
        prompts,
    )


def _add_scatter(use: Use) -> float:
    return use.mean + SCATTER * math.sqrt(use.variance)


def _find_chance(uses: list[Use], rate_error: float, stay_s: float) -> float:
    """Return about how many times the use will reach the end of the pool: up to 1, a chance.

    The use within a stay of a sequence is one chance, and later ones are further chances.

    Args:
        rate_error: Standard error of the arrival rate, as a share of it.
    """
    most = total = 0.0
    for use in uses:
        variance = use.variance + (RATE_ERROR * rate_error * use.arriving) ** 2
        part = min(1.0, use.arriving / max(use.mean, 0.01) + LEAST_ERROR_PART)
        scatter = math.sqrt(max(1e-6, variance + part * (MODEL_ERROR * use.mean) ** 2))
        room = (1.0 - use.mean) / scatter
        if room > 0.5:
            room -= SKEW * scatter / max(use.mean, 0.1) * (room * room - 1.0)
        chance = 0.5 * math.erfc(room / math.sqrt(2.0))
        most = max(most, chance)
        total += chance * min(1.0, STEP_S / stay_s)
    return most + total


def _find_end(now: float, uses: list[Use]) -> float | None:
    """Return in how many seconds a use reaches the end of the pool, with the scatter that is allowed for."""
    last_s, last = 0.0, now
    for use in uses:
        share = _add_scatter(use)
        if share >= 1.0:
            part = (1.0 - last) / (share - last) if share > last else 1.0
            return last_s + (use.ahead_s - last_s) * max(0.0, part)
        last_s, last = use.ahead_s, share
    return None
