"""When the KV pool of an engine runs out at the present arrival rate, from what arrives and what is computed.

The use of a pool follows the arrival of requests late: by Little's law it is the arrival rate times the time
for which a sequence stays, and that time grows with the sequences that run. So the use is computed forward
instead of extended: requests arrive at their present rate and its trend, sequences leave after as many steps
as outputs are long, and a step takes as long as it did with as many sequences before. A wave of load that
stays below the pool has a rate that stays below, however steeply its use rises. Around the use that is
computed lengths and arrivals scatter; a word is given where the end of the pool is within that scatter.

A line through ten minutes of use (`forecast.py`) takes over where a server does not count its requests.
`docs/serving-watch.md` explains the numbers; they were chosen on the tuning workloads of
`benchmarks/serving_verdicts.py`.
"""

import math
from collections import deque
from typing import NamedTuple

from ...engine.model import EngineReading
from .forecast import DEVIATIONS, GAP_S, PoolForecast

SLOT_S = 5.0
# Samples repeat a reading until the next one, and know its time only as well as its age is rounded.
SAME_S = 0.5
# Slots from which there is a forecast, and that are kept.
LEAST_SLOTS = 12
MOST_SLOTS = 60
# Slots over which the present use is a mean: the last half minute, and the last minute.
LEVEL_SLOTS = 6
MINUTE_SLOTS = 12
# Slots over which the share of a sequence is a mean. Outputs are measured by the newest requests, as many
# that came and as many that went: where requests are many, longer outputs are seen within a minute.
SHARE_SLOTS = 4
LENGTH_REQUESTS = 100
# Requests that must have come or gone in these slots: fewer say nothing of their length.
LEAST_REQUESTS = 4
# Below this share of the pool nothing is computed.
LEAST_LEVEL = 0.3
# How far the use is computed ahead for a word, and for the use that is shown with it.
HORIZON_S = 150.0
PEAK_S = 120.0
# Deviations of scatter that are added to the use that is shown, and to that which ends the time left.
SCATTER = 0.5
# Mean square of the size of sequences, over the square of the mean. It decides how the use of a pool
# scatters: the fewer sequences fill it, the more.
SIZE_SPREAD = 2.0
# What is computed is wrong by this share of it as well.
MODEL_ERROR = 0.075
# The scatter around what is computed grows to its full size over this many times the stay of a sequence,
# since what runs now is known and leaves little by little.
MEMORY_STAYS = 2.0
# A word is given where the end of the pool is no more than this many deviations above the use ahead, with a
# part of those above the use at which the pool would settle: with what requests took over the last hour at
# the rate of so many seconds ahead, or with what they take now at the present rate, whichever is less.
ROOM_DEVIATIONS = 1.85
SETTLED_PART = 0.3
SETTLE_AHEAD_S = 60.0
SETTLED_LEAST, SETTLED_MOST = -2.0, 8.0
# Deviations less for a server whose requests always wait though its pool has room: it computes all that it
# can, and its pool fills little further. Readings of the last so many seconds count.
QUEUE_DEVIATIONS = 4.0
QUEUE_S = 60.0
# Deviations up to which the use of the last minute alone gives a word, queue or not.
PRESENT_DEVIATIONS = 1.0
# A sequence that takes more than the first share of the pool is large: few fill it, and its end has no time.
# Above the second share one look is not enough, since a few long sequences come and go.
LARGE_SHARE = 0.012
FEW_SHARE = 0.04
FEW_LOOKS = 3
# What a request takes of the pool is a mean over more than the slots that are kept, since they hold too few:
# it is forgotten after so many requests or seconds, whichever come later.
USUAL_REQUESTS = 400.0
USUAL_S = 3600.0
# The arrival rate: what its trend (a second) and its level (a slot) may change by, as a share of the rate,
# and how much of a trend is left after a slot.
TREND_CHANGE = 0.004
LEVEL_CHANGE = 0.015
TREND_KEPT = 0.98
# The same of the rate at which a pool settles.
SLOW_TREND_CHANGE = 0.002
SLOW_TREND_KEPT = 0.99
# Stages that a sequence goes through before it leaves: two make the times of stay vary as lengths do.
STAGES = 2
# Slots whose arrivals say which stage the sequences of now are in.
STAGE_SLOTS = 48
# Times of steps are kept apart by the sequences that ran, in bins of a quarter octave; the older count less.
BINS_PER_OCTAVE = 4
BIN_KEPT = 0.9
MOST_BIN_S = 100.0
# Step of the computation ahead, and how far it looks for the time at which the pool is full.
AHEAD_STEP_S = 10.0
AHEAD_S = 600.0


class _Slot(NamedTuple):
    seconds: float
    running: float
    """Mean."""
    used_share: float
    """Mean."""
    arrived: int
    left: int
    tokens: int


class _Point(NamedTuple):
    """One reading of the server's own numbers."""

    time_s: float
    running: int
    waiting: int
    used_share: float
    finished: int
    tokens: int

    @property
    def arrived(self) -> int:
        """Requests since the start."""
        return self.finished + self.running + self.waiting


class _Rate:
    """The arrival rate and its trend, filtered: what is seen is a count whose variance is its mean."""

    def __init__(
        self,
        first_per_s: float,
        seconds: float,
        trend_change: float = TREND_CHANGE,
        trend_kept: float = TREND_KEPT,
    ) -> None:
        self._trend_change = trend_change
        self._trend_kept = trend_kept
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
        kept = self._trend_kept ** (seconds / SLOT_S)
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
        trend_variance = kept**2 * self._trend_variance + (self._trend_change * scale) ** 2 * (1 - kept**2)
        total = level_variance + max(level, 0.5 / seconds) / seconds
        surprise = per_s - level
        self.level = max(0.0, level + level_variance / total * surprise)
        self.trend = trend + common / total * surprise
        self._trend_variance = trend_variance - common * common / total
        self._common = common * (1 - level_variance / total)
        self._level_variance = level_variance * (1 - level_variance / total)

    def ahead(self, seconds: float, deviations: float = 0.0) -> float:
        """Return the rate in so many seconds; its trend fades."""
        decay = -math.log(self._trend_kept) / SLOT_S
        level = self.level + deviations * self.error
        return max(0.0, level + self.trend * (1 - math.exp(-decay * seconds)) / decay)


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

    def fit(self) -> tuple[float, float] | None:
        """Return seconds of a step without sequences, and what each sequence adds."""
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
        return max(1e-4, step_s - each_s * running), each_s


class _Model(NamedTuple):
    """What the slots say of an engine now."""

    step_s: float
    each_s: float
    output_tokens: float
    """Mean of a request."""
    share: float
    """Of the pool, of one sequence."""

    def leave_per_s(self, running: float) -> float:
        """Return how quickly one of so many sequences goes from one stage to the next."""
        return STAGES / (self.output_tokens * (self.step_s + self.each_s * running))

    def advance(
        self, stages: list[float], arrive_per_s: float, running: float, seconds: float
    ) -> list[float]:
        """Return the sequences of each stage after some seconds."""
        per_s = self.leave_per_s(running)
        fade = math.exp(-per_s * seconds)
        moved = []
        for count in stages:
            settled = arrive_per_s / per_s
            new = settled + (count - settled) * fade
            moved.append(new)
            arrive_per_s = max(0.0, arrive_per_s - (new - count) / seconds)
        return moved

    def use(self, stages: list[float]) -> float:
        """Return the share of the pool that will be used, with the scatter that is allowed for."""
        mean = self.share * sum(stages)
        return mean + SCATTER * math.sqrt(max(0.0, SIZE_SPREAD * self.share * mean))


class _Usual:
    """What a request takes of the pool, over an hour or some hundred requests."""

    def __init__(self) -> None:
        self._running_s = self._used_s = 0.0
        self._requests = self._tokens = 0.0

    def add(self, slot: _Slot) -> None:
        kept = math.exp(-min(slot.arrived / USUAL_REQUESTS, slot.seconds / USUAL_S))
        self._running_s = kept * self._running_s + slot.running * slot.seconds
        self._used_s = kept * self._used_s + slot.used_share * slot.seconds
        self._requests = kept * self._requests + slot.arrived + slot.left
        self._tokens = kept * self._tokens + slot.tokens

    @property
    def share(self) -> float:
        """Of the pool, of one sequence; 0 where none has run."""
        return self._used_s / self._running_s if self._running_s else 0.0

    @property
    def output_tokens(self) -> float:
        """Mean of a request."""
        return 2 * self._tokens / max(1.0, self._requests)


def _measure_room(share: float, use: float, grown: float = 1.0) -> float:
    """Return how many deviations the end of the pool is above a mean use.

    Args:
        share: Of the pool, of one sequence.
        grown: Share of its full variance that the scatter has reached.
    """
    if math.isinf(use):
        return -math.inf
    variance = SIZE_SPREAD * share * use + (MODEL_ERROR * use) ** 2
    return (1.0 - use) / math.sqrt(max(1e-12, grown * variance))


def _measure_settled(model: _Model, share: float, tokens_per_s: float) -> float:
    """Return the room, in deviations, of the use at which a pool settles that is asked for so many tokens."""
    idle = 1.0 - tokens_per_s * model.each_s
    return _measure_room(share, share * tokens_per_s * model.step_s / idle if idle > 0.0 else math.inf)


class ArrivalTrack:
    """The requests and the pool of one engine over the last minutes."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget everything: what happened since the last reading is unknown."""
        self._slots: deque[_Slot] = deque(maxlen=MOST_SLOTS)
        self._rate: _Rate | None = None
        self._slow_rate: _Rate | None = None
        self._steps = _Steps()
        self._usual = _Usual()
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
        if (
            engine.running is None
            or engine.waiting is None
            or engine.used_share is None
            or engine.finished is None
            or engine.generation_tokens is None
        ):
            self.restart()
            return False
        point = _Point(
            time_s,
            engine.running,
            engine.waiting,
            engine.used_share,
            engine.finished,
            engine.generation_tokens,
        )
        last = self._points[-1] if self._points else None
        if last is not None and abs(time_s - last.time_s) < SAME_S:
            return False
        if last is not None and not (
            0.0 < time_s - last.time_s <= GAP_S
            and point.finished >= last.finished
            and point.tokens >= last.tokens
        ):
            self.restart()
            last = None
        if last is not None:
            kept = math.exp(-(time_s - last.time_s) / QUEUE_S)
            self._queued = kept * self._queued + (1.0 - kept) * (point.waiting > 0)
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
        if seconds > 0:
            slot = _Slot(
                seconds,
                sum(point.running for point in points) / len(points),
                sum(point.used_share for point in points) / len(points),
                max(0, end.arrived - begin.arrived),
                end.finished - begin.finished,
                end.tokens - begin.tokens,
            )
            self._slots.append(slot)
            self._steps.add(slot)
            self._usual.add(slot)
            per_s = slot.arrived / seconds
            if self._rate is None or self._slow_rate is None:
                self._rate = _Rate(per_s, seconds)
                self._slow_rate = _Rate(per_s, seconds, SLOW_TREND_CHANGE, SLOW_TREND_KEPT)
            else:
                self._rate.add(per_s, seconds)
                self._slow_rate.add(per_s, seconds)

    def forecast(self, *, is_busy: bool = False) -> PoolForecast | None:
        """Return what is about to happen to the pool; None where it does not run out.

        Args:
            is_busy: Whether so many requests wait that the engine computes all that it can.
        """
        if len(self._slots) < LEAST_SLOTS or self._rate is None:
            return None
        slots = list(self._slots)
        level = max(slots[-1].used_share, sum(it.used_share for it in slots[-LEVEL_SLOTS:]) / LEVEL_SLOTS)
        model = None if level < LEAST_LEVEL else self._describe(slots)
        if model is None:
            return None
        stages = self._find_stages(model, slots)
        minute = sum(slot.used_share for slot in slots[-MINUTE_SLOTS:]) / MINUTE_SLOTS
        is_full = _measure_room(self._usual.share, minute) <= PRESENT_DEVIATIONS
        if not is_full and (is_busy or not self._fills(model, stages, slots)):
            return None
        share = self._usual.share
        peak, in_s = _look_ahead(model, stages, self._rate, 0.0)
        return PoolForecast(
            in_s,
            _look_ahead(model, stages, self._rate, DEVIATIONS)[1],
            _look_ahead(model, stages, self._rate, -DEVIATIONS)[1],
            max(0.0, (1.0 - level) / in_s if in_s else (peak - level) / PEAK_S),
            sum(slot.seconds for slot in slots),
            min(1.0, peak),
            self._rate.level,
            round(1.0 / share) if share > LARGE_SHARE else None,
            FEW_LOOKS if share > FEW_SHARE else 1,
        )

    def _fills(self, model: _Model, stages: list[float], slots: list[_Slot]) -> bool:
        """Return whether the use of the next minutes may reach the end of the pool.

        This is a first passage: the mean use is computed ahead, and its scatter grows from what is known of
        the present to all that lengths and arrivals make of it.
        """
        if self._rate is None or self._slow_rate is None:
            return False
        usual = self._usual
        stay_s = MEMORY_STAYS * model.output_tokens * (model.step_s + model.each_s * sum(stages))
        # What requests took over the last hour is known better, and what they take now is newer.
        share = sum(slot.used_share for slot in slots) / sum(slot.running for slot in slots)
        settled = min(
            _measure_settled(model, usual.share, usual.output_tokens * self._slow_rate.ahead(SETTLE_AHEAD_S)),
            _measure_settled(model, share, model.output_tokens * self._slow_rate.level),
        )
        asked = ROOM_DEVIATIONS - QUEUE_DEVIATIONS * self._queued
        asked -= SETTLED_PART * min(max(settled, SETTLED_LEAST), SETTLED_MOST)
        # The first look is at now, which is as uncertain as half a step.
        ahead_s = 0.0
        while ahead_s <= HORIZON_S:
            grown = 1.0 - math.exp(-2.0 * max(ahead_s, AHEAD_STEP_S / 2) / stay_s)
            if _measure_room(usual.share, model.share * sum(stages), grown) <= asked:
                return True
            arrive_per_s = self._rate.ahead(ahead_s + AHEAD_STEP_S / 2)
            stages = model.advance(stages, arrive_per_s, sum(stages), AHEAD_STEP_S)
            ahead_s += AHEAD_STEP_S
        return False

    def _describe(self, slots: list[_Slot]) -> _Model | None:
        steps = self._steps.fit()
        requests = tokens = 0
        for number, slot in enumerate(reversed(slots), 1):
            requests += slot.arrived + slot.left
            tokens += slot.tokens
            if number >= MINUTE_SLOTS and requests >= 2 * LENGTH_REQUESTS:
                break
        newest = slots[-SHARE_SLOTS:]
        running = sum(slot.running for slot in newest)
        used = sum(slot.used_share for slot in newest)
        if steps is None or requests <= LEAST_REQUESTS or tokens <= 0 or running <= 0 or used <= 0:
            return None
        # Those that came have generated less than all of their output here, those that left the rest.
        return _Model(*steps, 2 * tokens / requests, used / running)

    def _find_stages(self, model: _Model, slots: list[_Slot]) -> list[float]:
        """Return the sequences that run now by stage, from what arrived over the last minutes."""
        stages = [0.0] * STAGES
        for slot in slots[-STAGE_SLOTS:]:
            stages = model.advance(stages, slot.arrived / slot.seconds, slot.running, slot.seconds)
        scale = max(slots[-1].running, 0.1) / (sum(stages) or 1.0)
        return [scale * count for count in stages]


def _look_ahead(
    model: _Model, stages: list[float], rate: _Rate, deviations: float
) -> tuple[float, float | None]:
    """Return the most that is used within two minutes, and when the pool is full; None if not soon."""
    peak = model.use(stages)
    if peak >= 1.0:
        return peak, 0.0
    for number in range(1, int(AHEAD_S / AHEAD_STEP_S) + 1):
        ahead_s = number * AHEAD_STEP_S
        arrive_per_s = rate.ahead(ahead_s - AHEAD_STEP_S / 2, deviations)
        stages = model.advance(stages, arrive_per_s, sum(stages), AHEAD_STEP_S)
        use = model.use(stages)
        if ahead_s <= PEAK_S:
            peak = max(peak, use)
        if use >= 1.0:
            return peak, ahead_s
    return peak, None
