"""What happened in a pool, counted so that a malloc or a free touches three numbers.

PyTorch updates nine statistics, each for its pool and for all, at every call. Here a call adds to totals that
only grow; the statistics are differences of them, taken when somebody asks. Their peaks need a look at each
state that could be the highest: allocated memory is highest where a free follows a malloc, inactive memory
where a malloc follows a free. Even there nothing has to be computed while less was added since the last look
than was missing to the peak then.
"""

from __future__ import annotations

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
        "merged_down",
        "pieces_down",
        "pieces_limit",
        "pieces_up",
        "split_up",
        "up_bytes",
        "up_count",
        "up_count_limit",
        "up_limit",
        "up_requested",
        "whole_down",
        "whole_up",
    )

    def __init__(self) -> None:
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
        self.up_limit = self.up_count_limit = self.down_limit = self.pieces_limit = -1
        """Values of `up_bytes`, `up_count`, `down_bytes` and `pieces_up` up to which no peak was passed."""

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
        self.values = tuple([0, 0, 0] for _ in COUNTED)
        """For each of `COUNTED`: of both, of the small and of the large pool."""

    def note(self) -> None:
        """Take the present state into all peaks."""
        self.note_allocated()
        self.note_inactive()

    def note_allocated(self) -> None:
        """Take what is allocated into the peaks, and compute until when no further look is needed."""
        small = self._small
        large = self._large
        count, active_count, _, size, active_size, _, requested = self.values
        blocks = small.up_count - small.down_count
        bytes_ = small.up_bytes - small.down_bytes
        large_blocks = large.up_count - large.down_count
        large_bytes = large.up_bytes - large.down_bytes
        small_more, large_more = _raise(count, blocks, large_blocks)
        small_room, large_room = _raise(size, bytes_, large_bytes)
        asked = small.up_requested - small.down_requested + small.awaiting_requested
        large_asked = large.up_requested - large.down_requested + large.awaiting_requested
        rooms = [_raise(requested, asked, large_asked)]
        blocks = blocks + small.awaiting_count
        bytes_ = bytes_ + small.awaiting_bytes
        large_blocks = large_blocks + large.awaiting_count
        large_bytes = large_bytes + large.awaiting_bytes
        rooms.append(_raise(active_size, bytes_, large_bytes))
        more = _raise(active_count, blocks, large_blocks)
        small.up_limit = small.up_bytes + min(small_room, rooms[0][0], rooms[1][0])
        large.up_limit = large.up_bytes + min(large_room, rooms[0][1], rooms[1][1])
        small.up_count_limit = small.up_count + min(small_more, more[0])
        large.up_count_limit = large.up_count + min(large_more, more[1])

    def note_inactive(self) -> None:
        """Take what is stranded in split segments into the peaks, and compute until when that will do."""
        small = self._small
        large = self._large
        small_more, large_more = _raise(
            self.values[2], small.pieces_up - small.pieces_down, large.pieces_up - large.pieces_down
        )
        small_room, large_room = _raise(self.values[5], _measure_inactive(small), _measure_inactive(large))
        small.pieces_limit = small.pieces_up + small_more
        large.pieces_limit = large.pieces_up + large_more
        small.down_limit = small.down_bytes + small_room
        large.down_limit = large.down_bytes + large_room

    def reset(self) -> None:
        """Forget the peaks before now."""
        for peaks in self.values:
            peaks[:] = [0, 0, 0]
        self.note()


def _raise(peaks: list[int], small: int, large: int) -> tuple[int, int]:
    """Raise peaks to the present values; return how much either pool may gain before one could be passed."""
    both = small + large
    peaks[0] = max(peaks[0], both)
    peaks[1] = max(peaks[1], small)
    peaks[2] = max(peaks[2], large)
    half = (peaks[0] - both) // 2
    own = peaks[1] - small
    own_large = peaks[2] - large
    return own if own < half else half, own_large if own_large < half else half


def _measure_inactive(tally: Tally) -> int:
    """Return the bytes of free pieces in split segments."""
    returned = tally.down_bytes - tally.awaiting_bytes - tally.whole_down + tally.split_up
    return returned - (tally.up_bytes - tally.whole_up + tally.merged_down)


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
        self.all = Counter()
        self.large = Counter()
        self.small = Counter()

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
