"""The steps of one process that ended within a tick: bounds of all, and those whose size was told."""

from collections.abc import Iterable

from ..model import StepReading
from .messages import SizeRow, StepRow

MOST_SIZED = 16
"""Steps of different sizes that a tick tells."""
RETOLD_AFTER_S = 10.0
"""Until steps with exact peaks are told again, for who was not there: an allocator's peak rises only once."""

_Size = tuple[int | None, int | None]
"""Tokens and samples."""


class Extremes:
    """Least and most of one figure within the tick."""

    def __init__(self) -> None:
        self.least: int | None = None
        self.most: int | None = None

    def fold(self, value: int | None) -> None:
        """Take one reading; None is no reading."""
        if value is not None:
            self.least = value if self.least is None else min(value, self.least)
            self.most = value if self.most is None else max(value, self.most)


class TickSteps:
    """Folds steps as they end; of those of one size it keeps the one whose peak says the most."""

    def __init__(self) -> None:
        self.count = 0
        self.floors = Extremes()
        self.peaks = Extremes()
        self.newest: StepReading | None = None
        """The newest step of this tick or of one before."""
        self._sized: dict[_Size, StepReading] = {}
        self._exact: dict[_Size, StepReading] = {}
        """The newest step of each size with an exact peak, of this tick or of one before."""
        self._retold_s: float | None = None

    def list_sized(self, now_s: float) -> tuple[StepReading, ...]:
        """Return steps whose size was told, one of each size, in the order in which they ended.

        Now and then steps of earlier ticks are among them, whose peaks are exact.

        Args:
            now_s: Monotonic seconds.
        """
        if self._retold_s is None:
            self._retold_s = now_s
        told = self._sized
        if self._exact and now_s - self._retold_s >= RETOLD_AFTER_S:
            self._retold_s = now_s
            told = {**self._sized, **self._exact}
        return tuple(sorted(told.values(), key=lambda step: step.index))

    def fold(self, rows: Iterable[StepRow], sizes: Iterable[SizeRow] = ()) -> None:
        """Take steps that ended.

        Args:
            rows: The steps, oldest first.
            sizes: Index, tokens and samples of those whose size was told.
        """
        told = {index: (tokens, batch) for index, tokens, batch in sizes}
        for row in rows:
            self.count += 1
            self.floors.fold(row[3])
            self.peaks.fold(row[4])
            size = told.get(row[0])
            self.newest = StepReading(*row) if size is None else StepReading(*row, *size)
            if size is not None and size != (None, None):
                self._keep(size, self.newest)

    def begin_next(self) -> "TickSteps":
        """Return what folds the next tick; the newest step stays."""
        following = TickSteps()
        following.newest = self.newest
        following._exact = self._exact
        following._retold_s = self._retold_s
        return following

    def _keep(self, size: _Size, step: StepReading) -> None:
        known = self._sized.get(size)
        if known is None or _rank(step) >= _rank(known):
            self._sized[size] = step
            _forget_least(self._sized)
        if step.is_peak_exact and step.floor_bytes is not None:
            self._exact[size] = step
            _forget_least(self._exact)


def _forget_least(steps: dict[_Size, StepReading]) -> None:
    if len(steps) > MOST_SIZED:
        del steps[min(steps, key=lambda size: _rank(steps[size]))]


def _rank(step: StepReading) -> tuple[bool, bool, int]:
    """Return by how much a step tells of what its size needs: exact peaks first, then the greatest."""
    peak = step.peak_bytes
    return step.is_peak_exact and step.floor_bytes is not None, step.floor_bytes is not None, peak or 0
