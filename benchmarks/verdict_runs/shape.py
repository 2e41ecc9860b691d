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
    """`live`: the probe tells of every step; `series`: the allocator at random phase; `device`: NVML."""
    interval_s: float
    has_steps: bool = True
    """Whether a series has the column `step`."""

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
        """Whether the allocator's own figures are seen; without them nothing can be foretold."""
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
