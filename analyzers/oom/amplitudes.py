"""What steps take above their floor: the highs of the newest rounds of one subject."""

import math
from collections import deque
from collections.abc import Sequence

from ..floors.beat import Beat
from ..floors.rate import Line

KEPT = 192
SPANS_KEPT = 64
SAMPLES = 16
"""Samples that make a round where steps are not known: of so many, the most is near the peak of a step."""


class Amplitudes:
    """The highs of the newest rounds; a round is a beat of steps, or a few samples."""

    def __init__(self) -> None:
        self._highs: deque[tuple[float, int, int]] = deque(maxlen=KEPT)
        self._spans: deque[float] = deque(maxlen=SPANS_KEPT)
        self._beats: list[tuple[int, float]] = []
        self._last_s: float | None = None
        self._is_sampled = False

    def __len__(self) -> int:
        return len(self._highs)

    def add(self, beat: Beat) -> None:
        """Count one beat."""
        self._is_sampled = beat.kind != "step"
        self._beats.append((beat.high_bytes, beat.time_s))
        if self._is_sampled and len(self._beats) < SAMPLES:
            return
        highs = sorted(self._beats)
        high, time_s = highs[-1]
        self._highs.append((time_s, high, high - highs[-2][0] if len(highs) > 1 else 0))
        if self._last_s is not None:
            self._spans.append(beat.time_s - self._last_s)
        self._last_s, self._beats = beat.time_s, []

    def above_floor(self, floor: int) -> list[float]:
        """Return how far rounds reached above a floor that stands, in bytes, falling."""
        return self._correct([float(high - floor) for _, high, _ in self._highs])

    def above_line(self, line: Line, onset_s: float) -> list[float]:
        """Return how far rounds reached above a floor that rises since an onset, in bytes, falling."""
        return self._correct([high - line.level_at(max(time_s, onset_s)) for time_s, high, _ in self._highs])

    @property
    def round_s(self) -> float | None:
        """Seconds of a round, on average of the newest; None before the second."""
        return sum(self._spans) / len(self._spans) if self._spans else None

    def _correct(self, reached: Sequence[float]) -> list[float]:
        """Return what steps really reached, of what samples at random moments of them saw.

        The most of some samples falls short of the peak by about as much as the next one falls short of it
        (spacings of the extremes of a uniform sample, David and Nagaraja, section 2.5), and scatters by as
        much. So the shortfall is added, and the scatter that it explains taken out.
        """
        if not self._is_sampled or len(reached) < 2:
            return sorted(reached, reverse=True)
        short = sum([gap for _, _, gap in self._highs]) / len(self._highs)
        mean = sum(reached) / len(reached)
        spread = sum([(value - mean) ** 2 for value in reached]) / len(reached)
        kept = math.sqrt(max(0.0, 1 - short**2 / spread)) if spread > 0 else 0.0
        return sorted([mean + short + kept * (value - mean) for value in reached], reverse=True)
