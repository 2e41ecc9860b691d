"""The two clocks of the probe: wall time for people, monotonic time for intervals."""

from __future__ import annotations

import time


class SystemClock:
    """The clock of this machine; tests hand in one of their own."""

    # The functions themselves: a method around each would be fetched anew at every reading.
    wall_s = staticmethod(time.time)
    """Returns seconds since the epoch."""
    monotonic_s = staticmethod(time.monotonic)
    """Returns seconds that never step."""
