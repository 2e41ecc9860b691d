"""Training steps: when they end, how long they took, and between which bytes they moved."""

from __future__ import annotations

from typing import NamedTuple

from .backends import Reading
from .base import current
from .wire import StepRow

# Tokens and samples of a step; None if unknown.
Sizes = tuple["int | None", "int | None"]

# Larger than any batch; a larger number was no size.
MOST = 2**62


class StepSizes:
    """Reads the size of a step that the program passes.

    Only a whole number counts: to ask a tensor for its value would wait for the device, and to keep one until
    the next packet would keep its memory.
    """

    def __init__(self) -> None:
        self._largest = 0
        self._has_noted = False

    def read(self, tokens: object, batch: object) -> Sizes | None:
        """Return tokens and samples; None if neither can be used."""
        sizes = (self._read_one(tokens, "tokens"), self._read_one(batch, "batch"))
        return None if sizes == (None, None) else sizes

    def is_new_largest(self, sizes: Sizes) -> bool:
        """Return whether no step before was as large; in tokens, or in samples if tokens are unknown."""
        tokens, batch = sizes
        size = (batch or 0) if tokens is None else tokens
        if size <= self._largest:
            return False
        self._largest = size
        return True

    def _read_one(self, value: object, name: str) -> int | None:
        if type(value) is int:
            return value if 0 < value <= MOST else None
        return None if value is None else self._read_other(value, name)

    def _read_other(self, value: object, name: str) -> int | None:
        """Return a whole number of another type, such as NumPy's; note once if it is something else."""
        from numbers import Integral

        if isinstance(value, Integral) and not isinstance(value, bool):
            number = int(value)
            return number if 0 < number <= MOST else None
        if not self._has_noted:
            self._has_noted = True
            error = TypeError(f"expected a whole number, not {type(value).__name__}")
            current.note_failure(f"vramscope.step({name}=…)", error)
        return None


class StepEnd(NamedTuple):
    """The end of a step, as the thread that trains notes it."""

    monotonic_s: float
    wall_s: float
    reading: Reading
    sizes: Sizes | None = None
    # No step before was as large.
    is_largest: bool = False


class StepBoundaries:
    """Decides which calls of optimizers end a step.

    Of several optimizers the one that stepped first ends the step when it steps again; if another steps twice
    meanwhile, it takes over.
    """

    def __init__(self) -> None:
        # The program marks its steps itself.
        self.is_explicit = False
        self.sizes = StepSizes()
        self._stepped: set[int] = set()

    def ends_with(self, identity: int) -> bool:
        """Return whether a step ends now that an optimizer has stepped. `identity`: `id` of the optimizer."""
        if self.is_explicit:
            return False
        if self._stepped and identity not in self._stepped:
            self._stepped.add(identity)
            return False
        if len(self._stepped) != 1:
            self._stepped = {identity}
        return True


class StepWatch:
    """Makes steps of their ends and of the samples between them, both in the order of time.

    The floor is the lesser of the readings at both ends, or the one of the two that was read. It repeats to
    the byte in a steady job; samples come at any time and would make it tremble. The peak is exact if the
    allocator's own peak, which covers the life of the process, rose between two readings of the step, the
    second of them at its end; else the most that was sampled is a lower bound. A rise between two readings
    with an unread end between them may be of either step: it counts for the later, as a bound, or as exact if
    the program said that this step was larger than all before.
    """

    def __init__(self) -> None:
        # Index of the newest step that ended.
        self.index = 0
        # Whether the allocator's peak rose within a step since this was last set to False.
        self.has_peak_risen = False
        # Ends of steps that came with a reading.
        self.ends_read = 0
        self._began_s: float | None = None
        # Allocated bytes at the end of the previous step; None where that was not read.
        self._floor: int | None = None
        # Most allocated bytes seen since the step began.
        self._sampled: int | None = None
        # Whether the allocator's peak fell since the step began, which means the program reset it.
        self._was_reset = False
        # The allocator's peak at the first reading since the step began, its start included.
        self._first_peak: int | None = None
        # Whether that exceeded the last reading before it, with an unread end of a step between.
        self._has_risen_unread = False
        self._peak: int | None = None

    def note_sample(self, reading: Reading) -> None:
        if reading.peak_bytes is not None:
            self._note_peak(reading.peak_bytes)
        self._note_bytes(reading.allocated_bytes)

    def end(self, ended: StepEnd) -> StepRow:
        reading = ended.reading
        allocated = ended.reading.allocated_bytes
        self.note_sample(reading)
        self.index += 1
        duration_s = None if self._began_s is None else ended.monotonic_s - self._began_s
        is_exact = self._is_exact(reading.peak_bytes, is_largest=ended.is_largest)
        peak = reading.peak_bytes if is_exact else self._sampled
        floor = min([each for each in (self._floor, allocated) if each is not None], default=None)
        row = (self.index, ended.wall_s, duration_s, floor, peak, is_exact)
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
