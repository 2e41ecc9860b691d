"""Memory by `vramscope.phase` in the program's own loop: before, after and at the peak of each part."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from vramscope.engine.launch.in_code import phase_takers
from vramscope.engine.model.phase_memory import MemoryLevels, PhaseMemory
from vramscope.engine.probe.backends import Backend as Reader
from vramscope.engine.probe.backends import Reading

MOST_NAMES = 256
"""Names of parts that are kept, of all devices together; further ones are left out."""


class PhaseUsage(NamedTuple):
    """One named part of the program on one device."""

    ordinal: int
    """As torch numbers devices."""
    calls: int
    newest: PhaseMemory
    """The newest call, whose peak may be a lower bound."""
    peak_allocated_bytes: int
    """Most of all calls."""
    is_peak_exact: bool
    """Whether the allocator's own peak told every call; else more may have been held than was read."""


class _Open:
    """A part in progress."""

    def __init__(self, name: str, readings: dict[int, Reading]) -> None:
        self.name, self.before = name, readings
        self.thread, self.began_s = threading.get_ident(), time.perf_counter()
        self.most: dict[int, int] = {}
        self.exact: set[int] = set()


class OwnPhases:
    """Reads the allocator where a part begins and ends, in the thread of the program.

    A reading is a look at counters: nothing waits for the device. What was held in between is known where the
    allocator's own peak rose within the part, or where that peak may be reset as a part begins.

    Args:
        find_reader: Returns who reads the allocator; None before the program has used a device.
        resets_peaks: Whether to reset the allocator's peaks, which the program may be reading itself.
    """

    def __init__(self, find_reader: Callable[[], Reader | None], *, resets_peaks: bool) -> None:
        self._find_reader, self._resets_peaks = find_reader, resets_peaks
        self._lock = threading.RLock()
        self._open: list[_Open] = []
        self._known: dict[tuple[str, int], PhaseUsage] = {}

    @property
    def usages(self) -> tuple[PhaseUsage, ...]:
        """Every part that has ended, in the order in which they first did."""
        with self._lock:
            return tuple(self._known.values())

    def start(self) -> None:
        """Begin to take what `vramscope.phase` tells."""
        if self._take not in phase_takers:
            phase_takers.append(self._take)

    def stop(self) -> None:
        """Take nothing any more."""
        if self._take in phase_takers:
            phase_takers.remove(self._take)

    def _take(self, name: str, is_begin: bool) -> None:
        """Note the begin or the end of a part; never raises."""
        try:
            with self._lock:
                readings = self._read()
                if is_begin:
                    self._begin(name, readings)
                else:
                    self._end(name, readings)
        except Exception:  # noqa: BLE001 - whatever the allocator does, the training goes on; the part is not told
            return

    def _read(self) -> dict[int, Reading]:
        """Return the newest readings, and let the parts in progress know them."""
        reader = self._find_reader()
        readings = {} if reader is None else {it: reader.read(it) for it in sorted(reader.find_held())}
        for part in self._open:
            for ordinal, reading in readings.items():
                _note(part, ordinal, reading, is_since_begin=self._resets_peaks)
        return readings

    def _begin(self, name: str, readings: dict[int, Reading]) -> None:
        reader = self._find_reader() if self._resets_peaks else None
        if reader is not None:
            for ordinal in readings:
                reader.module.reset_peak_memory_stats(ordinal)
        self._open.append(_Open(name, readings))

    def _end(self, name: str, readings: dict[int, Reading]) -> None:
        thread = threading.get_ident()
        part = next((it for it in reversed(self._open) if (it.name, it.thread) == (name, thread)), None)
        if part is None:
            return
        self._open.remove(part)
        for ordinal, reading in readings.items():
            self._fold(part, ordinal, reading)

    def _fold(self, part: _Open, ordinal: int, after: Reading) -> None:
        key = part.name, ordinal
        known = self._known.get(key)
        if after.allocated_bytes is None or (known is None and len(self._known) >= MOST_NAMES):
            return
        before = part.before.get(ordinal)
        # A device that holds nothing of this process is not among the readings.
        start = _levels(before) if before is not None else MemoryLevels(allocated_bytes=0, reserved_bytes=0)
        peak = max(part.most.get(ordinal, 0), start.allocated_bytes or 0)
        newest = PhaseMemory(
            phase=part.name,
            before=start,
            after=_levels(after),
            peak=MemoryLevels(allocated_bytes=peak, reserved_bytes=None),
            seconds=time.perf_counter() - part.began_s,
        )
        is_exact = ordinal in part.exact
        self._known[key] = PhaseUsage(
            ordinal,
            1 if known is None else known.calls + 1,
            newest,
            peak if known is None else max(known.peak_allocated_bytes, peak),
            is_exact and (known is None or known.is_peak_exact),
        )


def _levels(reading: Reading) -> MemoryLevels:
    return MemoryLevels(allocated_bytes=reading.allocated_bytes, reserved_bytes=reading.reserved_bytes)


def _note(part: _Open, ordinal: int, reading: Reading, *, is_since_begin: bool) -> None:
    """Let a part in progress know what is held, and the allocator's peak where that is of the part itself."""
    before = part.before.get(ordinal)
    base = 0 if before is None or before.peak_bytes is None else before.peak_bytes
    peak = reading.peak_bytes
    is_own = peak is not None and (is_since_begin or peak > base)
    part.most[ordinal] = max(
        part.most.get(ordinal, 0), reading.allocated_bytes or 0, peak if peak is not None and is_own else 0
    )
    if is_own:
        part.exact.add(ordinal)
