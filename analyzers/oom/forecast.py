"""What is foreseen for one subject at one moment: when, how likely, and what that rests on."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..floors.rate import Line
from .hazard import find_passage, sum_hazard
from .tail import probability_ahead

HORIZON_S = 600.0
"""How far ahead the probability of an assessment looks."""
STEPS_AHEAD = 1000
LEAST_ERROR = 0.01
"""Relative error of a rate that is always allowed for."""
Z80 = 1.2816
"""Standard errors to either side that hold 80 % of a normal distribution."""
RETRIED, PRESSED = 0.1, 0.6
"""Least probability where the device refused memory of late, and where it does so while peaks grow."""
STANDING_DOUBT = 0.04
"""Growth this small a share of the headroom would be believed as often as not."""


class Situation(NamedTuple):
    """What a forecast starts from."""

    time_s: float
    limit_bytes: int
    limit_doubt_bytes: float
    """Standard error of the limit."""
    floor_bytes: float
    amplitudes: Sequence[float]
    """What recent rounds took above their floor, falling; a round is a step, or a few samples."""
    round_s: float
    steps_per_round: float | None
    line: Line | None
    """Through the floors, while they grow."""
    share: float
    """Growth seen so far as a share of the headroom: how much the forecast is believed."""
    has_retried: bool
    """Whether the device refused the allocator memory of late."""
    is_pressed: bool
    """Whether peaks grow while it does so again and again: how high they can go is then not known."""


class Forecast(NamedTuple):
    """What is foreseen; seconds count from the newest sample."""

    probability: float
    """Of an error within `HORIZON_S`."""
    within_steps: float | None
    """Probability of an error within `STEPS_AHEAD` steps."""
    low_s: float | None = None
    """10 % quantile of the time to it."""
    middle_s: float | None = None
    high_s: float | None = None
    belief: float = 0.0
    """Probability that growth goes on until then."""
    is_pressed: bool = False
    """Whether the device refuses memory already while peaks grow."""


def make_forecast(now: Situation) -> Forecast:
    """Return what is foreseen from a situation."""
    line = now.line
    room = now.limit_bytes - now.floor_bytes
    if line is None or line.bytes_per_s <= 0:
        return _forecast_tail(now, room)
    rise = line.bytes_per_s * now.round_s
    error = math.hypot(line.error / line.bytes_per_s, LEAST_ERROR)
    middle = find_passage(now.amplitudes, room, rise)
    spread = Z80 * math.hypot(error * middle.middle, now.limit_doubt_bytes / rise)
    low = middle.middle - math.hypot(middle.middle - middle.low, spread)
    high = middle.middle + math.hypot(middle.high - middle.middle, spread)
    belief = now.share / (now.share + STANDING_DOUBT)
    rooms = [room + z * math.hypot(now.limit_doubt_bytes, error * max(0.0, room)) for z in (-Z80, 0.0, Z80)]
    within = _average(now, rooms, rise, HORIZON_S / now.round_s)
    steps = None
    if now.steps_per_round:
        steps = belief * _average(now, rooms, rise, STEPS_AHEAD / now.steps_per_round)
    return Forecast(
        probability=max(belief * within, _alarm(now)),
        within_steps=steps,
        low_s=max(0.0, low) * now.round_s,
        middle_s=max(0.0, middle.middle) * now.round_s,
        high_s=max(0.0, high) * now.round_s,
        belief=belief,
        is_pressed=now.is_pressed,
    )


def _average(now: Situation, rooms: Sequence[float], rise: float, rounds: float) -> float:
    return sum([sum_hazard(now.amplitudes, room, rise, rounds) for room in rooms]) / len(rooms)


def _alarm(now: Situation) -> float:
    """Return the least probability that refusals of the device stand for."""
    if now.is_pressed:
        return PRESSED
    return RETRIED if now.has_retried else 0.0


def _forecast_tail(now: Situation, room: float) -> Forecast:
    probability = probability_ahead(now.amplitudes, room, HORIZON_S / now.round_s)
    steps = None
    if now.steps_per_round:
        steps = probability_ahead(now.amplitudes, room, STEPS_AHEAD / now.steps_per_round)
    return Forecast(max(probability, _alarm(now)), steps)
