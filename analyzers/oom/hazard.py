"""When floors that rise first meet a step that needs more than is left: first passage by its hazard.

A step of amplitude a fails where a > capacity - floor. With floors that rise by r a round and amplitudes as
observed, the hazard of the round j ahead is P(a >= c - r j), c being the room above the floor now, and the
survival is the product of their complements. The empirical distribution is a staircase, so that the sum of
the logarithms of the complements over rounds is one of rectangles, which is walked from the largest
amplitude down.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Amplitude(NamedTuple):
    """How far some rounds reached above their floor."""

    bytes: float
    rounds: float


class Passage(NamedTuple):
    """Rounds until the first passage."""

    low: float
    """10 % quantile."""
    middle: float
    high: float
    """90 % quantile."""


def find_passage(amplitudes: Sequence[Amplitude], room: float, rise: float) -> Passage:
    """Return quantiles of the rounds until a step finds no room.

    Args:
        amplitudes: What rounds took above their floor, falling.
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
