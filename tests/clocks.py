"""A clock for tests of what waits: it stands until it is moved."""


class HandClock:
    """A clock that a test moves.

    Args:
        now_s: What it says at first, as wall time and as monotonic time.
    """

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def wall_s(self) -> float:
        """Return what it says."""
        return self.now_s

    def monotonic_s(self) -> float:
        """Return what it says."""
        return self.now_s
