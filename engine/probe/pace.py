"""How often the two threads of the probe read: ten readings a second, both together."""

from __future__ import annotations

SAMPLE_S = 0.1
"""Between two readings of our own thread, where steps are long."""
_SHARED_SAMPLE_S = 0.2
_SPREAD_S = 0.1
_GOLDEN = 0.6180339887498949
"""Its multiples, less their whole parts, fill an interval evenly (Weyl's theorem)."""
_CLOSE_S = 0.02
_APART_S = 0.15
_MANY_A_SECOND = 2.5
_CLOSE_FOR_S = 3.0
_REST_S = 30.0


class Pace:
    """Shares the readings between the ends of steps and the time between them.

    A reading is most of what the probe costs, because the caches hold the program's data when it is made. So
    where steps are short, about every second end is read and our own thread reads half as often, at moments
    spread over the step. With the first steps, and where the allocator's peak has risen, every end is read
    for three seconds, so that steps know their peaks exactly: at most once in half a minute, because a leak
    raises it for ever.

    Args:
        now_s: Monotonic seconds.
    """

    def __init__(self, now_s: float) -> None:
        self.between_ends_s = _CLOSE_S
        """The thread that trains reads at the end of a step where it has not read for so long."""
        self._sample_s = SAMPLE_S
        self._judged_s = now_s
        self._close_until_s = float("inf")
        self._rest_until_s = float("-inf")
        self._due_s = float("-inf")
        self._place = 0.0

    def judge(self, now_s: float, ends_read: int, *, has_peak_risen: bool) -> None:
        """Settle how often to read until the next call.

        Args:
            now_s: Monotonic seconds.
            ends_read: Ends of steps that were read since the last call.
            has_peak_risen: Whether the allocator's peak has risen since then.
        """
        is_first = self._close_until_s == float("inf") and ends_read > 0
        if is_first or (has_peak_risen and now_s >= self._rest_until_s):
            self._close_until_s = now_s + _CLOSE_FOR_S
            self._rest_until_s = now_s + _REST_S
        is_close = now_s < self._close_until_s
        is_shared = not is_close and ends_read > _MANY_A_SECOND * (now_s - self._judged_s)
        self.between_ends_s = _CLOSE_S if is_close else _APART_S
        self._sample_s = _SHARED_SAMPLE_S if is_shared else SAMPLE_S
        self._judged_s = now_s

    def find_next(self, now_s: float) -> float:
        """Return when our own thread reads next, on a steady grid; readings that were missed are left out.

        Args:
            now_s: Monotonic seconds of the reading just made.
        """
        due_s = self._due_s + self._sample_s
        self._due_s = due_s if due_s > now_s else now_s + self._sample_s
        if self._sample_s == SAMPLE_S:
            return self._due_s
        # Not in step with the steps, or every reading would be of the same moment of them.
        self._place = (self._place + _GOLDEN) % 1.0
        return self._due_s + _SPREAD_S * self._place
