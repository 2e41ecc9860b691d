"""The two clocks of the probe: wall time for people, monotonic time for intervals."""

from __future__ import annotations

import time


class SystemClock:
    """The clock of this machine; tests hand in one of their own."""

    def wall_s(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def monotonic_s(self) -> float:
        """Return seconds that never step."""
        return time.monotonic()
