"""Growth of one rank among its peers, looked at over four minutes up to an hour.

A rank grows apart where its distance from the middle of the group rises, does not fall back, does not slow
down, and rises far beyond what its peers move among themselves. The shape is that of the horizon-ratio rule
for leaks: six spans, the later ones rise as the first ones did, and evidence in proportion to the
forecast.
"""

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from ...engine.units import MIB
from ..findings.subjects import SubjectKey

LEAST_SCALE = 2
# Spans of 4, 8 … 64 blocks.
SCALES = 7
SPANS = 6
# Spans, of five, that must rise.
LEAST_RISES = 3
# What the last two spans must rise, as a share of the first two.
STEADY_SHARE = 0.7
# How long the growth must have been seen, as a share of the time in which it would fill the room.
HORIZON_SHARE = 0.10
# Share of the middle floor that it must have risen where the room is unknown.
UNKNOWN_SHARE = 0.10
# Least rise that counts: share of the middle floor, and at least so many bytes.
BAND_SHARE = 0.02
BAND_BYTES = 64 * MIB
# How many times further than its peers moved among themselves the rank must have moved.
APART = 3.0
# Changes below this count as neither rise nor fall.
NOISE_SHARE = 0.0005
NOISE_BYTES = MIB


class Row(NamedTuple):
    # Middle floor of the group, the lower of two.
    middle_bytes: int
    # How far each rank's floor was above it, at the least within the span.
    above: Mapping[SubjectKey, int]


class Rise(NamedTuple):
    # How far it was above the middle before.
    start_bytes: int
    end_bytes: int


class Scales:
    """The newest spans of a group at every scale."""

    def __init__(self) -> None:
        self._rows: list[deque[Row]] = [deque(maxlen=SPANS) for _ in range(SCALES)]
        self._running: list[tuple[int, Row] | None] = [None] * SCALES

    def clear(self) -> None:
        for rows in self._rows:
            rows.clear()
        self._running = [None] * SCALES

    def add(self, number: int, row: Row) -> list[int]:
        """Add one block, later than the last; return the scales at which a span is complete."""
        moved = []
        for scale in range(LEAST_SCALE, SCALES):
            span = number >> scale
            running = self._running[scale]
            if running is not None and running[0] == span:
                self._running[scale] = (span, _join(running[1], row))
                continue
            if running is not None:
                self._rows[scale].append(running[1])
                moved.append(scale)
            self._running[scale] = (span, row)
        return moved

    def find_rise(self, key: SubjectKey, scale: int, room_bytes: int | None) -> Rise | None:
        """Return how a rank grew apart at a scale; None where it did not, or too little was seen.

        `room_bytes` is what is left above its peaks; None where that is unknown.
        """
        rows = self._rows[scale]
        if len(rows) < SPANS:
            return None
        middle = rows[-1].middle_bytes
        noise = max(NOISE_SHARE * middle, NOISE_BYTES)
        values = [row.above[key] for row in rows]
        steps = [later - sooner for sooner, later in pairwise(values)]
        rise = values[-1] - values[0]
        if rise < max(BAND_SHARE * middle, BAND_BYTES) or min(steps) < -noise:
            return None
        is_steady = steps[-1] + steps[-2] >= STEADY_SHARE * (steps[0] + steps[1])
        if not is_steady or sum(step > noise for step in steps) < LEAST_RISES:
            return None
        enough = UNKNOWN_SHARE * middle if room_bytes is None else HORIZON_SHARE * room_bytes
        if rise < max(enough, APART * self._measure_peers(key, scale)):
            return None
        return Rise(values[0], values[-1])

    def _measure_peers(self, key: SubjectKey, scale: int) -> int:
        """Return how far the others moved, relative to the middle, without those that only rose; and the
        middle.
        """
        rows = self._rows[scale]
        middles = [row.middle_bytes for row in rows]
        moves = [max(middles) - min(middles)]
        for peer in rows[-1].above:
            values = [row.above[peer] for row in rows]
            if peer != key and not _only_rises(values):
                moves.append(max(values) - min(values))
        return max(moves)


def _only_rises(values: list[int]) -> bool:
    """Return whether a peer grows apart as well, which is no measure of what is usual."""
    return values[-1] > values[0] and all(b >= a for a, b in pairwise(values))


def _join(one: Row, other: Row) -> Row:
    above = {key: min(value, other.above[key]) for key, value in one.above.items()}
    return Row(min(one.middle_bytes, other.middle_bytes), above)
