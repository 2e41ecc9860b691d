"""Who is there: when a hub that was started for somebody has nobody left to serve."""

VIEWER_WITHIN_S = 15.0
"""A hub that a viewer started ends if none has arrived by then."""


class Attendance:
    """Counts viewers and training processes, and knows when the last of them left.

    Args:
        first_within_s: How long to wait for the first.
        linger_s: How long to wait for the next, once the last has left.
        now_s: Monotonic seconds at the start.
    """

    def __init__(self, *, first_within_s: float, linger_s: float, now_s: float) -> None:
        self.viewers = 0
        self._linger_s = linger_s
        self._ends_s = now_s + first_within_s

    def note_viewer(self, *, has_come: bool) -> None:
        """Count a viewer that came or left."""
        self.viewers = max(0, self.viewers + (1 if has_come else -1))

    def await_return(self, now_s: float) -> None:
        """Wait for viewers that were cut off as for the first one."""
        self._ends_s = max(self._ends_s, now_s + VIEWER_WITHIN_S)

    def is_over(self, now_s: float, *, has_ranks: bool) -> bool:
        """Return whether everybody has left and stayed away; ask several times a second.

        Args:
            now_s: Monotonic seconds.
            has_ranks: Whether a training process is connected.
        """
        if self.viewers or has_ranks:
            self._ends_s = now_s + self._linger_s
            return False
        return now_s >= self._ends_s
