"""The last minutes of readings, kept in the process itself for the record of an out-of-memory error."""

from __future__ import annotations

from collections import deque
from typing import Any

from .backends import Reading

COLUMNS = (
    "time_s",
    "allocated_bytes",
    "requested_bytes",
    "active_bytes",
    "reserved_bytes",
    "inactive_split_bytes",
    "retries",
    "ooms",
    "step",
)
MOST_FINE = 600
"""Readings kept as they came: the last minute at ten a second."""
MOST_COARSE = 480
"""Readings kept of the four minutes before, two a second."""
_THINNED = 5
MOST_STEPS = 1000


class RecentReadings:
    """Two rings: the newest readings in full, the older ones thinned; and the newest steps."""

    def __init__(self) -> None:
        self.thinned_away = 0
        """Readings that are gone from both rings."""
        self.steps: deque[tuple[Any, ...]] = deque(maxlen=MOST_STEPS)
        """Index, wall time of the beginning, duration, floor, peak, whether the peak is exact."""
        self._fine: deque[tuple[Any, ...]] = deque()
        self._coarse: deque[tuple[Any, ...]] = deque(maxlen=MOST_COARSE)
        self._aged = 0

    def add(self, time_s: float, reading: Reading, step: int) -> None:
        """Take a reading; the oldest of the fine ring moves on or goes."""
        self._fine.append((time_s, *reading[:7], step))
        if len(self._fine) <= MOST_FINE:
            return
        aged = self._fine.popleft()
        self._aged += 1
        if self._aged % _THINNED == 0:
            self.thinned_away += len(self._coarse) == MOST_COARSE
            self._coarse.append(aged)
        else:
            self.thinned_away += 1

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the readings, oldest first, in the order of `COLUMNS`."""
        return [*tuple(self._coarse), *tuple(self._fine)]
