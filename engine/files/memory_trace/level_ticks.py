"""Levels that change from event to event, as the records of even ticks: in constant memory, in any order.

An event says what the level is from then on, so a tick without one has the level of the tick before, and the
most of a tick is at least what was there at its begin. Where a file spans more ticks than are kept, ticks are
joined in pairs until it does not: the last level and the most of a pair are those of the joined tick.
"""

import math
from collections.abc import Iterator

from ...model import RankCoordinates
from ..base.series_record import SeriesDevice, SeriesRecord

SHORTEST_TICK_S = 0.001
_TOLERANCE_S = 1e-6
"""A time of today is no multiple of a tick to the last bit; one so close to the end of a tick is at it."""
MOST_TICKS = 4096
"""Of one device: a minute in steps of 16 ms."""
MOST_DEVICES_OF_PROCESS = 128
"""PyTorch numbers the devices of a process in eight bits with a sign (`c10::DeviceIndex`)."""
MOST_GIVEN_TICKS = 1 << 17
"""The same where a person gave the length of a tick: a day of seconds."""


class LevelTicks:
    """Gathers the levels of one device.

    Args:
        interval_s: Length of a tick that a person asked for; None for the shortest that suits.
    """

    def __init__(self, interval_s: float | None = None) -> None:
        self._shortest_s = SHORTEST_TICK_S if interval_s is None else interval_s
        self._joins = 0
        self._most_ticks = MOST_TICKS if interval_s is None else MOST_GIVEN_TICKS
        self._ticks: dict[int, _Tick] = {}
        self._first = self._last = 0

    @property
    def interval_s(self) -> float:
        """Length of a tick in seconds."""
        return self._shortest_s * (1 << self._joins)

    def __bool__(self) -> bool:
        return bool(self._ticks)

    def add(
        self, time_s: float, allocated_bytes: int | None, reserved_bytes: int | None, *, is_oom: bool = False
    ) -> None:
        """Take an event: the levels right after it, at a time in seconds.

        Args:
            time_s: Below 10^10, so that ticks can be numbered.
            allocated_bytes: Allocated from then on; None leaves it as it was.
            reserved_bytes: Reserved from then on; None leaves it as it was.
            is_oom: Whether the event is an out-of-memory error.
        """
        number = math.floor((time_s + _TOLERANCE_S) / self._shortest_s) >> self._joins
        tick = self._ticks.get(number)
        if tick is None:
            number = self._make_room(number)
            tick = self._ticks.setdefault(number, _Tick())
        tick.take(time_s, allocated_bytes, reserved_bytes)
        tick.ooms += is_oom

    def records(
        self,
        device: SeriesDevice,
        *,
        start_s: float = 0.0,
        total_bytes: int | None = None,
        rank: RankCoordinates | None = None,
    ) -> Iterator[SeriesRecord]:
        """Yield a record for each tick from the first event to the last, at its end.

        Args:
            device: Whose records they are.
            start_s: What the times of the events count from.
            total_bytes: Its capacity.
            rank: Which rank trains on it.
        """
        if not self._ticks:
            return
        allocated: int | None = None
        reserved: int | None = None
        ooms = 0
        for place, number in enumerate(range(self._first, self._last + 1), 1):
            tick = self._ticks.get(number)
            most = allocated
            if tick is not None:
                known = [it for it in (allocated, tick.allocated_max_bytes) if it is not None]
                most = max(known, default=None)
                allocated = allocated if tick.allocated_bytes is None else tick.allocated_bytes
                reserved = reserved if tick.reserved_bytes is None else tick.reserved_bytes
                ooms += tick.ooms
            yield SeriesRecord(
                place,
                round(start_s + (number + 1) * self.interval_s, 6),
                device,
                allocated,
                reserved,
                allocated_max_bytes=most,
                ooms=ooms or None,
                total_bytes=total_bytes,
                rank=rank,
            )

    def _make_room(self, number: int) -> int:
        """Join ticks until one more fits, and return its number then."""
        if not self._ticks:
            self._first = self._last = number
        while max(self._last, number) - min(self._first, number) >= self._most_ticks:
            self._join()
            number //= 2
        self._first, self._last = min(self._first, number), max(self._last, number)
        return number

    def _join(self) -> None:
        joined: dict[int, _Tick] = {}
        for number in sorted(self._ticks):
            into = joined.setdefault(number // 2, self._ticks[number])
            if into is not self._ticks[number]:
                into.join(self._ticks[number])
        self._ticks = joined
        self._first = self._first // 2
        self._last = self._last // 2
        self._joins += 1


class _Tick:
    """What is known of one tick."""

    __slots__ = ("allocated_bytes", "allocated_max_bytes", "newest_s", "ooms", "reserved_bytes")

    def __init__(self) -> None:
        self.newest_s = float("-inf")
        self.allocated_bytes: int | None = None
        self.allocated_max_bytes: int | None = None
        self.reserved_bytes: int | None = None
        self.ooms = 0

    def take(self, time_s: float, allocated_bytes: int | None, reserved_bytes: int | None) -> None:
        """Take an event; of two at one time the one that came later counts."""
        if allocated_bytes is not None and allocated_bytes > (self.allocated_max_bytes or -1):
            self.allocated_max_bytes = allocated_bytes
        is_newest = time_s >= self.newest_s
        if allocated_bytes is not None and (is_newest or self.allocated_bytes is None):
            self.allocated_bytes = allocated_bytes
        if reserved_bytes is not None and (is_newest or self.reserved_bytes is None):
            self.reserved_bytes = reserved_bytes
        self.newest_s = max(self.newest_s, time_s)

    def join(self, later: "_Tick") -> None:
        """Take in the tick that follows."""
        if later.allocated_max_bytes is not None:
            most = self.allocated_max_bytes
            self.allocated_max_bytes = max(later.allocated_max_bytes, -1 if most is None else most)
        if later.allocated_bytes is not None:
            self.allocated_bytes = later.allocated_bytes
        if later.reserved_bytes is not None:
            self.reserved_bytes = later.reserved_bytes
        self.newest_s = later.newest_s
        self.ooms += later.ooms
