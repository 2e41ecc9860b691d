"""Clocks: wall time for people, monotonic time for intervals, and both injectable in tests."""

import math
import time
from typing import Protocol


class Clock(Protocol):
    """Two readings of time, in float seconds."""

    def wall_s(self) -> float:
        """Seconds since the epoch, as people read them."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never step, for intervals and ages."""
        ...


def ceil_ms(duration_s: float) -> int:
    """Return whole milliseconds that are not less than a duration, as poll(2) needs them.

    Rounding down would turn the last millisecond of every wait into a loop that waits for nothing.
    """
    return math.ceil(1000.0 * duration_s)


class SystemClock:
    def wall_s(self) -> float:
        return time.time()

    # Read dozens of times a second, so there is no function around it.
    monotonic_s = staticmethod(time.monotonic)
