"""How much a running total grew lately: one bad moment is not told for ever after."""

from collections import deque

WINDOW_S = 60.0


class RecentCount:
    """Remembers a running total for a minute."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._totals: deque[tuple[float, int]] = deque([(float("-inf"), 0)])

    def grow(self, total: int, now_s: float) -> int:
        """Note a total and return by how much it grew within the window.

        Args:
            total: The running total; it never goes back.
            now_s: Monotonic time.
        """
        if total != self._totals[-1][1]:
            self._totals.append((now_s, total))
        before = self._totals[0][1]
        while len(self._totals) > 1 and self._totals[1][0] <= now_s - self._window_s:
            self._totals.popleft()
            before = self._totals[0][1]
        return total - before
