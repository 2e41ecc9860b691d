"""What steps take above their floor: the highs of the newest rounds of one subject."""

import math
from collections import deque
from collections.abc import Sequence

from ..floors.beat import Beat
from ..floors.rate import Line
from .hazard import Amplitude

KEPT = 192
OLDER_ROUNDS, OLDER_KEPT = (8, 64), 24
"""Of rounds before these the most of so many is kept, and so many of each: what is rare is forgotten late."""
EXACT, TOGETHER = 24, 8
"""Largest amplitudes that are told one by one, and how many of the others are told as one."""
SPANS_KEPT = 64
SAMPLES = 16
"""Samples that make a round where steps are not known: of so many, the most is near the peak of a step."""
LEVELS_KEPT = 192
TOP = 0.8
"""From which share of the usual peak on a sample is near it."""
FEW_NEAR, MANY_NEAR = 0.06, 0.11
"""Shares of samples near the top: of steps that differ, and of steps that are alike."""
ALIKE, UNLIKE = 0.04, 0.12
"""Spread of what steps take, as a share, up to which they are alike, and from which on they are not."""


class Amplitudes:
    """The highs of the newest rounds; a round is a beat of steps, or a few samples."""

    def __init__(self) -> None:
        self._highs: deque[tuple[float, int, int]] = deque(maxlen=KEPT)
        self._older = [_Maxima(rounds) for rounds in OLDER_ROUNDS]
        self._spans: deque[float] = deque(maxlen=SPANS_KEPT)
        self._beats: list[tuple[int, float]] = []
        self._last_s: float | None = None
        self._is_sampled = False
        self._levels: deque[tuple[float, int]] = deque(maxlen=LEVELS_KEPT)

    def __len__(self) -> int:
        return len(self._highs)

    def add(self, beat: Beat) -> None:
        """Count one beat."""
        self._is_sampled = beat.kind != "step"
        self._beats.append((beat.high_bytes, beat.time_s))
        self._levels.append((beat.time_s, beat.high_bytes))
        if self._is_sampled and len(self._beats) < SAMPLES:
            return
        highs = sorted(self._beats)
        high, time_s = highs[-1]
        if len(self._highs) == KEPT:
            self._forget(*self._highs[0][:2])
        self._highs.append((time_s, high, high - highs[-2][0] if len(highs) > 1 else 0))
        if self._last_s is not None:
            self._spans.append(beat.time_s - self._last_s)
        self._last_s, self._beats = beat.time_s, []

    def above_floor(self, floor: int) -> list[float]:
        """Return how far recent rounds reached above a floor that stands, in bytes, falling."""
        reached = [float(high - floor) for _, high, _ in self._highs]
        return sorted(self._correct(reached, len(reached)), reverse=True)

    def above_line(self, line: Line, onset_s: float) -> list[Amplitude]:
        """Return how far rounds reached above a floor that rises since an onset, falling.

        Rounds long ago count by the most of some of them; the others of these are taken for usual ones.
        """
        times = [(time_s, high) for time_s, high, _ in self._highs]
        counts = [1] * len(times)
        for older in self._older:
            times += older.kept
            counts += [older.rounds] * len(older.kept)
        reached = self._correct(line.measure_above(times, onset_s), len(self._highs))
        recent = sorted(reached[: len(self._highs)])
        others = sum(counts) - len(times)
        found = [(value, 1.0) for value in reached]
        if others:
            found.append((recent[len(recent) // 2], float(others)))
        return _thin(sorted(found, reverse=True))

    def _forget(self, time_s: float, high: int) -> None:
        """Let go of the oldest recent round: the most of some such is remembered for longer."""
        gone: tuple[float, int] | None = (time_s, high)
        rounds = 1
        for older in self._older:
            if gone is not None:
                gone = older.add(*gone, rounds)
            rounds = older.rounds

    def uniformity(self, line: Line, usual_bytes: float) -> float:
        """Return how far steps are alike in what they take: 1 where they are, 0 where they differ much.

        A step that rises and falls about evenly is as likely to be met at any height. So of samples of steps
        that are alike a fifth is found in the uppermost fifth of their height; of steps of all lengths, few.

        Args:
            line: Through the floors.
            usual_bytes: What the larger steps take above them.
        """
        usual = max(1.0, usual_bytes)
        reached = sorted([above / usual for above in line.measure_above(self._levels)])
        if self._is_sampled:
            near = sum([share >= TOP for share in reached]) / len(reached)
            return min(1.0, max(0.0, (near - FEW_NEAR) / (MANY_NEAR - FEW_NEAR)))
        high, low = reached[-1 - len(reached) // 10], reached[len(reached) // 10]
        return min(1.0, max(0.0, (UNLIKE - (high - low) / max(high, 1e-9)) / (UNLIKE - ALIKE)))

    @property
    def round_s(self) -> float | None:
        """Seconds of a round, on average of the newest; None before the second."""
        return sum(self._spans) / len(self._spans) if self._spans else None

    def _correct(self, reached: Sequence[float], recent: int) -> list[float]:
        """Return what steps really reached, of what samples at random moments of them saw.

        The most of some samples falls short of the peak by about as much as the next one falls short of it
        (spacings of the extremes of a uniform sample, David and Nagaraja, section 2.5), and scatters by as
        much. So the shortfall is added, and the scatter that it explains taken out.

        Args:
            reached: What samples saw.
            recent: How many of them, from the first on, tell the scatter.
        """
        if not self._is_sampled or recent < 2:
            return list(reached)
        short = sum([gap for _, _, gap in self._highs]) / len(self._highs)
        mean = sum(reached[:recent]) / recent
        spread = sum([(value - mean) ** 2 for value in reached[:recent]]) / recent
        kept = math.sqrt(max(0.0, 1 - short**2 / spread)) if spread > 0 else 0.0
        return [mean + short + kept * (value - mean) for value in reached]


def _thin(found: Sequence[tuple[float, float]]) -> list[Amplitude]:
    """Return amplitudes as fewer: the largest as they are, of the others some at a time as their middle."""
    thinned = [Amplitude(*one) for one in found[:EXACT]]
    for start in range(EXACT, len(found), TOGETHER):
        some = found[start : start + TOGETHER]
        thinned.append(Amplitude(some[len(some) // 2][0], sum([rounds for _, rounds in some])))
    return thinned


class _Maxima:
    """The most of each so many rounds, one after another, the newest of them."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        """Rounds that each stands for."""
        self.kept: deque[tuple[float, int]] = deque(maxlen=OLDER_KEPT)
        self._most: tuple[float, int] | None = None
        self._count = 0

    def add(self, time_s: float, high: int, rounds: int) -> tuple[float, int] | None:
        """Take the most of some rounds; return what is forgotten here by that, if anything."""
        if self._most is None or high > self._most[1]:
            self._most = (time_s, high)
        self._count += rounds
        if self._count < self.rounds:
            return None
        gone = self.kept[0] if len(self.kept) == OLDER_KEPT else None
        self.kept.append(self._most)
        self._most, self._count = None, 0
        return gone
