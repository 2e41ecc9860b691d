"""How far the clock of another node is from ours, as far as one-way messages can tell."""

from collections import deque

from ...engine.model import Sample

REMEMBERED = 32
"""Samples that the estimate rests on."""
LEAST_TOLD_S = 2.0


class ClockOffset:
    """Estimates a node's wall clock less ours.

    A message is late by an unknown delay, never early, so that sample time less the time of arrival is too
    low by that delay; the highest of the newest samples is the least wrong (the clock filter of RFC 5905,
    section 10, without its round trip).
    """

    def __init__(self) -> None:
        self._differences: deque[float] = deque(maxlen=REMEMBERED)
        self._interval_s = 0.0
        self._last_s: float | None = None

    def add(self, sample: Sample, received_s: float) -> None:
        """Take a sample and when it arrived by our wall clock; the same sample twice counts once."""
        if sample.clock != "wall" or sample.time_s == self._last_s:
            return
        self._last_s, self._interval_s = sample.time_s, sample.interval_s
        self._differences.append(sample.time_s - received_s)

    @property
    def offset_s(self) -> float | None:
        """The estimate; None where delay alone may be as large: two seconds and two ticks."""
        highest = max(self._differences, default=None)
        if highest is None or abs(highest) < LEAST_TOLD_S + 2 * self._interval_s:
            return None
        return highest
