"""Whether an allocator stands at its limit: the device refused it memory, and it gave its cache back."""

from collections import deque

from ...engine.model import AllocatorReading

WITHIN_S = 600.0
"""For how long a refusal counts."""
OFTEN = 3
"""Refusals within that time that make an allocator pressed."""
FULL_SHARE = 0.8
"""Share of the limit that was reserved before the cache was given back, where refusals are not counted."""
FALLEN_SHARE = 0.98


class Pressed:
    """Refusals of the device: by their count, or as cache that was given back near the limit.

    PyTorch counts them as `num_alloc_retries`. Where only bytes are known, reserved bytes that fall from near
    the limit say the same; a program that empties its cache below it does not count.
    """

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=OFTEN)
        self._retries: int | None = None
        self._reserved = 0

    def observe(self, time_s: float, allocator: AllocatorReading, limit_bytes: int | None) -> None:
        """Take what the allocator says at a moment."""
        if allocator.retries is not None:
            if self._retries is not None and allocator.retries > self._retries:
                self._times.append(time_s)
            self._retries = allocator.retries
            return
        reserved, before = allocator.reserved_bytes, self._reserved
        if reserved is None:
            return
        if limit_bytes is not None and FULL_SHARE * limit_bytes < before and reserved < FALLEN_SHARE * before:
            self._times.append(time_s)
        self._reserved = reserved

    def is_met(self, time_s: float, within_s: float) -> bool:
        """Return whether it was refused memory in the last so many seconds."""
        return bool(self._times) and time_s - self._times[-1] <= within_s

    def is_often(self, time_s: float) -> bool:
        """Return whether that happens again and again."""
        return len(self._times) == OFTEN and time_s - self._times[0] <= WITHIN_S
