"""Steps of one process as they end, kept in bounded memory for the headroom estimate."""

from collections import deque

from .estimate import HeadroomEstimate, StepSize, estimate_headroom

MOST_STEPS = 2048
WARM_UP_STEPS = 2
"""Steps that are left out: optimizers make their state in the first, and libraries their workspaces."""


class HeadroomAdvisor:
    """Takes steps with their sizes and says what would fit.

    Args:
        unit: What sizes count, in the plural.
    """

    def __init__(self, unit: str = "tokens") -> None:
        self._unit = unit
        self._left_out = 0
        self._steps: deque[StepSize] = deque(maxlen=MOST_STEPS)

    def add(self, step: StepSize) -> None:
        """Take one step that ended; the oldest is forgotten when there are too many."""
        if self._left_out < WARM_UP_STEPS:
            self._left_out += 1
        else:
            self._steps.append(step)

    def estimate(self, limit_bytes: int, *, utilization: float | None = None) -> HeadroomEstimate:
        """Return the largest size that would fit, see `estimate_headroom`.

        Args:
            limit_bytes: Most that the allocator can reserve.
            utilization: Peak allocated / peak reserved, where known.
        """
        return estimate_headroom(self._steps, limit_bytes, unit=self._unit, utilization=utilization)
