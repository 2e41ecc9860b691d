"""Steps of one process as they end, kept in bounded memory for the headroom estimate."""

from collections import deque

from ...engine.model import HeadroomEstimate
from .estimate import estimate_headroom
from .points import StepSize

MOST_STEPS = 2048


class HeadroomAdvisor:
    """Takes steps with their sizes and says what would fit.

    Args:
        unit: What sizes count, in the plural.
    """

    def __init__(self, unit: str = "tokens") -> None:
        self._unit = unit
        self._steps: deque[StepSize] = deque(maxlen=MOST_STEPS)

    @property
    def has_steps(self) -> bool:
        """Whether any step was taken that counts."""
        return bool(self._steps)

    def add(self, step: StepSize) -> None:
        """Take one step that ended; the oldest is forgotten when there are too many."""
        self._steps.append(step)

    def add_older(self, step: StepSize) -> None:
        """Take one step that ended before the others; it is left out where there is no room."""
        if len(self._steps) < MOST_STEPS:
            self._steps.appendleft(step)

    def estimate(
        self, limit_bytes: int, *, utilization: float | None = None, ceiling_bytes: int | None = None
    ) -> HeadroomEstimate:
        """Return the largest size that would fit, see `estimate_headroom`.

        Args:
            limit_bytes: Most that the allocator can reserve, or less where not all of that can be live.
            utilization: Peak allocated / peak reserved, where known.
            ceiling_bytes: Most that could be live in the best case; None for the limit.
        """
        return estimate_headroom(
            self._steps, limit_bytes, unit=self._unit, utilization=utilization, ceiling_bytes=ceiling_bytes
        )
