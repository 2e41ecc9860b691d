"""Whether steps leave more and more behind: the floors of the steps before a failure."""

from collections.abc import Sequence
from itertools import pairwise

from ...engine.model.flight_record import FlightStep
from .model import FloorTrend

BLOCKS = 6
LEAST_STEPS = 2 * BLOCKS


def measure_trend(steps: Sequence[FlightStep]) -> FloorTrend | None:
    """Return how the floor went, None with fewer than twelve measured steps.

    Allocator floors repeat to the byte while a job is steady, so that any rise means something.
    """
    return _measure([step.floor_bytes for step in steps if step.floor_bytes is not None])


def measure_peaks(steps: Sequence[FlightStep]) -> FloorTrend | None:
    """Return how the least peak of each sixth of the steps went; it rises where every step asks for more."""
    return _measure([step.peak_bytes for step in steps if step.peak_bytes is not None])


def _measure(levels: Sequence[int]) -> FloorTrend | None:
    """Return how a level of the steps went.

    The steps are cut into six parts of equal length, each with its least floor. It rises if no part is lower
    than the one before, at least three are higher, and the last two rises together are at least half of the
    first two.
    """
    length = len(levels) // BLOCKS
    if len(levels) < LEAST_STEPS:
        return None
    # The first steps build optimizer state; what does not fill a part is left out there.
    used = levels[len(levels) - length * BLOCKS :]
    least = [min(used[length * block : length * (block + 1)]) for block in range(BLOCKS)]
    changes = [after - before for before, after in pairwise(least)]
    is_rising = (
        min(changes) >= 0
        and sum(change > 0 for change in changes) >= 3
        and sum(changes[-2:]) >= 0.5 * sum(changes[:2])
    )
    return FloorTrend(
        steps=len(used),
        first_bytes=least[0],
        last_bytes=least[-1],
        growth_bytes_per_step=(least[-1] - least[0]) / (length * (BLOCKS - 1)),
        is_rising=is_rising,
    )
