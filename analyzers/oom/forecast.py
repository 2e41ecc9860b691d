"""The forecast for one subject at one moment: when, how likely, and what that rests on."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..floors.rate import Line

# When floors that rise first meet a step that needs more than is left: first passage by its hazard.

# A step of amplitude a fails where a > capacity - floor. With floors that rise by r a round and amplitudes as
# observed, the hazard of the round j ahead is P(a >= c - r j), c being the room above the floor now, and the
# survival is the product of their complements. The empirical distribution is a staircase, so that the sum of
# the logarithms of the complements over rounds is one of rectangles, which is walked from the largest
# amplitude down.


class Amplitude(NamedTuple):
    """How far some rounds reached above their floor."""

    bytes: float
    rounds: float


class Passage(NamedTuple):
    """Rounds until the first passage."""

    # 10 % quantile.
    low: float
    middle: float
    # 90 % quantile.
    high: float


def find_passage(amplitudes: Sequence[Amplitude], room: float, rise: float) -> Passage:
    """Return quantiles of the rounds until a step finds no room.

    Args:
        amplitudes: As in `probability_ahead`.
        room: Capacity less the floor now, in bytes.
        rise: Bytes by which the floor rises a round, above 0.
    """
    total = sum([amplitude.rounds for amplitude in amplitudes])
    found = [_walk(amplitudes, total, room, rise, -math.log(1 - share)) for share in (0.1, 0.5, 0.9)]
    return Passage(*found)


def _walk(amplitudes: Sequence[Amplitude], total: float, room: float, rise: float, target: float) -> float:
    """Return the rounds after which the hazards sum up to a target."""
    gathered = seen = 0.0
    for at, amplitude in enumerate(amplitudes, 1):
        seen += amplitude.rounds
        top = min(room, amplitude.bytes)
        if at == len(amplitudes):
            return (room - top) / rise
        bottom = min(room, amplitudes[at].bytes)
        if top == bottom:
            continue
        hazard = -math.log1p(-seen / total)
        width = (target - gathered) * rise / hazard
        if width <= top - bottom:
            return (room - top + width) / rise
        gathered += (top - bottom) * hazard / rise
    return 0.0


def sum_hazard(amplitudes: Sequence[Amplitude], room: float, rise: float, rounds: float) -> float:
    """Return the probability of a passage within so many rounds."""
    total = sum([amplitude.rounds for amplitude in amplitudes])
    end = room - rise * rounds
    gathered = seen = 0.0
    for at, amplitude in enumerate(amplitudes, 1):
        seen += amplitude.rounds
        top = min(room, amplitude.bytes)
        if top <= end:
            break
        if at == len(amplitudes):
            return 1.0
        bottom = max(end, min(room, amplitudes[at].bytes))
        gathered += max(0.0, top - bottom) * -math.log1p(-seen / total) / rise
    return 1.0 - math.exp(-gathered)


# How far ahead the probability of an assessment looks.
HORIZON_S = 600.0
STEPS_AHEAD = 1000
# Least relative error of a rate.
LEAST_ERROR = 0.03
# Standard errors to either side that enclose 80 % of a normal distribution.
Z80 = 1.2816
# The middles of five equally likely parts of a normal distribution, in standard errors.
FIFTHS = (-Z80, -0.5244, 0.0, 0.5244, Z80)
# Least probability where the device recently refused memory: so often an error followed within the horizon on
# the tuning families, where nothing else showed that it would.
RETRIED = 0.1
# Probability that peaks continue to grow where only their growth says so.
PEAK_BELIEF = 0.25
# Growth that has taken a share of the room that is left goes on to the error with probability
# share / (share + this), fitted to the tuning families. Peaks that are expected to go on hardly ever ended.
STANDING_DOUBT = 0.25
STANDING_DOUBT_OF_PEAKS = 0.04
# Growth that has taken less of the room that is left is no reason for a finding yet.
LEAST_SHARE = 0.04
# How much wider the interval is where floors grow in samples: so far from the middle that four of five errors
# of the tuning families are within it. What an allocator cannot use is known too badly there.
SAMPLED_WIDTH = 1.3


class Situation(NamedTuple):
    time_s: float
    limit_bytes: int
    # Standard error of the limit.
    limit_doubt_bytes: float
    floor_bytes: float
    # How far rounds reached above a floor that grows, falling; a round is a step, or a few samples.
    amplitudes: Sequence[Amplitude]
    # How far recent rounds reached above the floor as it is, falling.
    recent: Sequence[float]
    round_s: float
    steps_per_round: float | None
    # Through the floors, while they grow.
    line: Line | None
    # Growth seen so far as a share of the headroom: how much the forecast is believed.
    share: float
    # Whether the device recently refused the allocator memory.
    has_retried: bool
    # Whether growth is expected to continue, if it is growth of peaks.
    is_believed: bool = True
    # Whether peaks grow, above a floor that does not.
    is_of_peaks: bool = False
    # Whether growth is known from the ranks of sampled peaks, or the mean of samples, alone.
    is_scattered: bool = False
    # Whether beats are samples at any moment of a step.
    is_sampled: bool = False


class Forecast(NamedTuple):
    """The forecast; seconds count from the newest sample."""

    # Probability of an error within `HORIZON_S`.
    probability: float
    # Probability of an error within `STEPS_AHEAD` steps.
    within_steps: float | None
    # 10 % quantile of the time to it.
    low_s: float | None = None
    middle_s: float | None = None
    high_s: float | None = None
    # Probability that growth continues until then.
    belief: float = 0.0
    # Whether that is enough for a finding.
    is_believed: bool = False
    # Growth seen so far as a share of the headroom.
    share: float = 0.0
    # Whether peaks grow, above a floor that does not.
    is_of_peaks: bool = False
    # Whether the time is a guess: growth is known from ranks or means of samples alone.
    is_scattered: bool = False


def make_forecast(now: Situation) -> Forecast:
    line = now.line
    room = now.limit_bytes - now.floor_bytes
    least = RETRIED if now.has_retried else 0.0
    if line is None or line.slope_at(now.time_s) <= 0:
        probability = probability_ahead(now.recent, room, HORIZON_S / now.round_s)
        steps = None
        if now.steps_per_round:
            steps = probability_ahead(now.recent, room, STEPS_AHEAD / now.steps_per_round)
        return Forecast(max(probability, least), steps)
    rate = line.slope_at(now.time_s)
    rise = rate * now.round_s
    error = math.hypot(line.whole_error / rate, LEAST_ERROR)
    passage = find_passage(now.amplitudes, room, rise)
    doubt = math.hypot(now.limit_doubt_bytes, line.scatter)
    standing = STANDING_DOUBT_OF_PEAKS if now.is_of_peaks else STANDING_DOUBT
    belief = now.share / (now.share + standing) if now.is_believed else PEAK_BELIEF
    rooms = [room + z * math.hypot(doubt, error * max(0.0, room)) for z in FIFTHS]
    within = _average(now, rooms, rise, _stretch(line, rate, HORIZON_S) / now.round_s)
    steps = None
    if now.steps_per_round:
        ahead_s = STEPS_AHEAD / now.steps_per_round * now.round_s
        steps = belief * _average(now, rooms, rise, _stretch(line, rate, ahead_s) / now.round_s)
    low_s, middle_s, high_s = _find_times(
        now, line, math.hypot(error * passage.middle * now.round_s, doubt / rate), passage
    )
    return Forecast(
        probability=max(belief * within, least),
        within_steps=steps,
        low_s=low_s,
        middle_s=middle_s,
        high_s=high_s,
        belief=belief,
        is_believed=now.is_believed and now.share >= LEAST_SHARE,
        share=now.share,
        is_of_peaks=now.is_of_peaks,
        is_scattered=now.is_scattered,
    )


def _find_times(now: Situation, line: Line, error_s: float, passage: Passage) -> tuple[float, float, float]:
    """Return the 10 %, 50 % and 90 % quantiles of the time to the error, in seconds."""
    low, middle, high = [max(0.0, rounds) * now.round_s for rounds in passage]
    spread = Z80 * error_s
    rate = line.slope_at(now.time_s)
    width = SAMPLED_WIDTH if now.is_sampled and not now.is_of_peaks else 1.0
    low = middle - width * math.hypot(middle - low, spread)
    high = middle + width * math.hypot(high - middle, spread)
    bends = [line.bend + z * line.bend_error for z in (Z80, 0.0, -Z80)] if line.bend else [0.0, 0.0, 0.0]
    times = [_shorten(bend, rate, max(0.0, at)) for bend, at in zip(bends, (low, middle, high), strict=True)]
    return times[0], times[1], times[2]


def _shorten(bend: float, rate: float, straight_s: float) -> float:
    """Return how long growth needs that would need so long at its present rate, while it becomes faster."""
    if bend <= 0.0:
        return straight_s
    return (math.sqrt(rate**2 + 2 * bend * rate * straight_s) - rate) / bend


def _stretch(line: Line, rate: float, seconds: float) -> float:
    """Return how long growth at its present rate would need for what it does in so long."""
    return seconds + line.bend * seconds**2 / 2 / rate


def _average(now: Situation, rooms: Sequence[float], rise: float, rounds: float) -> float:
    return sum([sum_hazard(now.amplitudes, room, rise, rounds) for room in rooms]) / len(rooms)


# Share of the amplitudes that count as the tail.
TAIL_SHARE = 0.1
LEAST_TAIL = 10
# So many amplitudes that reach the largest but for such a share of it mean that something bounds them.
BOUND_TIES = 4
BOUND_SHARE = 0.002
PRIOR_COUNT = 20
# Exceedances that the prior counts for: the belief that lengths have a tail like that of a log-normal
# distribution.
PRIOR_SHAPE = 0.1
# Range of plausible shapes; few exceedances estimate it badly.
SHAPE_BOUNDS = (-0.5, 0.3)


def probability_ahead(amplitudes: Sequence[float], room: float, rounds: float) -> float:
    """Return the probability that one of the next rounds needs more than a room.

    Of exchangeable rounds the next m hold a new record after n with probability m / (m + n), whatever their
    distribution; how far a record goes beyond the last follows from the tail, as exceedances of a high
    threshold follow a generalised Pareto distribution (Pickands 1975). So a job that has kept within bounds
    for long raises no alarm, however near the limit it works.

    Args:
        amplitudes: How far rounds reached above their floor, in bytes, falling, without growth.
        room: Capacity less the floor, in bytes.
        rounds: How many rounds ahead.
    """
    count = len(amplitudes)
    record = rounds / (rounds + count)
    if room < amplitudes[0]:
        return record
    tail = max(LEAST_TAIL, int(count * TAIL_SHARE))
    if count <= tail or _is_bounded(amplitudes):
        return 0.0
    threshold = amplitudes[tail]
    shape, scale = fit_tail([value - threshold for value in amplitudes[:tail]][::-1])
    reached = survive_tail(shape, scale, amplitudes[0] - threshold)
    if scale <= 0.0 or reached <= 0.0:
        return 0.0
    return record * min(1.0, survive_tail(shape, scale, room - threshold) / reached)


def _is_bounded(amplitudes: Sequence[float]) -> bool:
    """Return whether the largest was met again and again, as by batches that are cut at a length."""
    return amplitudes[0] - amplitudes[BOUND_TIES] <= BOUND_SHARE * amplitudes[0]


def fit_tail(excess: Sequence[float]) -> tuple[float, float]:
    """Fit shape and scale of a generalised Pareto distribution to ascending excesses over the threshold.

    The shape is positive for heavy tails.
    """
    count = len(excess)
    first = sum(excess) / count
    second = sum([(count - 1 - place) * value for place, value in enumerate(excess)]) / (count * (count - 1))
    if first <= 0 or first <= 2 * second:
        return 0.0, first
    shape = 2 - first / (first - 2 * second)
    shape = (count * shape + PRIOR_COUNT * PRIOR_SHAPE) / (count + PRIOR_COUNT)
    shape = min(max(shape, SHAPE_BOUNDS[0]), SHAPE_BOUNDS[1])
    return shape, first * (1 - shape)


def survive_tail(shape: float, scale: float, excess: float) -> float:
    """Return the probability that an exceedance is greater than so much."""
    if abs(shape) < 1e-6:
        return math.exp(-excess / scale)
    base = 1 + shape * excess / scale
    return 0.0 if base <= 0 else base ** (-1 / shape)
