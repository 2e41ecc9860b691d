"""Which figure stands for the level of a device: device used, else what its allocator says.

Files of training programs often tell the allocator's figures alone. An empty graph would hide them.
"""

from collections.abc import Iterable

from ...engine.history import History
from ...engine.history.history import Field
from ...engine.model import DeviceSample

_WHOLE_S = 4e8
"""One bucket for all of a history: twelve years, whose limits are far from now."""
_ALLOCATOR: tuple[Field, ...] = ("reserved", "allocated")
_Levels = tuple[list[float | None], list[float | None]]


def is_told_by_allocator(device: DeviceSample, ranks: Iterable[object]) -> bool:
    """Return whether its allocator may be all that is known of a device, as in a file without a process."""
    return device.allocator is not None and not any(True for _ in ranks)


def read_levels(
    history: History, uuid: str, end_s: float, bucket_s: float, count: int, *, has_allocator: bool
) -> _Levels:
    """Return the least and the most of every bucket: of device used, else of reserved, else of allocated.

    Args:
        history: What was seen.
        uuid: The device.
        end_s: A time in the last bucket.
        bucket_s: Seconds of a bucket.
        count: How many of them.
        has_allocator: Whether its allocator stands for it where device used was not measured.
    """
    used = history.columns(uuid, "used", end_s, bucket_s, count)
    low = list(used.minimum)
    high = list(used.maximum)
    for field in _ALLOCATOR if has_allocator else ():
        if None not in high:
            break
        columns = history.columns(uuid, field, end_s, bucket_s, count)
        for index, most in enumerate(columns.maximum):
            if high[index] is None:
                low[index], high[index] = columns.minimum[index], most
    return low, high


def find_most(history: History, uuid: str, end_s: float) -> int:
    """Return the most that was seen of a device by any figure, 0 where nothing was.

    Args:
        history: What was seen.
        uuid: The device.
        end_s: Time of the newest sample.
    """
    fields: tuple[Field, ...] = ("used", *_ALLOCATOR)
    most = [history.columns(uuid, field, end_s, _WHOLE_S, 1).maximum[0] for field in fields]
    return max((int(size) for size in most if size is not None), default=0)
