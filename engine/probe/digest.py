"""What was noted in passing is made sense of here, several notes at a time."""

from __future__ import annotations

from collections import deque
from typing import Callable

from .backends import Reading
from .history import Suspicion
from .outbox import Outbox
from .phase_memory import Call, PhaseMark, PhaseWatch
from .recent import RecentReadings
from .sizes import Sizes
from .steps import StepEnd, StepWatch
from .wire import ReadingRow

MOST_STEP_ENDS = 2000
"""Between two digests, marks of phases included; of more in that time the oldest are lost."""

Slow = tuple["int | None", "int | None"]
Note = tuple[float, float, Reading]
"""Monotonic and wall time, and what the allocator said."""
EndNote = tuple[float, float, Reading, "Sizes | None", bool]
"""The same, then the sizes of the step, and whether it was the largest so far: what a `StepEnd` holds."""


class Digest:
    """Takes notes from two threads cheaply, and works through them about once a second.

    A thread that wakes up for a moment finds the caches of its core full of something else, and most of
    what it costs is fetching its own code and data. So a note is appended and no more, and the work on all
    notes is done in one go.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.recent = RecentReadings()
        self.steps = StepWatch()
        self.phases = PhaseWatch()
        self.suspicion = Suspicion()
        self.pick_phase: Callable[[], None] = lambda: None
        """Called when the notes are worked through: which phase is read next."""
        self._outbox = outbox
        self._samples: deque[Note] = deque()
        self._ends: deque[EndNote | PhaseMark] = deque(maxlen=MOST_STEP_ENDS)
        """In one row with the marks of phases, whose order to the ends of steps counts."""
        self.note_sample: Callable[[Note], None] = self._samples.append
        """Takes what was read between two ends of steps; in our own thread."""
        self.note_end: Callable[[EndNote], None] = self._ends.append
        """Takes what was read at the end of a step; in the thread that trains."""
        self.note_phase: Callable[[PhaseMark], None] = self._ends.append
        """Takes what was read at the begin or the end of a named part; in the thread of the program."""

    def work(self, slow: Slow, capacity: int | None) -> None:
        """Turn notes into rows to send and to keep; by one thread at a time.

        Args:
            slow: Bytes pinned and resident, which are read less often.
            capacity: Bytes that the allocator may reserve, or the device's total.
        """
        samples = self._samples
        ends = self._ends
        reading = None
        while samples:
            sampled_s, wall_s, reading = samples.popleft()
            while ends and ends[0][0] <= sampled_s:
                self._take(ends.popleft())
            self.steps.note_sample(reading)
            self.phases.note_reading(reading)
            self.recent.add(wall_s, reading, self.steps.index)
            self._outbox.put_reading(_make_row(wall_s, reading, slow))
        if reading is not None:
            self._outbox.counts = reading.allocations, reading.frees
            # What it looks at only ever counts up: the newest tells all.
            self.suspicion.judge(reading, capacity)
        while ends:
            self._take(ends.popleft())
        self.pick_phase()

    def take_course(self) -> tuple[int, bool]:
        """Return how many ends were read since the last call, and whether the peak rose within a step."""
        steps = self.steps
        course = (steps.ends_read, steps.has_peak_risen)
        steps.ends_read = 0
        steps.has_peak_risen = False
        return course

    def _take(self, note: EndNote | PhaseMark) -> None:
        reading = note[2]
        about = note[3]
        if isinstance(about, Call):
            self.steps.note_sample(reading)
            row = self.phases.take((note[0], note[1], reading, about, note[4]))
            if row is not None:
                self._outbox.put_phase(row)
        else:
            self.phases.note_reading(reading)
            self._end_step((note[0], note[1], reading, about, note[4]))

    def _end_step(self, note: EndNote) -> None:
        row = self.steps.end(StepEnd._make(note))
        index, ended_s, duration_s, floor, peak, is_exact = row
        sizes = note[3]
        self._outbox.put_step(row if sizes is None else (*row, *sizes))
        began_s = None if duration_s is None else ended_s - duration_s
        self.recent.steps.append((index, began_s, duration_s, floor, peak, is_exact))
        self.suspicion.note_floor(floor)


def _make_row(wall_s: float, reading: Reading, slow: Slow) -> ReadingRow:
    """Return a row as it stands in a packet; peak and counts of allocations are not among its figures."""
    allocated, requested, active, reserved, split, retries, ooms, *_ = reading
    return (round(wall_s, 3), allocated, requested, active, reserved, split, retries, ooms, *slow)
