"""The last minutes of one allocator in blocks of half a minute, long enough to hold the peaks of its steps.

Free bytes in segments with live blocks change within every step, and whatever is free at the end of a step
serves the next one. Lost is what is stranded while the most is allocated. So a window looks only at its
fullest
moments, and keeps the least of them; and it must hold several steps for that to count. Blocks begin at fixed
times, so that two workers that began at different moments see the same ones.
"""

from collections import deque
from itertools import islice
from typing import NamedTuple

from ...engine.model import Severity
from ...engine.units import MIB
from ...engine.unmeasured import larger, smaller

BLOCK_S = 30.0
# Shortest window that decides where nothing was refused.
LEAST_S = 300.0
# Shortest window that decides where something was.
REFUSED_S = 60.0
# Steps that must end within it, where they are known.
LEAST_STEPS = 3
# Blocks whose fullest moment held this share of the fullest of all count as full.
FULL_SHARE = 0.95
# Ten minutes: the longest window, for long steps.
MOST_BLOCKS = 20
# Blocks from which on what steps need is known.
LEAST_NEED_BLOCKS = 2
# Half an hour: for how long it is remembered; what was pinned once is pinned again.
NEED_BLOCKS = 60


class Tick(NamedTuple):
    """The allocator in one sample; None is unmeasured."""

    time_s: float
    interval_s: float
    stranded_bytes: int | None
    # At the moment of the sample.
    allocated_bytes: int | None
    # Most allocated within the tick, or within its steps.
    peak_bytes: int | None
    reserved_bytes: int | None
    step: int | None
    retries: int | None
    # Least allocated within its steps.
    floor_bytes: int | None = None


class Extremes(NamedTuple):
    """Least and most of a stretch of time."""

    # Stranded at the fullest moment that was sampled; over several blocks the least of such.
    stranded_bytes: int | None
    # Allocated at that moment.
    fullest_bytes: int | None
    peak_bytes: int | None
    reserved_bytes: int | None
    # Least reserved and not allocated.
    unused_bytes: int | None
    # Least allocated at the ends of steps.
    floor_bytes: int | None = None
    # Allocated and stranded at the emptiest moment that was sampled: nearest to the end of a step.
    emptiest_bytes: int | None = None
    emptiest_stranded_bytes: int | None = None
    # Most that a step took above the floor before or after it.
    amplitude_bytes: int | None = None


NOTHING = Extremes(None, None, None, None, None)


class Need(NamedTuple):
    """What a job needs if no step finds use for stranded bytes, from the blocks of the last half hour."""

    # Most that was pinned between steps.
    pinned_bytes: int
    # Most that a step took above its floor.
    amplitude_bytes: int
    # Most less least that was pinned: whether stranded blocks come and go.
    swing_bytes: int
    # Most that was reserved.
    reserved_bytes: int

    @property
    def bytes(self) -> int:
        return self.pinned_bytes + self.amplitude_bytes


class Window:
    def __init__(self) -> None:
        # Finished blocks, each with the newest step at its end.
        self._blocks: deque[tuple[Extremes, int | None]] = deque(maxlen=MOST_BLOCKS + 1)
        self._needs: deque[Need] = deque(maxlen=NEED_BLOCKS)
        self._number: int | None = None
        self._running = NOTHING
        self._step: int | None = None
        # At the end of the newest step.
        self._floor: int | None = None

    def clear(self) -> None:
        self._blocks.clear()
        self._needs.clear()
        self._number = None
        self._running = NOTHING
        self._step = None
        self._floor = None

    def add(self, tick: Tick) -> bool:
        """Count one sample; return whether it began a new block, so that the window has moved."""
        number = int(tick.time_s // BLOCK_S)
        is_moved = self._number is not None and number != self._number
        if is_moved:
            self._blocks.append((self._running, self._step))
            self._note_need(self._running)
            self._running = NOTHING
        self._number = number
        self._step = tick.step if tick.step is not None else self._step
        self._running = _widen(self._running, tick, self._floor)
        self._floor = tick.floor_bytes if tick.floor_bytes is not None else self._floor
        return is_moved

    def measure(self, least_s: float = LEAST_S) -> Extremes | None:
        """Return the extremes of the shortest stretch of at least `least_s`; None while too little
        was seen.
        """
        if not self._blocks:
            return None
        newest_step = self._blocks[-1][1]
        for count in range(1, len(self._blocks)):
            if count * BLOCK_S < least_s:
                continue
            before = self._blocks[-count - 1][1]
            if newest_step is None or (before is not None and newest_step - before >= LEAST_STEPS):
                return _join(
                    [extremes for extremes, _ in islice(self._blocks, len(self._blocks) - count, None)]
                )
        return None

    def _note_need(self, block: Extremes) -> None:
        """Remember what was needed in a block, where steps ended in it."""
        if block.floor_bytes is not None and block.emptiest_stranded_bytes is not None:
            pinned = block.floor_bytes + block.emptiest_stranded_bytes
            self._needs.append(Need(pinned, block.amplitude_bytes or 0, 0, block.reserved_bytes or 0))

    def find_need(self) -> Need | None:
        """Return what steps need besides all that is pinned; None before two blocks in which steps ended."""
        if len(self._needs) < LEAST_NEED_BLOCKS:
            return None
        pinned = [need.pinned_bytes for need in self._needs]
        amplitude = max(need.amplitude_bytes for need in self._needs)
        reserved = max(need.reserved_bytes for need in self._needs)
        return Need(max(pinned), amplitude, max(pinned) - min(pinned), reserved)

    @property
    def newest(self) -> Extremes:
        return _join([self._blocks[-1][0], self._running]) if self._blocks else self._running

    @property
    def newest_peak_bytes(self) -> int | None:
        peak = self._running.peak_bytes
        return larger(self._blocks[-1][0].peak_bytes, peak) if self._blocks else peak


def _widen(running: Extremes, tick: Tick, floor_before: int | None) -> Extremes:
    """Return the extremes of a stretch with one more sample; `floor_before` is that of the step before it."""
    peak = tick.peak_bytes if tick.peak_bytes is not None else tick.allocated_bytes
    reserved = tick.reserved_bytes
    allocated = tick.allocated_bytes
    stranded = tick.stranded_bytes
    unused = None if reserved is None or peak is None else max(0, reserved - peak)
    is_known = allocated is not None and stranded is not None
    fullest = running.fullest_bytes
    is_fuller = is_known and (fullest is None or (allocated or 0) > fullest)
    emptiest = running.emptiest_bytes
    is_emptier = is_known and (emptiest is None or (allocated or 0) < emptiest)
    floor = tick.floor_bytes
    above = None if floor is None or floor_before is None or peak is None else peak - max(floor, floor_before)
    return Extremes(
        stranded if is_fuller else running.stranded_bytes,
        allocated if is_fuller else fullest,
        larger(running.peak_bytes, peak),
        larger(running.reserved_bytes, reserved),
        smaller(running.unused_bytes, unused),
        smaller(running.floor_bytes, floor),
        allocated if is_emptier else emptiest,
        stranded if is_emptier else running.emptiest_stranded_bytes,
        larger(running.amplitude_bytes, above),
    )


def _join(parts: list[Extremes]) -> Extremes:
    """Return the extremes of several stretches: what was stranded in the fullest of them."""
    fullest = max((part.fullest_bytes for part in parts if part.fullest_bytes is not None), default=None)
    stranded = peak = reserved = unused = None
    for part in parts:
        if fullest is not None and (part.fullest_bytes or 0) >= FULL_SHARE * fullest:
            stranded = smaller(stranded, part.stranded_bytes)
        peak = larger(peak, part.peak_bytes)
        reserved = larger(reserved, part.reserved_bytes)
        unused = smaller(unused, part.unused_bytes)
    return Extremes(stranded, fullest, peak, reserved, unused)


# When fragmentation costs: what is stranded compared with what else is left, refusals, and flushes in vain.

# A stranded byte is no loss while the job has room elsewhere. It costs where the rest of the room is nearly
# gone, and it has cost where the device refused the allocator a segment although that much was free.

# Share of the limit that must be stranded for a finding, and to keep it open.

STRANDED_SHARE = 0.10
RELIEVED_STRANDED_SHARE = 0.07
# Share of the limit below which the rest of the room is nearly gone, and from which it is enough again.
SCARCE_SHARE = 0.05
AMPLE_SHARE = 0.08
# What must be stranded at a refusal for fragmentation to be its cause: share of the limit, and at least so
# many bytes.
SERVING_SHARE = 0.05
SERVING_BYTES = 64 * MIB
# Share of the limit that is left, from which a flush of the cache serves whatever is asked for.
SERVED_SHARE = 0.15
# Where so many times what is stranded is left as well, it is not the stranded memory that is missing.
SERVED_TIMES = 2.0
# Share of the limit up to which even the largest step needs nothing that is stranded: the refusal only made
# the allocator give its cache back.
SERVED_NEED_SHARE = 0.9
# For how long a refusal counts.
RETRY_S = 300.0
# Seconds without a refusal before a finding may close: what is rare, a checkpoint say, refuses again.
QUIET_S = 900.0

# Share of the limit from which reserved memory is at the wall.
WALL_SHARE = 0.95
# Share of the limit by which reserved memory falls when the cache is flushed.
FLUSH_SHARE = 0.02
# Share of the recent peak that is allocated where the flush was not the program's own between steps.
AT_PEAK_SHARE = 0.90
# So many flushes within so many seconds: the cache may have grown again by the time of a sample, so only the
# least that several of them left counts.
FLUSHES = 5
FLUSHES_S = 900.0
# Longest tick at which a flush can be detected.
FLUSH_TICK_S = 2.0

# A step finds its largest blocks either in the cache, which the device can have back, or in the holes between
# live blocks. Where what is pinned and what the largest step takes exceed the limit, that step runs only
# because holes fit it. Holes that stay as they are serve steps that stay as they are; holes that change fit
# until they do not.

# Share of the limit that must be needed to close the finding again, and to open it where much is stranded.
NEED_BACK_SHARE = 0.95
# Share of the limit that must be needed for high: where the device refused a segment within half an hour, and
# where it never did, so that every hole fitted so far.
REFUSED_NEED_SHARE = 1.04
SURE_NEED_SHARE = 1.15
# Share of the limit by which what is pinned must have changed within half an hour, where nothing was refused.
SWING_SHARE = 0.03
# Share of the limit that must have been reserved then: below, the device has more to give.
BRIM_SHARE = 0.75
# How much more must be needed than was endured before, to be severe again.
ENDURED_MARGIN = 1.02


class Cost(NamedTuple):
    """What fragmentation costs one allocator; all in bytes."""

    # Free in segments with live blocks, even at the peaks of the steps.
    stranded_bytes: int
    peak_bytes: int
    limit_bytes: int
    # Room that is left beyond the peak without what is stranded.
    rest_bytes: int
    # Refusals of the last minutes while enough was stranded to serve them.
    retries: int
    # Flushes at the wall that left as much unused, where refusals are not counted.
    flushes: int
    # Whether nothing was refused for long.
    is_quiet: bool
    # What the largest step needs if no hole fits it; 0 where that is unknown.
    need_bytes: int = 0
    # Whether holes change while the reserved memory is at the wall.
    is_unsettled: bool = False
    # Whether the device refused a segment within the time for which needs are remembered.
    was_refused: bool = False
    # Most that was needed in an earlier time of refusals, or of holes that had to fit, which ended well.
    endured_bytes: int = 0

    @property
    def most_bytes(self) -> int:
        """What is compared with earlier: the need of the largest step, or the peak where that is unknown."""
        return self.need_bytes or self.peak_bytes

    @property
    def was_endured(self) -> bool:
        """Whether it came through as much before: caches that were given back served every request."""
        return self.most_bytes <= ENDURED_MARGIN * self.endured_bytes

    @property
    def has_cost(self) -> bool:
        return self.retries > 0 or self.flushes >= FLUSHES

    @property
    def needs_holes(self) -> bool:
        """Whether the largest step runs only because holes between live blocks fit it, and these change.

        Where much is stranded even at the peaks, less than the limit is enough to be needed: the rest of the
        room seldom is in one piece.
        """
        is_much = self.stranded_bytes >= STRANDED_SHARE * self.limit_bytes
        most = NEED_BACK_SHARE * self.limit_bytes if is_much else self.limit_bytes
        return self.is_unsettled and self.need_bytes > most

    @property
    def is_beyond(self) -> bool:
        is_much = self.stranded_bytes >= STRANDED_SHARE * self.limit_bytes
        is_scarce = is_much and self.rest_bytes < SCARCE_SHARE * self.limit_bytes
        return self.has_cost or self.needs_holes or is_scarce

    @property
    def is_back(self) -> bool:
        if self.need_bytes > NEED_BACK_SHARE * self.limit_bytes:
            return False
        is_less = self.stranded_bytes < RELIEVED_STRANDED_SHARE * self.limit_bytes
        return self.is_quiet and (is_less or self.rest_bytes >= AMPLE_SHARE * self.limit_bytes)

    @property
    def severity(self) -> Severity:
        if (self.retries or self.needs_holes) and self.was_endured:
            return "medium"
        if self.retries:
            return "critical"
        if self.needs_holes:
            least = REFUSED_NEED_SHARE if self.was_refused else SURE_NEED_SHARE
            return "high" if self.need_bytes > least * self.limit_bytes else "medium"
        if self.flushes >= FLUSHES:
            return "medium"
        return "medium" if self.rest_bytes < SCARCE_SHARE / 2 * self.limit_bytes else "low"


class Refusals:
    """Refusals, from a counter, and flushes, from falls of reserved memory."""

    def __init__(self) -> None:
        self._count: int | None = None
        self._retries: deque[float] = deque(maxlen=16)
        self._flushes: deque[tuple[float, int]] = deque(maxlen=FLUSHES)
        self._reserved: int | None = None
        self._limit: int | None = None

    def clear(self) -> None:
        """Forget everything but the count: what happened since is unknown."""
        self._retries.clear()
        self._flushes.clear()
        self._reserved = None

    def observe(self, tick: Tick, limit_bytes: int | None, peak_bytes: int | None) -> None:
        """Count one sample; `peak_bytes` is the most that was recently allocated."""
        count = tick.retries
        before = self._count
        if count is not None:
            # A count that fell was reset by the program.
            self._retries.extend([tick.time_s] * min(count - before, 16) if before is not None else ())
            self._count = count
        elif self._is_flush(tick, peak_bytes):
            waste = (tick.reserved_bytes or 0) - (tick.allocated_bytes or 0)
            if self._limit is not None and waste >= STRANDED_SHARE * self._limit:
                self._flushes.append((tick.time_s, waste))
        self._reserved = tick.reserved_bytes
        self._limit = limit_bytes

    def is_quiet(self, time_s: float) -> bool:
        return not any(
            time_s - at_s <= QUIET_S for at_s in (*self._retries, *(at for at, _ in self._flushes))
        )

    def was_refused(self, time_s: float) -> bool:
        """Return whether the device refused a segment for as long as needs are remembered."""
        return any(time_s - at_s <= NEED_BLOCKS * BLOCK_S for at_s in self._retries)

    def has_any(self, time_s: float) -> bool:
        return self.count_retries(time_s) > 0 or self.count_flushes(time_s) > 0

    def count_retries(self, time_s: float) -> int:
        return sum(time_s - at_s <= RETRY_S for at_s in self._retries)

    def count_flushes(self, time_s: float) -> int:
        return sum(time_s - at_s <= FLUSHES_S for at_s, _ in self._flushes)

    @property
    def left_bytes(self) -> int | None:
        """Least that a flush at the wall left reserved and not allocated."""
        return min((waste for _, waste in self._flushes), default=None)

    def _is_flush(self, tick: Tick, peak_bytes: int | None) -> bool:
        before = self._reserved
        limit = self._limit
        reserved = tick.reserved_bytes
        allocated = tick.allocated_bytes
        if not limit or before is None or reserved is None or allocated is None or peak_bytes is None:
            return False
        if tick.interval_s > FLUSH_TICK_S:
            return False
        is_fall = before >= WALL_SHARE * limit and before - reserved >= FLUSH_SHARE * limit
        return is_fall and allocated >= AT_PEAK_SHARE * peak_bytes


def weigh(
    extremes: Extremes, refusals: Refusals, limit_bytes: int | None, time_s: float, need: Need | None = None
) -> Cost | None:
    """Return what fragmentation costs over a window up to `time_s`; None where that cannot be known."""
    peak = extremes.peak_bytes
    flushes = refusals.count_flushes(time_s)
    stranded = extremes.stranded_bytes
    if stranded is None and flushes:
        stranded = refusals.left_bytes
    if not limit_bytes or peak is None or stranded is None:
        return None
    if extremes.unused_bytes is not None:  # at the very peak, which is seldom sampled, no more can be free
        stranded = min(stranded, extremes.unused_bytes)
    rest = max(0, limit_bytes - peak - stranded)
    could_serve = stranded >= max(SERVING_SHARE * limit_bytes, SERVING_BYTES)
    is_short = rest < min(SERVED_SHARE * limit_bytes, SERVED_TIMES * stranded)
    is_served = need is not None and need.bytes < SERVED_NEED_SHARE * limit_bytes
    is_unsettled = need is not None and (
        refusals.count_retries(time_s) > 0
        or (need.swing_bytes >= SWING_SHARE * limit_bytes and need.reserved_bytes >= BRIM_SHARE * limit_bytes)
    )
    return Cost(
        stranded_bytes=stranded,
        peak_bytes=peak,
        limit_bytes=limit_bytes,
        rest_bytes=rest,
        retries=refusals.count_retries(time_s) if could_serve and is_short and not is_served else 0,
        flushes=flushes,
        is_quiet=refusals.is_quiet(time_s),
        need_bytes=0 if need is None else need.bytes,
        is_unsettled=is_unsettled,
        was_refused=refusals.was_refused(time_s),
    )
