"""Whether steps leave more and more behind: the floors of the steps before a failure."""

from collections.abc import Sequence
from itertools import pairwise

from ...engine.model.flight_record import FlightStep
from .model import FloorTrend

BLOCKS = 6
LEAST_STEPS = 2 * BLOCKS


def measure_trend(steps: Sequence[FlightStep]) -> FloorTrend | None:
    """Return how the floor went, None with fewer than twelve measured steps.

    The steps are cut into six parts of equal length, each with its least floor. It rises if no part is lower
    than the one before, at least three are higher, and the last two rises together are at least half of the
    first two: allocator floors repeat to the byte while a job is steady, so that any rise means something.
    """
    floors = [step.floor_bytes for step in steps if step.floor_bytes is not None]
    length = len(floors) // BLOCKS
    if len(floors) < LEAST_STEPS:
        return None
    # The first steps build optimizer state; what does not fill a part is left out there.
    used = floors[len(floors) - length * BLOCKS :]
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
