"""The part of the time that a timeline draws, where a person has zoomed in."""

from typing import NamedTuple


class TimeWindow(NamedTuple):
    """From one moment to another: all of a file, or a part of it."""

    start: float
    end: float

    @property
    def length(self) -> float:
        return self.end - self.start

    def holds(self, moment: float) -> bool:
        return self.start <= moment <= self.end

    def cut(self, length: float, around: float) -> "TimeWindow":
        """Return a part of this length around a moment; at an end of the time it begins or ends there."""
        start = max(self.start, min(around - length / 2, self.end - length))
        return TimeWindow(start, start + length)

    def zoom(self, window: "TimeWindow | None", factor: float, around: float) -> "TimeWindow | None":
        """Return a window `factor` times as long as the one before; None for all of this time.

        Args:
            window: The part that is drawn; None for all.
            around: Moment in the middle of the new one.
        """
        length = (window or self).length * factor
        return None if length >= self.length else self.cut(length, around)

    def follow(self, window: "TimeWindow", moment: float) -> "TimeWindow":
        """Return the window; where it does not hold a moment, one of its length around that."""
        return window if window.holds(moment) else self.cut(window.length, moment)
