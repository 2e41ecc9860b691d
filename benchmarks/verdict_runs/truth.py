"""What is true of a run: where it leaks, when memory runs out, and for how long that could be seen coming."""

from dataclasses import dataclass
from typing import Literal

Place = Literal["device", "host"]


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

    @property
    def precursor_s(self) -> float:
        """How long the error could be seen coming; 0 where it could not, or never came."""
        if self.oom_s is None or self.growth_s is None:
            return 0.0
        return self.oom_s - self.growth_s

    @property
    def is_benign(self) -> bool:
        """Whether nothing is wrong: no leak, no error."""
        return not self.leaks and self.oom_s is None
