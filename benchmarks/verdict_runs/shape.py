"""The shapes in which memory is seen: live ranks, imported series, a device alone, at their intervals."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["live", "series", "device"]
EPOCH_S = 1_750_000_000.0
"""What a wall clock says at the start of a live run."""


@dataclass(frozen=True)
class Shape:
    """How a run is seen."""

    kind: Kind
    """`live`: the probe reports every step; `series`: the allocator at random phase; `device`: NVML."""
    interval_s: float
    has_steps: bool = True
    """Whether a series has the column `step`."""
    jitter: float = 0.01
    """How far a sample is from its moment at most, as a share of the interval."""
    gaps: float = 0.0
    """Share of samples that are missing."""

    @property
    def name(self) -> str:
        """Short name, as in `series 5 s`."""
        steps = "+step" if self.kind == "series" and self.has_steps else ""
        return f"{self.kind}{steps} {self.interval_s:g} s"

    @property
    def epoch_s(self) -> float:
        """What the clock of the samples says at the start of a run."""
        return EPOCH_S if self.kind == "live" else 0.0

    @property
    def has_allocator(self) -> bool:
        """Whether the allocator's own figures are seen; without them nothing can be forecast."""
        return self.kind != "device"


LONG_SHAPES = (
    Shape("live", 5.0),
    Shape("series", 5.0, has_steps=False),
    Shape("series", 10.0),
    Shape("live", 1.0),
    Shape("device", 10.0),
    Shape("series", 10.0, has_steps=False),
    Shape("live", 10.0),
    Shape("series", 1.0, has_steps=False),
)
"""For runs of hours: mostly long intervals, so that thousands of hours can be fed through."""

SHORT_SHAPES = (
    Shape("live", 1.0),
    Shape("series", 1.0, has_steps=False),
    Shape("series", 1.0),
    Shape("live", 0.5),
    Shape("series", 5.0),
    Shape("series", 0.5, has_steps=False),
    Shape("live", 2.0),
    Shape("series", 2.0, has_steps=False),
)
"""For runs of minutes to a few hours."""

FAST_SHAPES = (Shape("series", 0.1, has_steps=False), Shape("series", 0.1), Shape("live", 0.2))
"""For runs of less than half an hour."""

VARIED_SHAPES = (
    Shape("live", 1.0, jitter=0.1),
    Shape("series", 1.0, has_steps=False, jitter=0.3),
    Shape("device", 1.0, gaps=0.1),
    Shape("series", 2.0, gaps=0.1),
    Shape("live", 15.0, jitter=0.05),
    Shape("series", 15.0, has_steps=False, jitter=0.2, gaps=0.05),
    Shape("live", 2.0, gaps=0.2),
    Shape("device", 15.0, jitter=0.2),
    Shape("series", 1.0, gaps=0.3),
)
"""Intervals of 1 to 15 s, moments that scatter, samples that are missing."""

VARIED_FAST_SHAPES = (
    Shape("series", 0.1, has_steps=False, jitter=0.3),
    Shape("live", 0.1, gaps=0.05),
    Shape("device", 0.1, jitter=0.2),
)
"""The same ten times a second, for runs of less than half an hour."""
