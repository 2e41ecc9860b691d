"""The order of a node's samples: which of them follow, which come late, where nobody knows what happened."""

import math
from enum import Enum, auto

GAP_S = 5.0
"""Least seconds between two samples that count as a gap; ticks longer than that allow three and a half."""
GAP_TICKS = 3.5


class Passage(Enum):
    """How a sample stands to the newest one before it."""

    NEXT = auto()
    """It follows; so does the first."""
    LATE = auto()
    """It is a duplicate, out of order, or has no time: it is to be left out."""
    GAP = auto()
    """It follows after a time of which nobody knows what happened."""
    BACK = auto()
    """The clock was set back: what came before cannot be placed beside it."""


class SampleClock:
    """The time of a node's newest sample."""

    def __init__(self) -> None:
        self.newest_s: float | None = None

    def note(self, time_s: float, interval_s: float) -> Passage:
        """Take the time of one sample and return how it stands to those before.

        Args:
            time_s: Time of the sample in its own clock.
            interval_s: Length of its tick in seconds.
        """
        newest_s = self.newest_s
        if not math.isfinite(time_s):
            return Passage.LATE
        if newest_s is None:
            self.newest_s = time_s
            return Passage.NEXT
        gap_s = max(GAP_S, GAP_TICKS * interval_s)
        if newest_s - gap_s <= time_s <= newest_s:
            return Passage.LATE
        self.newest_s = time_s
        if time_s < newest_s:
            return Passage.BACK
        return Passage.GAP if time_s - newest_s > gap_s else Passage.NEXT
