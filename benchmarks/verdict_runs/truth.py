"""What is true of a run: where it leaks, when memory runs out, and for how long that could be seen coming."""

from dataclasses import dataclass
from typing import Literal

Place = Literal["device", "host"]
FLAT_STEPS, FLAT_SAMPLES, FLAT_SHARE = 64, 128, 0.25
"""For so many steps or samples, or such a share of its length, growth that has ended may be reported."""

FRAGMENTED_SHARE = 0.85
"""Of what the allocator could take: an error with less of it live is one of fragmentation."""


@dataclass(frozen=True)
class Leak:
    """A stretch of a run in which something is kept that nobody will use again."""

    onset_s: float
    """When it begins, in seconds from the start of the run."""
    end_s: float
    """When it stops growing; the end of the run where it never does."""
    where: Place = "device"


@dataclass(frozen=True)
class Truth:
    """The labels of one run; times are seconds from its start."""

    leaks: tuple[Leak, ...] = ()
    oom_s: float | None = None
    """When the allocator found no room, where the run ends; None where it never did."""
    growth_s: float | None = None
    """When the growth began that led there; None where nothing grew, as before a first long batch."""
    fills: tuple[Leak, ...] = ()
    """Healthy growth that looks like a leak until it ends: a finding may stand while it lasts."""
    step_s: float = 1.0
    """Mean length of a step."""
    live_share: float | None = None
    """Share of what the allocator could take that was live at the error; None without one."""

    @property
    def precursor_s(self) -> float:
        """How long the error could be seen coming; 0 where it could not, or never came."""
        if self.oom_s is None or self.growth_s is None:
            return 0.0
        return self.oom_s - self.growth_s

    @property
    def is_fragmented(self) -> bool:
        """Whether memory ran out though nothing grew and much of it was not live."""
        return self.growth_s is None and self.live_share is not None and self.live_share < FRAGMENTED_SHARE

    @property
    def is_benign(self) -> bool:
        """Whether nothing is wrong: no leak, no error."""
        return not self.leaks and self.oom_s is None

    def find_quiet(self, duration_s: float, interval_s: float) -> list[tuple[float, float]]:
        """Return the stretches in which nothing grows and nothing may be said to be near its end, in seconds.

        A stretch begins once growth has ended and a finding has had time to close. Before a first large batch
        that does not fit none is quiet: it may be forecast at any time.
        """
        if self.oom_s is not None and self.growth_s is None and not self.leaks:
            return []
        grown = [(it.onset_s, it.end_s + self.allow_s(it, interval_s)) for it in (*self.leaks, *self.fills)]
        if self.oom_s is not None and self.growth_s is not None:
            grown.append((self.growth_s, self.oom_s))
        quiet: list[tuple[float, float]] = []
        start_s = 0.0
        for onset_s, end_s in sorted(grown):
            if onset_s > start_s:
                quiet.append((start_s, onset_s))
            start_s = max(start_s, end_s)
        if duration_s > start_s:
            quiet.append((start_s, duration_s))
        return quiet

    def allow_s(self, grown: Leak, interval_s: float) -> float:
        """Return for how long after its end growth may still be reported."""
        length_s = grown.end_s - grown.onset_s
        return max(FLAT_STEPS * self.step_s, FLAT_SAMPLES * interval_s, FLAT_SHARE * length_s)
