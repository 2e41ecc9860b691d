"""The two clocks of the probe: wall time for people, monotonic time for intervals."""

from __future__ import annotations

import time


class SystemClock:
    """The clock of this machine; tests pass their own."""

    # The functions themselves: a method around each would be looked up again at every reading.
    # Seconds since the epoch.
    wall_s = staticmethod(time.time)
    # Seconds that never step.
    monotonic_s = staticmethod(time.monotonic)
