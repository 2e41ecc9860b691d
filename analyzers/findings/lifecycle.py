"""How a finding lives: the order of a node's samples, hysteresis in their own time, opening and closing."""

import math
from enum import Enum, auto

import msgspec

from ...engine.model import Evidence, Finding, Severity
from ...engine.model.finding import CLOSED_BECAUSE

# The order of a node's samples: which of them follow, which come late, where nobody knows what happened.

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


# Hysteresis in the samples' own time: a state changes only when every sample of a dwell asks for it.

DWELL_S = 10.0
"""Seconds that samples must agree before a crossing begins or ends."""
DWELL_SAMPLES = 3
"""Samples that must agree, however far apart they are."""


class Crossing:
    """Whether a figure stands beyond a threshold; one odd sample neither begins nor ends it."""

    def __init__(self, *, is_active: bool = False) -> None:
        self.is_active = is_active
        self.asked_since_s = 0.0
        self._asked_count = 0
        self._asked_last_s = 0.0

    @property
    def is_asked(self) -> bool:
        """Whether the newest sample asked for the other state."""
        return self._asked_count > 0

    @property
    def is_due(self) -> bool:
        """Whether the samples of a whole dwell asked for the other state."""
        return self._asked_count >= DWELL_SAMPLES and self._asked_last_s - self.asked_since_s >= DWELL_S

    def observe(self, time_s: float, *, is_beyond: bool, is_back: bool) -> None:
        """Count one sample.

        Args:
            time_s: Time of the sample; later than that of the one before.
            is_beyond: The figure is past the threshold that begins the crossing.
            is_back: The figure is past the threshold that ends it; between the two neither holds.
        """
        if not (is_back if self.is_active else is_beyond):
            self.restart()
            return
        if not self._asked_count:
            self.asked_since_s = time_s
        self._asked_count += 1
        self._asked_last_s = time_s

    def flip(self) -> None:
        """Take the other state."""
        self.is_active = not self.is_active
        self.restart()

    def restart(self) -> None:
        """Forget the samples that asked so far: nobody knows what happened since."""
        self._asked_count = 0


# How a finding is closed: when, and why.


def close_finding(finding: Finding, time_s: float, because: str) -> Finding:
    """Return a finding as closed.

    Args:
        finding: An open finding.
        time_s: Time of the sample that closed it; it never closes before it opened.
        because: Why, in a clause.
    """
    closed_s = max(time_s, finding.opened_s)
    evidence = (*finding.evidence, Evidence(CLOSED_BECAUSE, because))
    return msgspec.structs.replace(finding, updated_s=closed_s, closed_s=closed_s, evidence=evidence)


# Whether a person would see that a figure changed.


def is_visible(before: float | None, after: float | None, share: float) -> bool:
    """Return whether a figure changed by more than a share of what it was, or became known or unknown."""
    if before is None or after is None:
        return before is not after
    return abs(after - before) > share * abs(before)


# How grave it is that memory runs out in so long; the thresholds stand in `docs/verdicts.md`.

CRITICAL_S = 120.0
HIGH_S = 600.0
MEDIUM_S = 3600.0
LOW_S = 21600.0
"""Seconds to the error below which it is so grave; beyond the last nothing is told."""

_LIMITS: tuple[tuple[float, Severity], ...] = (
    (CRITICAL_S, "critical"),
    (HIGH_S, "high"),
    (MEDIUM_S, "medium"),
    (LOW_S, "low"),
)


def grade_time_left(seconds: float) -> Severity | None:
    """Return how grave it is to have so many seconds left; None where they are too many to tell."""
    return next((severity for limit_s, severity in _LIMITS if seconds < limit_s), None)
