"""Training steps: when they end, how long they took, and between which bytes they moved."""

from __future__ import annotations

from typing import NamedTuple

from .backends import Reading
from .sizes import Sizes, StepSizes
from .wire import StepRow


class StepEnd(NamedTuple):
    """What is noted in the thread that trains when a step ends."""

    monotonic_s: float
    wall_s: float
    reading: Reading
    sizes: Sizes | None = None
    is_largest: bool = False
    """Whether no step before was as large."""


class StepBoundaries:
    """Tells which calls of optimizers end a step.

    Of several optimizers the one that stepped first ends the step when it steps again; where another steps
    twice meanwhile, it takes over.
    """

    def __init__(self) -> None:
        self.is_explicit = False
        """Whether the program marks its steps itself."""
        self.sizes = StepSizes()
        """Reads what the program says of their sizes."""
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

    The floor is the lesser of the readings at both ends, or the one of the two that was read. It repeats to
    the byte in a steady job; samples fall anywhere and would make it tremble. The peak is exact where the
    allocator's own peak, which covers the life of the process, rose between two readings of the step, the
    second of them at its end; else the most that was sampled is a lower bound. A rise between two readings
    with an end between them that was not read may be of either step: it is told of the later, as a bound, or
    as exact where the program said that this step was larger than all before.
    """

    def __init__(self) -> None:
        self.index = 0
        """Of the newest step that ended."""
        self.has_peak_risen = False
        """Whether the allocator's peak has risen within a step since this was set to False last."""
        self.ends_read = 0
        """Ends of steps that came with a reading."""
        self._began_s: float | None = None
        self._floor: int | None = None
        """Allocated bytes at the end of the step before, or None where that was not read."""
        self._sampled: int | None = None
        """Most allocated bytes known of since the step began."""
        self._was_reset = False
        """Whether the allocator's peak was seen to fall since the step began: the program reset it."""
        self._first_peak: int | None = None
        """The allocator's peak at the first reading since the step began, its beginning included."""
        self._has_risen_unread = False
        """Whether that was more than at the last reading before, with an end between that was not read."""
        self._peak: int | None = None

    def note_sample(self, reading: Reading) -> None:
        """Take what was read between two ends."""
        if reading.peak_bytes is not None:
            self._note_peak(reading.peak_bytes)
        self._note_bytes(reading.allocated_bytes)

    def end(self, ended: StepEnd) -> StepRow:
        """Return the step that ended, and begin the next."""
        reading = ended.reading
        allocated = ended.reading.allocated_bytes
        self.note_sample(reading)
        self.index += 1
        duration_s = None if self._began_s is None else ended.monotonic_s - self._began_s
        is_exact = self._is_exact(reading.peak_bytes, is_largest=ended.is_largest)
        peak = reading.peak_bytes if is_exact else self._sampled
        row = (self.index, ended.wall_s, duration_s, _lesser(self._floor, allocated), peak, is_exact)
        self.ends_read += allocated is not None
        self._began_s = ended.monotonic_s
        self._floor = allocated
        self._sampled = allocated
        self._first_peak = reading.peak_bytes
        self._was_reset = False
        self._has_risen_unread = False
        return row

    def _note_peak(self, peak: int) -> None:
        before = self._peak
        if before is not None and peak < before:
            self._was_reset = True
        elif before is not None and peak > before and self.index:
            self.has_peak_risen = True
            if self._first_peak is None:
                self._note_bytes(peak)
                self._has_risen_unread = True
        if self._first_peak is None:
            self._first_peak = peak
        self._peak = peak

    def _note_bytes(self, allocated: int | None) -> None:
        if allocated is not None and (self._sampled is None or allocated > self._sampled):
            self._sampled = allocated

    def _is_exact(self, peak: int | None, *, is_largest: bool) -> bool:
        if peak is None or self._first_peak is None or self._was_reset:
            return False
        has_risen = peak > self._first_peak or (is_largest and self._has_risen_unread)
        return has_risen and peak >= (self._sampled or 0)


def _lesser(before: int | None, after: int | None) -> int | None:
    known = [each for each in (before, after) if each is not None]
    return min(known, default=None)
