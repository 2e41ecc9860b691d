"""A clock that the test winds."""

from vramscope.engine.probe.clock import SystemClock


class WoundClock(SystemClock):
    """Stands still unless told otherwise; wall time may also step on its own."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.wall_offset_s = 1_700_000_000.0

    def wall_s(self) -> float:
        """Return the wall time."""
        return self.now_s + self.wall_offset_s

    def monotonic_s(self) -> float:
        """Return the monotonic time."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds
