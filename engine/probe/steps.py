"""Training steps: when they end, how long they took, and between which bytes they moved."""

from __future__ import annotations

from typing import NamedTuple

from .backends import NOTHING, Reading
from .wire import StepRow


class StepEnd(NamedTuple):
    """What is noted in the thread that trains when a step ends."""

    monotonic_s: float
    wall_s: float
    reading: Reading


class StepBoundaries:
    """Tells which calls of optimizers end a step.

    Of several optimizers the one that stepped first ends the step when it steps again; where another steps
    twice meanwhile, it takes over.
    """

    def __init__(self) -> None:
        self.is_explicit = False
        """Whether the program marks its steps itself."""
        self._stepped: set[int] = set()

    def ends_with(self, identity: int) -> bool:
        """Tell whether a step ends now that an optimizer has stepped.

        Args:
            identity: `id` of the optimizer.
        """
        if self.is_explicit:
            return False
        if self._stepped and identity not in self._stepped:
            self._stepped.add(identity)
            return False
        if len(self._stepped) != 1:
            self._stepped = {identity}
        return True


class StepWatch:
    """Makes steps of their ends and of the samples between them, both taken in the order of time.

    The floor is the lesser of the readings at both ends, which repeats to the byte in a steady job; samples
    fall anywhere and would make it tremble. The peak is exact where the allocator's own peak, which covers
    the life of the process, rose within the step; else the most that was sampled is a lower bound.
    """

    def __init__(self) -> None:
        self.index = 0
        """Of the newest step that ended."""
        self._began_s: float | None = None
        self._began = NOTHING
        self._sampled: int | None = None
        """Most allocated bytes sampled since the step began."""
        self._was_reset = False
        """Whether the allocator's peak was seen to fall since the step began: the program reset it."""
        self._peak: int | None = None

    def note_sample(self, reading: Reading) -> None:
        """Take what was read between two ends."""
        peak, allocated = reading.peak_bytes, reading.allocated_bytes
        if peak is not None:
            self._was_reset = self._was_reset or peak < (self._peak or 0)
            self._peak = peak
        if allocated is not None:
            self._sampled = allocated if self._sampled is None else max(self._sampled, allocated)

    def end(self, ended: StepEnd) -> StepRow:
        """Return the step that ended, and begin the next."""
        reading = ended.reading
        self.note_sample(reading)
        self.index += 1
        duration_s = None if self._began_s is None else ended.monotonic_s - self._began_s
        peak, is_exact = self._find_peak(reading)
        row = (self.index, ended.wall_s, duration_s, self._find_floor(reading), peak, is_exact)
        self._began_s, self._began = ended.monotonic_s, reading
        self._sampled, self._was_reset = reading.allocated_bytes, False
        return row

    def _find_floor(self, ended: Reading) -> int | None:
        ends = [it for it in (self._began.allocated_bytes, ended.allocated_bytes) if it is not None]
        return min(ends, default=None)

    def _find_peak(self, ended: Reading) -> tuple[int | None, bool]:
        before, after = self._began.peak_bytes, ended.peak_bytes
        has_risen = before is not None and after is not None and after > before
        if has_risen and not self._was_reset and (self._sampled or 0) <= (after or 0):
            return after, True
        return self._sampled, False
