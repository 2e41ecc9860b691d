"""What happened in a pool, counted so that a malloc or a free touches three numbers.

PyTorch updates nine statistics, each for its pool and for all, at every call. Here a call adds to totals that
only grow; the statistics are differences of them, taken when somebody asks. Their peaks need a look at each
state that could be the highest: allocated memory is highest where a free follows a malloc, inactive memory
where a malloc follows a free. Even there nothing has to be computed while less was added since the last look
than was missing to the peak then.
"""

from __future__ import annotations

from .rules import LEAST_BLOCK_BYTES, SMALL_LIMIT_BYTES

COUNTED = (
    "allocation",
    "active",
    "inactive_split",
    "allocated_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
"""The statistics that are kept as differences of totals, by PyTorch's names."""


class Tally:
    """Totals of one kind of pool, small or large."""

    __slots__ = (
        "awaiting_bytes",
        "awaiting_count",
        "awaiting_requested",
        "down_bytes",
        "down_count",
        "down_limit",
        "down_requested",
        "least_bytes",
        "merged_down",
        "pieces_down",
        "pieces_up",
        "split_up",
        "up_bytes",
        "up_count",
        "up_limit",
        "up_requested",
        "whole_down",
        "whole_up",
    )

    def __init__(self, *, is_small: bool) -> None:
        self.least_bytes = LEAST_BLOCK_BYTES if is_small else SMALL_LIMIT_BYTES
        self.up_bytes = self.up_requested = self.up_count = 0
        """Allocated so far: block bytes, requested bytes, blocks."""
        self.down_bytes = self.down_requested = self.down_count = 0
        """Freed so far, as the caller sees it."""
        self.awaiting_bytes = self.awaiting_requested = self.awaiting_count = 0
        """Freed by the caller, still used by another stream."""
        self.whole_up = 0
        """Of `up_bytes`: from blocks that were all of their segment, or of an expandable region."""
        self.whole_down = 0
        """Of the bytes that came back: those that made their segment whole, or of an expandable region."""
        self.split_up = 0
        """Bytes that were left over when whole segments were split."""
        self.merged_down = 0
        """Bytes of free neighbours that went into a segment becoming whole."""
        self.pieces_up = self.pieces_down = 0
        """Free pieces of split segments: come and gone."""
        self.up_limit = self.down_limit = -1
        """Values of `up_bytes` and `down_bytes` up to which no peak can have been passed."""

    def read_totals(self) -> tuple[tuple[int, int], ...]:
        """Return what each statistic of `COUNTED` rose and fell by so far."""
        returned = self.down_bytes - self.awaiting_bytes
        return (
            (self.up_count, self.down_count),
            (self.up_count, self.down_count - self.awaiting_count),
            (self.pieces_up, self.pieces_down),
            (self.up_bytes, self.down_bytes),
            (self.up_bytes, returned),
            (returned - self.whole_down + self.split_up, self.up_bytes - self.whole_up + self.merged_down),
            (self.up_requested, self.down_requested - self.awaiting_requested),
        )


class Peaks:
    """The highest values of the counted statistics: of both pools together, the small and the large one."""

    def __init__(self, small: Tally, large: Tally) -> None:
        self._small = small
        self._large = large
        self.all = [0] * len(COUNTED)
        self.small = [0] * len(COUNTED)
        self.large = [0] * len(COUNTED)

    def note(self) -> None:
        """Take the present state into the peaks, and compute until when no further look is needed."""
        small = [rose - fell for rose, fell in self._small.read_totals()]
        large = [rose - fell for rose, fell in self._large.read_totals()]
        both = [a + b for a, b in zip(small, large)]
        self.small = _raise(self.small, small)
        self.large = _raise(self.large, large)
        self.all = _raise(self.all, both)
        missing = [peak - value for peak, value in zip(self.all, both)]
        _set_limits(self._small, [peak - value for peak, value in zip(self.small, small)], missing)
        _set_limits(self._large, [peak - value for peak, value in zip(self.large, large)], missing)

    def reset(self) -> None:
        """Forget the peaks before now."""
        self.all = self.small = self.large = [0] * len(COUNTED)
        self.note()


def _raise(peaks: list[int], values: list[int]) -> list[int]:
    return [value if value > peak else peak for peak, value in zip(peaks, values)]


def _set_limits(tally: Tally, own: list[int], both: list[int]) -> None:
    """Compute how much may be added before a peak could be passed; half of what both miss is each one's."""
    least = tally.least_bytes
    missing = [min(mine, ours // 2) for mine, ours in zip(own, both)]
    allocation, active, pieces, allocated, active_bytes, inactive, requested = missing
    up = min(allocated, active_bytes, requested, allocation * least, active * least)
    tally.up_limit = tally.up_bytes + up
    tally.down_limit = tally.down_bytes + min(inactive, pieces * least)


class Counter:
    """One statistic that changes seldom: current value, peak, and what it rose and fell by."""

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def rise(self, amount: int) -> None:
        """Add to the value."""
        self.current += amount
        self.allocated += amount
        self.peak = max(self.peak, self.current)

    def fall(self, amount: int) -> None:
        """Subtract from the value."""
        self.current -= amount
        self.freed += amount

    def as_dict(self) -> dict[str, int]:
        """Return the four numbers by PyTorch's names."""
        return {
            "current": self.current,
            "peak": self.peak,
            "allocated": self.allocated,
            "freed": self.freed,
        }


class PoolCounter:
    """A counter for both pools together, for the large and for the small one."""

    __slots__ = ("all", "large", "small")

    def __init__(self) -> None:
        self.all, self.large, self.small = Counter(), Counter(), Counter()

    def rise(self, amount: int, *, is_small: bool) -> None:
        """Add to the value of a pool."""
        self.all.rise(amount)
        (self.small if is_small else self.large).rise(amount)

    def fall(self, amount: int, *, is_small: bool) -> None:
        """Subtract from the value of a pool."""
        self.all.fall(amount)
        (self.small if is_small else self.large).fall(amount)

    def each(self) -> tuple[Counter, Counter, Counter]:
        """Return the three counters."""
        return self.all, self.large, self.small

    def as_dict(self) -> dict[str, dict[str, int]]:
        """Return the three by PyTorch's names."""
        return {
            "all": self.all.as_dict(),
            "small_pool": self.small.as_dict(),
            "large_pool": self.large.as_dict(),
        }
