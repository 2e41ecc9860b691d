"""Memory of the named parts of steps: before, after, and the most in between.

A reading is most of what the probe costs, so most calls of a part are only counted: the first few of each
name are measured, and of later ones one between two digests, each name in its turn.
"""

from __future__ import annotations

import threading
from _thread import get_ident
from typing import Any, Callable

from . import phases
from .backends import NOTHING, Reading, read_before_use
from .clock import SystemClock
from .identity import TrainingDevice
from .wire import PhaseRow

# Names that are measured, the first that come: a process at its bounds still fits into a message.
MOST_NAMES = 16
# Calls of each name that are measured whenever they come: most peaks rise with the first steps.
FIRST_CALLS = 3
# Parts in progress in one thread, and of one process between two digests; an older one was never ended.
_MOST_OPEN = 64


class Call:
    """One call that is measured; the thread that trains makes it, the digest works on it."""

    __slots__ = ("before", "began_s", "count", "most", "name", "place", "was_reset")

    def __init__(
        self, name: str, count: int, began_s: float, before: Reading, place: tuple[Any, ...] | None
    ) -> None:
        self.name = name
        self.count = count
        self.began_s = began_s
        self.before = before
        # Backend and ordinal of the device that was read; None before the process used one.
        self.place = place
        # Most allocated bytes seen since it began.
        self.most = before.allocated_bytes
        # Whether the program reset the allocator's peak since it began.
        self.was_reset = False


# Monotonic and wall time, the reading, whose begin (True) or end (False) it is.
PhaseMark = tuple[float, float, Reading, Call, bool]


class PhaseCalls:
    """Decides which calls are measured and reads at their ends; in the thread of the program.

    Args:
        explain: Called with a sentence for the reader of the values.
    """

    def __init__(
        self,
        device: TrainingDevice,
        clock: SystemClock,
        note: Callable[[PhaseMark], None],
        explain: Callable[[str], None],
    ) -> None:
        self._device = device
        self._clock = clock
        self._note = note
        self._explain = explain
        self._has_left_out = False
        self._names: dict[str, phases.Counted] = {}
        # Parts in progress by thread, as far as they are measured.
        self._open: dict[int, list[tuple[phases.phase, Call | None]]] = {}
        self._turn = 0
        phases.counted = self._names
        phases.read = self._open

    def pick(self) -> None:
        """Have the next call of the next name measured; called once a digest."""
        names = list(self._names.values())
        if names:
            self._turn = (self._turn + 1) % len(names)
            names[self._turn].is_due = True

    def end_all(self) -> None:
        if phases.counted is self._names:
            phases.counted = {}
            phases.read = {}

    def begin(self, part: phases.phase, *, is_training: bool) -> None:
        """Count a part that begins, and read if that is due."""
        if not is_training and get_ident() != threading.main_thread().ident:
            return
        name = str(part.name)[: phases.LONGEST_NAME]
        known = self._names.get(name)
        if known is None:
            if len(self._names) >= MOST_NAMES:
                if not self._has_left_out:
                    self._has_left_out = True
                    self._explain(
                        f"more than {MOST_NAMES} phases: the memory of further ones is not measured"
                    )
                return
            known = self._names[name] = phases.Counted(name)
        known.calls += 1
        call = None
        if known.is_due:
            known.is_due = known.calls < FIRST_CALLS
            call = self._measure(known, self._clock.monotonic_s())
        mine = self._open.get(get_ident())
        if call is not None:
            if mine is None:
                mine = self._open[get_ident()] = []
            del mine[: 1 - _MOST_OPEN]
            mine.append((part, call))
        elif mine is not None and any(each is part for each, _ in mine):
            # The same object within itself: the inner end is not that of the outer call.
            mine.append((part, None))

    def end(self, part: phases.phase) -> None:
        """Read at the end of a part whose begin was measured; ignore any other."""
        mine = self._open.get(get_ident())
        if mine is None:
            return
        position = next((it for it in reversed(range(len(mine))) if mine[it][0] is part), None)
        if position is None:
            return
        _, call = mine.pop(position)
        if not mine:
            del self._open[get_ident()]
        if call is not None:
            now_s = self._clock.monotonic_s()
            reading = self._read()
            if call.place is not None and call.place != self._place():
                reading = NOTHING
            self._note((now_s, self._clock.wall_s(), reading, call, False))

    def _measure(self, known: phases.Counted, now_s: float) -> Call | None:
        reading = self._read()
        place = self._place()
        if place is None:
            reading = read_before_use(self._device.torch)
        elif reading.allocated_bytes is None:
            return None
        call = Call(known.name, known.calls, now_s, reading, place)
        self._note((now_s, self._clock.wall_s(), reading, call, True))
        return call

    def _read(self) -> Reading:
        if self._device.backend is None:
            self._device.look()
        return self._device.read()

    def _place(self) -> tuple[Any, ...] | None:
        backend = self._device.backend
        return None if backend is None else (backend.name, self._device.index)


class _Usage:
    """What is known of all calls of one name."""

    __slots__ = ("most", "was_reset")

    def __init__(self) -> None:
        self.most = 0
        self.was_reset = False


class PhaseWatch:
    """Makes rows of the calls that were measured and of all readings between, in the order of time.

    As with steps: the peak of a call is exact if the allocator's own peak rose between its begin and its end,
    else the most that was read is a lower bound. The most of all calls, those that were only counted
    included, is exact if it is the allocator's own peak, which covers the life of the process.
    """

    def __init__(self) -> None:
        self._open: list[Call] = []
        self._known: dict[str, _Usage] = {}
        self._peak: int | None = None

    def note_reading(self, reading: Reading) -> None:
        peak = reading.peak_bytes
        allocated = reading.allocated_bytes
        was_reset = peak is not None and self._peak is not None and peak < self._peak
        if peak is not None:
            self._peak = peak
        if was_reset:
            for usage in self._known.values():
                usage.was_reset = True
        for call in self._open:
            call.was_reset = call.was_reset or was_reset
            if call.was_reset and peak is not None and call.before.peak_bytes is not None:
                # What the allocator has seen since its peak was reset, it has seen within the call.
                call.most = max(call.most or 0, peak)
            if allocated is not None and (call.most is None or allocated > call.most):
                call.most = allocated

    def take(self, mark: PhaseMark) -> PhaseRow | None:
        """Process the begin or the end of a call; return the row of its name if a measured call ended."""
        ended_s, wall_s, reading, call, is_begin = mark
        self.note_reading(reading)
        if is_begin:
            del self._open[: 1 - _MOST_OPEN]
            self._open.append(call)
            return None
        self._open = [it for it in self._open if it is not call]
        before = call.before
        most = call.most
        if reading.allocated_bytes is None or most is None:
            return None
        peak = reading.peak_bytes
        base = before.peak_bytes
        is_exact = not call.was_reset and peak is not None and base is not None and peak > base
        newest = max(most, peak) if is_exact and peak is not None else most
        usage = self._known.get(call.name)
        if usage is None:
            usage = self._known[call.name] = _Usage()
            usage.was_reset = call.was_reset
        usage.most = max(usage.most, newest)
        return (
            call.name,
            call.count,
            wall_s,
            ended_s - call.began_s,
            before.allocated_bytes,
            before.reserved_bytes,
            reading.allocated_bytes,
            reading.reserved_bytes,
            newest,
            is_exact,
            usage.most,
            usage.most == peak and not usage.was_reset,
        )
