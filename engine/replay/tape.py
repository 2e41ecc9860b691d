"""What can be played to any moment: the samples of one node, each newer than the one before."""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from ..errors import InputFileError
from ..model import SEVERITIES, DeviceSample, Finding, Sample
from ..readers.input_file import show_path
from ..readers.series_record import WALL_CLOCK_FROM_S
from ..recording import EventKind, Recording, Told
from .state import ReplayMark

WINDOW_TICKS = 3600
"""Ticks before a moment that graphs and analyzers are fed: as many as a hub's ring holds."""
MOST_WORDS = 20_000
"""Words of analyzers that are held for `--recorded-findings`."""
MOST_MARKS = 10_000
LOOK_BACK_TICKS = 8
"""How far back the sample before a moment is looked for at first; then eight times as far, and so on."""
LONE_INTERVAL_S = 1.0
MOST_INTERVAL_S = 3600.0


class Tape(Protocol):
    """Samples that can be read from any moment on, the same whichever way it was reached."""

    clock: Literal["wall", "trace"]
    start_s: float
    """Time of the first sample, in the samples' own clock."""
    end_s: float
    interval_s: float
    """Nominal seconds from one sample to the next."""
    window_s: float
    """How much before a moment graphs and analyzers are fed after a jump."""

    def samples(self, start_s: float, end_s: float = math.inf) -> Iterator[Sample]:
        """Yield the samples of a span, ends included, in order of time; the last of all has `is_last`."""
        ...

    def marks(self) -> list[ReplayMark]:
        """Return the findings and out-of-memory errors that are recorded, in order of time."""
        ...

    def told(self) -> list[Told]:
        """Return what analyzers said, in order of time; a bounded number of words."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class RecordingTape:
    """The first node of a recording.

    A sample that is not newer than all before it, because a clock was set back, is left out. Whether one is
    does not depend on where reading begins: what stands in its way is at least as new, so it is read too.

    Args:
        path: The file.
        capacity_bytes: Capacity of devices of which none was recorded.

    Raises:
        InputFileError: It is no recording, damaged beyond reading, or holds no samples.
    """

    def __init__(self, path: Path, *, capacity_bytes: int | None = None) -> None:
        self._recording = Recording(path)
        self._capacity_bytes = capacity_bytes
        self._told: list[Told] | None = None
        try:
            self._begin()
        except BaseException:
            self._recording.close()
            raise

    def _begin(self) -> None:
        nodes, span = self._recording.nodes, self._recording.span
        self._node = nodes[0] if nodes else ""
        first = next(self._recording.samples(node=self._node), None)
        if first is None or span is None:
            why = self._recording.damage.sentence or "expected at least one to play"
            raise InputFileError(f"{show_path(self._recording.path)}: no samples in it; {why}")
        self.start_s, self.end_s = first.time_s, span[1]
        self.clock: Literal["wall", "trace"] = "wall" if self.start_s >= WALL_CLOCK_FROM_S else "trace"
        known_s = first.interval_s if math.isfinite(first.interval_s) else 0.0
        self.interval_s = min(known_s, MOST_INTERVAL_S) if known_s > 0 else LONE_INTERVAL_S
        self.window_s = WINDOW_TICKS * self.interval_s
        # Another node, or a clock that was set back, may end later than what is played.
        newest = find_newest(self, self.end_s, 1)
        self.end_s = newest[0].time_s if newest else self.start_s

    def samples(self, start_s: float, end_s: float = math.inf) -> Iterator[Sample]:
        """Yield the samples of a span, ends included, in order of time; the last of all has `is_last`."""
        start_s, newest_s = max(start_s, self.start_s), -math.inf
        for sample in self._recording.samples(start_s, min(end_s, self.end_s), node=self._node):
            if sample.time_s > newest_s:
                newest_s = sample.time_s
                yield self._complete(sample)

    def marks(self) -> list[ReplayMark]:
        """Return the findings, at their gravest, and out-of-memory errors, in order of time."""
        gravest: dict[str, Finding] = {}
        for finding in chain(*(told.findings for told in self.told()), self._recording.findings()):
            known = gravest.get(finding.id)
            if known is None or SEVERITIES.index(finding.severity) > SEVERITIES.index(known.severity):
                gravest[finding.id] = finding
        found = [
            ReplayMark(finding.opened_s, "finding", finding.title, finding.severity)
            for finding in islice(gravest.values(), MOST_MARKS)
            if finding.node == self._node and self.start_s <= finding.opened_s <= self.end_s
        ]
        kinds: tuple[EventKind, ...] = ("oom",)
        errors = (it for it in self._recording.events(kinds=kinds) if it.node == self._node)
        found += [ReplayMark(it.time_s, "oom", it.text) for it in islice(errors, MOST_MARKS)]
        return sorted(found, key=lambda mark: mark.time_s)

    def told(self) -> list[Told]:
        """Return what analyzers said, in order of time; a bounded number of words."""
        if self._told is not None:
            return self._told
        kept: list[Told] = []
        words = 0
        for told in self._recording.told():
            words += len(told.findings) + len(told.assessments or ())
            if words > MOST_WORDS:
                break
            kept.append(told)
        self._told = sorted(kept, key=lambda it: it.time_s)
        return self._told

    def close(self) -> None:
        """Close the file."""
        self._recording.close()

    def _complete(self, sample: Sample) -> Sample:
        devices = tuple(map(self._add_capacity, sample.devices))
        is_last = sample.time_s >= self.end_s
        return msgspec.structs.replace(sample, devices=devices, is_last=is_last)

    def _add_capacity(self, device: DeviceSample) -> DeviceSample:
        if self._capacity_bytes is None or device.memory.total_bytes is not None:
            return device
        memory = msgspec.structs.replace(device.memory, total_bytes=self._capacity_bytes)
        return msgspec.structs.replace(device, memory=memory)


def find_newest(tape: Tape, time_s: float, count: int) -> list[Sample]:
    """Return the newest samples that are not after a moment, oldest first; fewer where there are no more.

    Args:
        tape: Whose.
        time_s: The moment, in the samples' own clock.
        count: How many at most.
    """
    reach_s = (LOOK_BACK_TICKS + count) * tape.interval_s
    while True:
        found = _keep_last(tape.samples(time_s - reach_s, time_s), count)
        if len(found) == count or time_s - reach_s <= tape.start_s:
            return found
        reach_s *= 8


def _keep_last(samples: Iterable[Sample], count: int) -> list[Sample]:
    return list(deque(samples, maxlen=count))
