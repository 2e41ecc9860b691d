"""Steps of this very process, as it tells them by `vramscope.step`: their floors, peaks and sizes."""

import time
from collections import deque

from vramscope.engine.launch.in_code import step_takers
from vramscope.engine.probe.backends import Backend as Reader
from vramscope.engine.probe.backends import Reading
from vramscope.engine.probe.sizes import StepSizes
from vramscope.engine.probe.steps import StepEnd, StepWatch
from vramscope.engine.ranks.tick_steps import TickSteps

MOST_ENDS = 2000
"""Ends of steps that wait for a sample; the oldest go."""


class OwnSteps:
    """Takes the ends of steps in the thread that trains, and makes steps of them when a sample is due.

    The end of a step costs one reading of the allocator's statistics; nothing waits for the device.
    """

    def __init__(self) -> None:
        self._sizes = StepSizes()
        self._ends: dict[int, deque[StepEnd]] = {}
        self._watches: dict[int, StepWatch] = {}
        self._reader: Reader | None = None
        self._ordinals: tuple[int, ...] = ()

    def start(self) -> None:
        """Begin to take what `vramscope.step` is told."""
        if self._take not in step_takers:
            step_takers.append(self._take)

    def stop(self) -> None:
        """Take nothing any more."""
        if self._take in step_takers:
            step_takers.remove(self._take)

    def follow(self, reader: Reader, ordinals: tuple[int, ...]) -> None:
        """Read these devices at the end of each step from now on.

        Args:
            reader: Who reads.
            ordinals: Devices on which this process holds memory.
        """
        for ordinal in ordinals:
            self._ends.setdefault(ordinal, deque(maxlen=MOST_ENDS))
        self._reader, self._ordinals = reader, ordinals

    def fold(self, ordinal: int, read_s: float, reading: Reading, steps: TickSteps) -> None:
        """Fold the steps that ended before a reading of a device, and note the reading.

        Args:
            ordinal: The device.
            read_s: When it was read, in monotonic seconds.
            reading: What its allocator said.
            steps: What the steps are folded into.
        """
        watch = self._watches.setdefault(ordinal, StepWatch())
        ends = self._ends[ordinal]
        while ends and ends[0].monotonic_s <= read_s:
            end = ends.popleft()
            row = watch.end(end)
            steps.fold([row], [] if end.sizes is None else [(row[0], *end.sizes)])
        watch.note_sample(reading)

    def _take(self, tokens: int | None, batch: int | None) -> None:
        """Note the end of a step; in the thread that trains, and never raises."""
        reader = self._reader
        if reader is None:
            return
        sizes = self._sizes.read(tokens, batch)
        is_largest = sizes is not None and self._sizes.is_new_largest(sizes)
        try:
            for ordinal in self._ordinals:
                moment = time.monotonic(), time.time()
                self._ends[ordinal].append(StepEnd(*moment, reader.read(ordinal), sizes, is_largest))
        except Exception:  # noqa: BLE001 - whatever the allocator does, the training goes on; the step is not told
            return
