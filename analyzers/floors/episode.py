"""One subject's growth from its onset to its end: what a leak is, and what a forecast rests on."""

import math
import sys
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ...engine.model import Finding
from ..findings.evidence import FLOOR_AT_ONSET, ONSET, ONSET_STEP, RATE
from ..findings.evidence import WINDOW as WINDOW_KEY
from ..findings.lifecycle import OpenFinding
from .blocks import KEPT, Beat, Block, BlockPyramid, turn_over
from .rate import Line, estimate_rate, fit_curve

# Growth that is benign ends: a cache is full, a window of losses has its length, a fragmented heap settles.
# So the evidence demanded is in proportion to the forecast made: floors must have grown, steadily and without
# slowing down, over at least `PHI` of the time that the capacity would last at that rate. Growth that slows
# is continued as a geometric series, as of a cache that fills with a time constant; where that ends below the
# capacity it is no leak yet.

# Numbers of blocks that are looked at: three lengths a scale, so that evidence need not wait for its next
# doubling.
WINDOWS = (8, 11, 15)
# Share of the headroom that must have been consumed: no forecast beyond 10 times the evidence.
PHI = 0.1
# Evidence of more than this many seconds needs a smaller share: that much less growth of an hour counts.
PHI_LASTING_S = 2400.0
PHI_LEAST = 0.004
# Share of blocks that must have risen above the one before; growth by few steps is a curriculum.
LEAST_RISES = 5 / 7
# Share of the growth that may fall on one difference.
MOST_IN_ONE = 0.5
# Share of the growth that floors may fall back in between (garbage collection).
MOST_FALL = 0.1
# The newest differences, and the least share of the usual pace that they keep.
NEWEST = 2
LEAST_NEWEST = 0.4
# Share of the growth by which blocks may deviate from the line through both ends.
MOST_BEND = 0.2
# How many times its own blur the growth must be, and where less clear growth will do.
LEAST_CLARITY = 12.0
LENIENT_CLARITY = 6.0

# Rate of the second half, as a share of that of the first, below which growth is ending.
LEAST_FACTOR = 0.6
# Standard errors by which growth may slow down more than it seems to.
DOUBT = 1.5
# Seconds of evidence from which on growth that looks straight counts, though its forecast is blurred.
LONG_S = 3000.0
LONG_ERROR = 0.25
LONG_DOUBT = 1.3


class Growth(NamedTuple):
    blocks: tuple[Block, ...]
    bytes_per_s: float
    grown_bytes: int
    # What is left above the floor and the amplitude of steps.
    headroom_bytes: float

    @property
    def window_s(self) -> float:
        return self.blocks[-1].end_s - self.blocks[0].start_s

    @property
    def share(self) -> float:
        return self.grown_bytes / max(1.0, self.headroom_bytes)


def demand_share(window_s: float) -> float:
    """Return the share of the headroom that growth over so many seconds must have consumed."""
    return max(PHI_LEAST, PHI * min(1.0, PHI_LASTING_S / max(window_s, 1e-9)))


def judge_growth(
    blocks: Sequence[Block], headroom_bytes: float, record_bytes: int, *, is_lenient: bool = False
) -> Growth | None:
    """Return the growth of floors; None without growth, or where it is going to end.

    Args:
        blocks: Consecutive blocks of one scale, eight or more.
        headroom_bytes: What is left above the floor and the amplitude of steps.
        record_bytes: Highest floor of such blocks before these; only what exceeds it is new.
        is_lenient: Whether less clear growth will do; then it is not asked whether it continues.
    """
    grown = blocks[-1].low - blocks[0].low
    window_s = blocks[-1].end_s - blocks[0].start_s
    least = demand_share(window_s) * max(0.0, headroom_bytes)
    if grown <= 0 or grown < least or blocks[-1].low - record_bytes < max(grown / 2, least):
        return None
    if not _is_steady(blocks, grown, LENIENT_CLARITY if is_lenient else LEAST_CLARITY):
        return None
    if not (_is_straight(blocks) if is_lenient else _goes_on(blocks, headroom_bytes)):
        return None
    rate = estimate_rate([(block.mid_s, block.low) for block in blocks])
    return Growth(tuple(blocks), rate, grown, headroom_bytes)


def _is_steady(blocks: Sequence[Block], grown: int, clarity: float) -> bool:
    """Return whether all blocks have a part in the growth, and it is clear of their blur."""
    lows = [block.low for block in blocks]
    diffs = [after - before for before, after in pairwise(lows)]
    if grown < clarity * _blur_of(blocks) or max(diffs) > MOST_IN_ONE * grown:
        return False
    if sum([diff > 0 for diff in diffs]) < LEAST_RISES * len(diffs):
        return False
    if -sum([diff for diff in diffs if diff < 0]) > MOST_FALL * grown:
        return False
    if sum(diffs[-NEWEST:]) < LEAST_NEWEST * NEWEST / len(diffs) * grown:
        return False
    start_s = blocks[0].mid_s
    span_s = blocks[-1].mid_s - blocks[0].mid_s
    bend = max([abs(b.low - lows[0] - grown * (b.mid_s - start_s) / span_s) for b in blocks])
    return bend <= MOST_BEND * grown


def _blur_of(blocks: Sequence[Block]) -> float:
    return sum([abs(block.blur) for block in blocks]) / len(blocks)


def _is_straight(blocks: Sequence[Block]) -> bool:
    pace = _compare_halves(blocks)
    return pace is not None and pace.factor >= LEAST_FACTOR


def _goes_on(blocks: Sequence[Block], headroom_bytes: float) -> bool:
    """Return whether growth would exceed the headroom even if it slowed on as it may have done so far.

    Growth that decays with a time constant, A (1 - exp(-t / tau)), has rates that fall by the same factor
    from each half of the window to the next; what remains of it is their geometric series. The factor is
    as low as its own uncertainty allows, so that a blurred line does not pass for a straight one.
    """
    pace = _compare_halves(blocks)
    if pace is None or pace.factor < LEAST_FACTOR:
        return False
    lasts = blocks[-1].end_s - blocks[0].start_s >= LONG_S
    if lasts and pace.error <= LONG_ERROR and pace.factor + LONG_DOUBT * pace.error >= 1.0:
        return True
    factor = pace.factor - DOUBT * pace.error
    if factor >= 1.0:
        return True
    if factor <= 0.0:
        return False
    tau_s = pace.lag_s / -math.log(factor)
    remaining = pace.rate * math.exp(-pace.age_s / tau_s) * tau_s
    return remaining > headroom_bytes


class _Pace(NamedTuple):
    # Bytes a second in the second half.
    rate: float
    factor: float
    # Standard error of the factor.
    error: float
    # From the middle of the first half to that of the second.
    lag_s: float
    # From the middle of the second half to the present.
    age_s: float


def _compare_halves(blocks: Sequence[Block]) -> _Pace | None:
    rates = [(b.low - a.low) / (b.mid_s - a.mid_s) for a, b in pairwise(blocks)]
    count = len(rates)
    part = count * 3 // 7
    first = sum(rates[:part]) / part
    last = sum(rates[-part:]) / part
    if first <= 0 or last <= 0:
        return None
    span_s = blocks[-1].mid_s - blocks[0].mid_s
    scatter = max(_scatter_of(rates), math.sqrt(2) * _blur_of(blocks) * count / span_s)
    # Floors that scatter by v have differences that scatter by v sqrt(2); those of one part telescope.
    error = scatter / part * math.hypot(1, last / first) / first
    return _Pace(last, last / first, error, span_s * (count - part) / count, span_s * part / count / 2)


def _scatter_of(rates: Sequence[float]) -> float:
    """Return the standard deviation of rates about a straight line through them."""
    count = len(rates)
    middle = (count - 1) / 2
    mean = sum(rates) / count
    weight = sum([(place - middle) ** 2 for place in range(count)])
    slope = sum([(place - middle) * rate for place, rate in enumerate(rates)]) / weight
    squares = [(rate - mean - slope * (place - middle)) ** 2 for place, rate in enumerate(rates)]
    return math.sqrt(sum(squares) / (count - 2))


FELL_BACK = "the floor fell back"
# Share of what it grew that a floor must have given back for the growth to be over.
FALLEN_BACK = 0.5
# Share of its rate below which growth has stopped.
PLATEAU_SHARE = 0.15
# Beats without growth after which it has ended where floors are exact and grew evenly, and before it begins.
FLAT_BEATS = 32
FLAT_BEATS_AT_FIRST = 16
# Blocks of a scale that must show no growth.
FLAT_BLOCKS = 4
# Standard errors by which their pace is below this share of the usual one.
FLAT_ERRORS = 2.5
FLAT_DOUBT = 0.6
# How much longer than any pause that growth came back from one must last.
FLAT_PAUSES = 1.5
# Samples meet the floor of steps by chance: there growth must have paused for this share of its own length,
# up to so many samples.
FLAT_LENGTH = 0.1
FLAT_MOST_SAMPLES = 128
# Blocks that must rise for growth to resume after a pause, and by which factor its pace may have changed.
RESUMED_BLOCKS = 5
RESUMED_PACE = 2.0
# Pace of each third of a growth, as a share of that of the third before, below which it slows down.
SLOWED = 0.9
# Blocks of each third at least.
SLOWED_BLOCKS = 4

# The rate is computed from blocks of so many scales below that of the evidence.
FRESHNESS = 1
# Longer sequences end somewhere: peaks must have used much of the room, and the end must be near.
PEAK_SHARE = 1.5
PEAK_S = 660.0
PEAK_LEAST_S = 120.0
# The same where the device refuses memory already.
PRESSED_SHARE = 0.5


class Episode(NamedTuple):
    """Growth that continues."""

    onset_s: float
    onset_bytes: int
    onset_step: int | None
    # Evidence on which it was first believed.
    window_s: float
    bytes_per_s: float
    # Whether peaks grow, above a floor that does not.
    is_peak: bool = False
    # Whether it is expected to continue; longer sequences and larger batches mostly end at a length that
    # fits.
    is_believed: bool = True


class GrowthTrack:
    """Floors of one subject, and the growth that they show while it lasts.

    With `has_peaks`, growth of peaks counts too, where floors do not grow and the end is near.
    """

    def __init__(self, *, has_peaks: bool = False) -> None:
        self.floors = FloorTrack()
        self.episode: Episode | None = None
        # Why an episode ended with the newest beat; None where none did.
        self.ended_because: str | None = None
        # Scales that completed a block by the newest beat.
        self.completed = 0
        # Through the floors since the onset, while they grow.
        self.line: Line | None = None
        # Bytes of the limit that growing peaks cannot use, as far as known.
        self.lost_bytes = 0
        self._has_peaks = has_peaks
        self._level = 0
        # When the last growth ended, how long it lasted, and the longest pause that growth came back from.
        self._paused_s: float | None = None
        self._lasted_s = 0.0
        self._longest_pause_s = 0.0
        # Growth of floors that paused for so long that it counted as ended.
        self._paused: Episode | None = None

    def observe(self, beat: Beat, limit_bytes: int | None, *, is_pressed: bool = False) -> None:
        """Add one beat; `limit_bytes` is the most that floors and the amplitude above them can reach.

        `is_pressed`: the device refuses the allocator memory again and again.
        """
        self.ended_because = None
        self.completed = self.floors.observe(beat, limit_bytes)
        for level in range(self.completed):
            self.floors.note_record(level)
        if self.floors.has_restarted:
            self._paused_s = None
            self._paused = None
            self._longest_pause_s = 0.0
            self._end("all of it was freed: growth started again")
            return
        episode = self.episode
        if episode is not None and self.completed:
            self._follow(episode, beat.time_s)
        if self.episode is None:
            self._resume(beat.time_s)
        if episode is None or episode.is_peak:
            self._begin()
        if self._has_peaks and (self.episode is None or not self.episode.is_believed):
            self._begin_peaks(is_pressed=is_pressed)

    def _begin_peaks(self, *, is_pressed: bool) -> None:
        """Begin an episode with growth of peaks; or believe in it, once the end is near."""
        for level in range(self.completed):
            growth = self.floors.judge_peaks(level, self.lost_bytes, is_lenient=True)
            if growth is None or self._has_paused(growth, is_peak=True):
                continue
            is_believed = _is_near(growth, is_pressed=is_pressed) and (
                is_pressed or self.floors.judge_peaks(level, self.lost_bytes, is_lenient=False) is not None
            )
            if self.episode is None or is_believed:
                self._begin_with(level, growth, is_peak=True, is_believed=is_believed)
                return

    @property
    def is_slowing(self) -> bool:
        """Whether floors rise ever more slowly, since their life began or since the onset, as caches do."""
        episode = self.episode
        if episode is None or episode.is_peak:
            return False
        finest = max(0, self._level - FRESHNESS)
        return any(
            _slows([block for block in self.floors.pyramid.mosaic(finest) if block.start_s >= since_s])
            for since_s in (self.floors.since_s, episode.onset_s)
        )

    def _resume(self, time_s: float) -> None:
        """Continue growth that had paused where it returns at about its pace: less evidence will do."""
        paused, paused_s = self._paused, self._paused_s
        if paused is None or paused_s is None or time_s - paused_s > self._lasted_s:
            self._paused = None
            return
        for level in range(self.completed):
            growth = self.floors.judge_resumed(level, paused_s)
            if (
                growth is None
                or not 1 / RESUMED_PACE <= growth.bytes_per_s / paused.bytes_per_s <= RESUMED_PACE
            ):
                continue
            self._longest_pause_s = max(self._longest_pause_s, growth.blocks[0].end_s - paused_s)
            self._paused = self._paused_s = None
            self.episode = paused
            self.line = self._fit_line(paused)
            return

    def _begin(self) -> None:
        """Begin an episode with growth of floors, of the finest scale that shows it."""
        for level in range(self.completed):
            growth = self.floors.judge(level)
            if growth is not None and not self._has_paused(growth, is_peak=False):
                self._begin_with(level, growth)
                return

    def _has_paused(self, growth: Growth, *, is_peak: bool) -> bool:
        """Return whether growth is over already when long blocks show it at last."""
        onset_s = growth.blocks[0].start_s
        pause_s = self._measure_pause(onset_s, growth.bytes_per_s, is_peak=is_peak, beats=FLAT_BEATS_AT_FIRST)
        return pause_s > 0.0

    def _begin_with(
        self, level: int, growth: Growth, *, is_peak: bool = False, is_believed: bool = True
    ) -> None:
        first = growth.blocks[0]
        if self._paused_s is not None and self.episode is None:
            pause_s = first.end_s - self._paused_s
            if pause_s < self._lasted_s:
                self._longest_pause_s = max(self._longest_pause_s, pause_s)
            self._paused_s = None
        self._level = level
        self.episode = Episode(
            first.end_s,
            first.low,
            first.last_step,
            growth.window_s,
            growth.bytes_per_s,
            is_peak,
            is_believed,
        )
        self.line = self._fit_line(self.episode)

    def _fit_line(self, episode: Episode) -> Line | None:
        finest = max(0, self._level - FRESHNESS)
        return self.floors.fit_line(episode.onset_s, finest, is_peak=episode.is_peak)

    def _follow(self, episode: Episode, time_s: float) -> None:
        because = self._find_end(episode, time_s)
        if because is not None:
            self._end(because)
            if because != FELL_BACK:
                self.floors.forget_records(time_s)
            return
        if self.completed <= self._level - FRESHNESS:
            return
        line = self._fit_line(episode)
        if line is not None and line.bytes_per_s > 0:
            self.line = line
            self.episode = episode._replace(bytes_per_s=line.bytes_per_s)

    def _find_end(self, episode: Episode, time_s: float) -> str | None:
        """Return why growth is over, or None while it continues."""
        found = self.floors.pyramid.mosaic(self._level)
        blocks = [turn_over(block) for block in found] if episode.is_peak else found
        since = [block.low for block in blocks if block.end_s > episode.onset_s]
        if not since:
            return None
        newest = max(since[-2:]) if episode.is_peak else min(since[-2:])
        if newest < episode.onset_bytes + FALLEN_BACK * (max(since) - episode.onset_bytes):
            return "the peak fell back" if episode.is_peak else FELL_BACK
        quiet_s = self._measure_pause(
            episode.onset_s, episode.bytes_per_s, is_peak=episode.is_peak, beats=FLAT_BEATS
        )
        if not quiet_s:
            return None
        self._paused_s = time_s - quiet_s
        self._lasted_s = self._paused_s - episode.onset_s
        self._paused = None if episode.is_peak else episode
        return f"growth stopped for {quiet_s:.0f} s"

    def _measure_pause(self, onset_s: float, bytes_per_s: float, *, is_peak: bool, beats: int) -> float:
        """Return for how many seconds growth has paused, 0 while it goes on.

        It has paused where the newest blocks of any scale that was just completed brought less than a share
        of what they should have, over so many beats at least, for clearly longer than it ever paused since
        its onset: stairs and trimmed lists have pauses that are a part of their growth.
        """
        floors = self.floors
        pauses = floors.peak_pauses if is_peak else floors.pauses
        least_s = FLAT_PAUSES * max(pauses.find_longest(onset_s), self._longest_pause_s)
        is_exact = floors.last is None or floors.last.kind != "sample"
        most_s = 0.0 if is_exact else FLAT_MOST_SAMPLES * floors.beat_s
        for level in range(self.completed):
            found = floors.pyramid.latest(level, KEPT)
            least = max(FLAT_BLOCKS, -(-beats // floors.beats_at(level)))
            for count in range(least, len(found), FLAT_BLOCKS):
                blocks = found[-count - 1 :]
                quiet_s = blocks[-1].end_s - blocks[0].end_s
                lasted_s = blocks[0].end_s - onset_s
                if quiet_s < max(least_s, min(FLAT_LENGTH * lasted_s, most_s)) or blocks[0].start_s < onset_s:
                    continue
                if _is_flat([turn_over(it) for it in blocks] if is_peak else blocks, bytes_per_s):
                    return quiet_s
        return 0.0

    def _end(self, because: str) -> None:
        if self.episode is not None:
            self.episode = None
            self.line = None
            self.ended_because = because


def _is_flat(blocks: Sequence[Block], bytes_per_s: float) -> bool:
    """Return whether blocks brought next to nothing of what they should have, beyond all doubt."""
    count = len(blocks)
    middle_s = sum([it.mid_s for it in blocks]) / count
    middle = sum([it.low for it in blocks]) / count
    spread = sum([(it.mid_s - middle_s) ** 2 for it in blocks])
    pace = sum([(it.mid_s - middle_s) * (it.low - middle) for it in blocks]) / spread
    if pace >= PLATEAU_SHARE * bytes_per_s:
        return False
    squares = sum([(it.low - middle - pace * (it.mid_s - middle_s)) ** 2 for it in blocks])
    error = math.sqrt(max(squares / (count - 2), _blur_of(blocks) ** 2) / spread)
    return pace + FLAT_ERRORS * error <= FLAT_DOUBT * bytes_per_s


def _slows(blocks: Sequence[Block]) -> bool:
    """Return whether each third rose, and clearly more slowly than the one before."""
    if len(blocks) < 3 * SLOWED_BLOCKS:
        return False
    start_s = blocks[0].start_s
    third_s = (blocks[-1].end_s - start_s) / 3
    paces = []
    for part in range(3):
        since_s, until_s = start_s + part * third_s, start_s + (part + 1) * third_s
        points = [(it.mid_s, it.low) for it in blocks if since_s <= it.mid_s <= until_s]
        if len(points) < SLOWED_BLOCKS:
            return False
        paces.append(estimate_rate(points[:: -(-len(points) // MOST_POINTS)]))
    return paces[2] > 0 and all(after < SLOWED * before for before, after in pairwise(paces))


def _is_near(growth: Growth, *, is_pressed: bool) -> bool:
    if growth.share < (PRESSED_SHARE if is_pressed else PEAK_SHARE):
        return False
    is_near = growth.headroom_bytes < PEAK_S * growth.bytes_per_s and growth.window_s >= PEAK_LEAST_S
    return is_pressed or is_near


WINDOW = WINDOWS[0]

# Beats in a block of the finest scale.
BASES = {"step": 2, "sample": 4, "device": 8, "host": 8}
# Least seconds of evidence: a sample is taken at some moment of a step, so growth may be a slow step.
LEAST_S = {"step": 0.0, "sample": 60.0, "device": 1200.0, "host": 600.0}
# Share of its last floor below which a subject has restarted.
FALLEN_SHARE = 0.5
LIMITS_KEPT = 32
# Blocks of the finest scale whose rise is visible at once.
NEWEST_BLOCKS = 4
# Seconds by which a clock must go back to have been set: a beat so late belongs to a new life.
CLOCK_BACK_S = 60.0
# Scale at which pauses are measured: samples that long ago are blurred less than what they pause by.
PAUSE_LEVELS = {"step": 0, "sample": 4, "device": 1, "host": 1}
# Scale at which the amplitude of steps is read.
AMPLITUDE_LEVEL = 2
# Evidence, in seconds or as a share of the headroom, that no drift of samples over a step explains.
UNPHASED_S = 1200.0
UNPHASED_SHARE = 1.0
# Share of the limit from which on reserved bytes cannot grow along with live ones.
BRIM_SHARE = 0.9
LEAST_POINTS = 4
# Blocks on which a rate rests at most.
MOST_POINTS = 24


class Pauses:
    """How long a level took again and again to exceed all that it was: the pauses that belong to a growth."""

    def __init__(self) -> None:
        self._top = -1
        self._top_s = 0.0
        # Start and length of pauses, the shorter the newer: an earlier one that was not longer tells nothing.
        self._found: list[tuple[float, float]] = []

    def observe(self, time_s: float, level: int) -> None:
        if level <= self._top:
            return
        length_s = time_s - self._top_s
        while self._found and self._found[-1][1] <= length_s:
            self._found.pop()
        self._found.append((self._top_s, length_s))
        self._top = level
        self._top_s = time_s

    def find_longest(self, since_s: float) -> float:
        """Return the longest pause that began after a moment and is over, in seconds; 0 without one."""
        return next((length_s for start_s, length_s in self._found if start_s >= since_s), 0.0)


class FloorTrack:
    """Beats of one subject, in blocks of every scale."""

    def __init__(self) -> None:
        self.last: Beat | None = None
        # Most that floors and the amplitude above them can reach: the least of recent readings.
        self.limit_bytes: int | None = None
        # Least and most of the samples of this life, for the height of its steps.
        self._least_bytes = sys.maxsize
        self._most_bytes = 0
        # Whether the newest beat began a new life.
        self.has_restarted = False
        self._limits: deque[int] = deque(maxlen=LIMITS_KEPT)
        # Cached until the next block is completed.
        self._amplitude_bytes: int | None = None
        self._begin(None)

    def observe(self, beat: Beat, limit_bytes: int | None) -> int:
        """Add one beat; return how many scales, from the finest on, completed a block by it.

        Beats that are not newer than the last one are left out.
        """
        self.has_restarted = False
        if self.is_late(beat):
            return 0
        if self.last is not None and beat.time_s < self.last.time_s:
            self._begin(beat)
            self.last = beat
            self.has_restarted = True
            return 0
        if limit_bytes is not None:
            self._note_limit(limit_bytes)
        if self.last is None or self.last.kind != beat.kind:
            self._begin(beat)
        self.last = beat
        self.beats += 1
        if self._recent is not None:
            low_bytes = beat.low_bytes
            self._recent.append(low_bytes)
            self._least_bytes = min(self._least_bytes, low_bytes)
            self._most_bytes = max(self._most_bytes, low_bytes)
        self.steps += beat.steps
        completed = self.pyramid.add(beat)
        if completed > self._pause_level:
            block = self.pyramid.levels[self._pause_level][-1]
            self.pauses.observe(beat.time_s, block.low)
            self.peak_pauses.observe(beat.time_s, block.high)
        if completed:
            self._amplitude_bytes = None
        if completed and self._is_new_life():
            self._begin(beat)
            self.has_restarted = True
            return 0
        return completed

    def _note_limit(self, limit_bytes: int) -> None:
        limits = self._limits
        gone = limits[0] if len(limits) == LIMITS_KEPT else None
        limits.append(limit_bytes)
        least = self.limit_bytes
        if least is None or gone == least:
            self.limit_bytes = min(limits)
        elif limit_bytes < least:
            self.limit_bytes = limit_bytes

    def is_late(self, beat: Beat) -> bool:
        """Return whether a beat is not newer than the last; a much older one comes from a clock set back."""
        return self.last is not None and self.last.time_s - CLOCK_BACK_S <= beat.time_s <= self.last.time_s

    def beats_at(self, level: int) -> int:
        """Return the beats in a block of one scale."""
        return BASES["sample" if self.last is None else self.last.kind] << level

    def judge(self, level: int) -> Growth | None:
        """Return how floors grow at one scale, which has just completed a block; None where they do not."""
        blocks = self.pyramid.latest(level, KEPT)
        for count in WINDOWS:
            if len(blocks) < count:
                return None
            growth = self._judge_window(blocks, count, self._records.get(level, 0))
            if growth is not None:
                return growth
        return None

    def judge_resumed(self, level: int, since_s: float) -> Growth | None:
        """Return how floors grow again at one scale since a pause; None where they do not clearly rise."""
        blocks = self.pyramid.latest(level, RESUMED_BLOCKS)
        if len(blocks) < RESUMED_BLOCKS or blocks[0].start_s < since_s or self.last is None:
            return None
        grown = blocks[-1].low - blocks[0].low
        diffs = [after.low - before.low for before, after in pairwise(blocks)]
        if min(diffs) <= 0 or max(diffs) > MOST_IN_ONE * grown or grown < LENIENT_CLARITY * _blur_of(blocks):
            return None
        if blocks[-1].low - self._news_above_bytes < grown / 2:
            return None
        pace = grown / (blocks[-1].mid_s - blocks[0].mid_s)
        growth = Growth(tuple(blocks), pace, grown, self.headroom_bytes)
        return None if self._may_be_phase(growth) else growth

    @property
    def beat_s(self) -> float:
        """Seconds of a beat, on average."""
        return 0.0 if self.last is None else (self.last.time_s - self.since_s) / max(1, self.beats)

    def note_record(self, level: int) -> None:
        """Remember how high floors were at one scale, before the block is forgotten."""
        blocks = self.pyramid.levels[level]
        if len(blocks) == KEPT and blocks[0].start_s >= self._news_since_s:
            self._records[level] = max(self._records.get(level, 0), blocks[0].low)
            self._peak_records[level] = max(self._peak_records.get(level, 0), blocks[0].high)

    def forget_records(self, time_s: float) -> None:
        """Count growth beyond the present floor as new from now on, even where it was higher before."""
        self._records.clear()
        self._peak_records.clear()
        self._news_since_s = time_s
        # Samples blur floors upwards: the highest of the newest counts, not the least.
        blocks = self.pyramid.latest(self._floor_level, 4) or self.pyramid.latest(0, 4)
        self._news_above_bytes = max([block.low for block in blocks], default=0)
        self._peak_news_above_bytes = max([block.high for block in blocks], default=0)

    def judge_peaks(self, level: int, lost_bytes: int, *, is_lenient: bool) -> Growth | None:
        """Return how peaks grow at one scale, which has just completed a block; None where they do not.

        Args:
            lost_bytes: Bytes of the limit that they cannot use.
            is_lenient: Whether less clear growth will do, see `judge_growth`.
        """
        blocks = self.pyramid.latest(level, KEPT)
        found = blocks[-WINDOWS[0] :]
        if len(found) < WINDOWS[0] or self.limit_bytes is None:
            return None
        headroom = self.limit_bytes - lost_bytes - found[-1].high
        if found[-1].high - found[0].high <= PHI_LEAST * max(0, headroom):
            return None
        past = [block.high for block in blocks[: -WINDOWS[0]]]
        record = max([self._peak_records.get(level, 0), self._peak_news_above_bytes, *past])
        window = [turn_over(block) for block in found]
        growth = judge_growth(window, headroom, record, is_lenient=is_lenient)
        return None if growth is None or self._may_be_phase(growth) else growth

    def _judge_window(self, blocks: Sequence[Block], count: int, record: int) -> Growth | None:
        window = blocks[-count:]
        grown = window[-1].low - window[0].low
        if grown <= 0 or window[-1].end_s - window[0].start_s < self._least_s:
            return None
        past = [block.low for block in blocks[:-count] if block.start_s >= self._news_since_s]
        record = max([record, self._news_above_bytes, *past])
        headroom = self.headroom_bytes
        if grown < PHI_LEAST * headroom:
            return None
        growth = judge_growth(window, headroom, record)
        return None if growth is None or self._may_be_phase(growth) else growth

    def _may_be_phase(self, growth: Growth) -> bool:
        """Return whether samples may have met a sawtooth of steps at slowly drifting moments.

        Sampled at nearly its own period, or a fraction of it, a sawtooth looks like slow growth (aliasing).
        So it may be where each sample is near the one before, or near that of a few samples ago. What is
        reserved tells the difference: without more of it steps hold no more than they did. Where it is not
        known, long evidence does.
        """
        if self._recent is None:
            return False
        reserved = [block.reserved for block in growth.blocks]
        # Near the limit no more can be reserved, whatever grows.
        is_telling = self.limit_bytes is None or reserved[-1] < BRIM_SHARE * self.limit_bytes
        if reserved[0] and is_telling:
            if reserved[-1] - reserved[0] >= growth.grown_bytes / 2:
                return False
        elif growth.window_s >= UNPHASED_S or growth.share >= UNPHASED_SHARE:
            return False
        return is_locked(tuple(self._recent), self._most_bytes - self._least_bytes - growth.grown_bytes)

    def fit_line(self, since_s: float, finest: int, *, is_peak: bool = False) -> Line | None:
        """Return a robust line through floors, or peaks, since a moment; None where too little is known.

        Blocks finer than `finest` are blurred where samples are few, and left out.
        """
        found = [block for block in self.pyramid.mosaic(finest) if block.mid_s >= since_s]
        blocks = [turn_over(block) for block in found] if is_peak else found
        sign = -1 if is_peak else 1
        points = [(block.low_s, float(block.low - sign * abs(block.blur))) for block in blocks]
        if len(points) < LEAST_POINTS:
            return None
        return fit_curve(points[:: -(-len(points) // MOST_POINTS)])

    @property
    def headroom_bytes(self) -> float:
        """What is left above the newest floor and the amplitude of steps; with an unknown limit, the
        floor.
        """
        floor = self.floor_bytes or 0
        if self.limit_bytes is None:
            return float(floor)
        peak = floor + self.amplitude_bytes
        stranded = 0
        if self.last is not None and self.last.split_bytes:
            # Free in segments with live blocks, and of no use to steps that reach so high.
            stranded = min(self.last.split_bytes, max(0, self.last.reserved_bytes - peak))
        return float(self.limit_bytes - peak - stranded)

    @property
    def floor_bytes(self) -> int | None:
        blocks = self.pyramid.latest(self._floor_level, 4) or self.pyramid.latest(0, 4)
        return min([block.low for block in blocks]) if blocks else None

    @property
    def amplitude_bytes(self) -> int:
        """Most that steps recently reached above their floor.

        In the block within which the optimizer makes its state the floor rises once and for all: there the
        next block's floor counts.
        """
        if self._amplitude_bytes is None:
            blocks = self.pyramid.latest(self._floor_level, KEPT) or self.pyramid.latest(0, KEPT)
            nexts = [*blocks[1:], *blocks[-1:]]
            above = [at.high - max(at.low, next_.low) for at, next_ in zip(blocks, nexts, strict=True)]
            self._amplitude_bytes = max(above, default=0)
        return self._amplitude_bytes

    @property
    def steps_per_s(self) -> float | None:
        """Recent training steps a second; None where steps are not known."""
        blocks = self.pyramid.latest(AMPLITUDE_LEVEL, WINDOW)
        if len(blocks) < 2 or blocks[0].last_step is None or blocks[-1].last_step is None:
            return None
        span_s = blocks[-1].end_s - blocks[0].end_s
        steps = blocks[-1].last_step - blocks[0].last_step
        return steps / span_s if steps > 0 and span_s > 0 else None

    @property
    def newest_pace(self) -> float | None:
        """Bytes a second by which floors of the newest steps rose without a pause; None where they did not.

        Samples are no floors: what they show in so short a time is the height of a step.
        """
        blocks = self._list_newest()
        if len(blocks) < NEWEST_BLOCKS or any(b.low <= a.low for a, b in pairwise(blocks)):
            return None
        return (blocks[-1].low - blocks[0].low) / (blocks[-1].mid_s - blocks[0].mid_s)

    @property
    def newest_span_s(self) -> float:
        """Seconds for which `newest_pace` was kept."""
        blocks = self._list_newest()
        return blocks[-1].end_s - blocks[0].start_s if blocks else 0.0

    def _list_newest(self) -> Sequence[Block]:
        is_exact = self.last is not None and self.last.kind == "step"
        return self.pyramid.latest(0, NEWEST_BLOCKS) if is_exact else ()

    def _begin(self, beat: Beat | None) -> None:
        kind = "sample" if beat is None else beat.kind
        self.pyramid = BlockPyramid(BASES[kind])
        self._amplitude_bytes = None
        self._pause_level = PAUSE_LEVELS[kind]
        self.pauses = Pauses()
        self.peak_pauses = Pauses()
        self._least_s = LEAST_S[kind]
        self._floor_level = 0 if kind == "step" else AMPLITUDE_LEVEL
        self.since_s = 0.0 if beat is None else beat.time_s
        self.beats = self.steps = 0
        self._records: dict[int, int] = {}
        self._peak_records: dict[int, int] = {}
        self._news_since_s = self.since_s
        self._news_above_bytes = 0
        self._peak_news_above_bytes = 0
        self._recent: deque[int] | None = deque(maxlen=RECENT) if kind == "sample" else None
        self._least_bytes = sys.maxsize
        self._most_bytes = 0

    def _is_new_life(self) -> bool:
        blocks = self.pyramid.latest(0, WINDOW)
        before = min([block.low for block in blocks[:-1]], default=0)
        return blocks[-1].high < FALLEN_SHARE * before


# Samples that are looked at.
RECENT = 64
MOST_LAG = 12
# Share of their range by which samples of one lag differ at most, on average, where they are locked.
LOCKED_SHARE = 0.12


def is_locked(samples: Sequence[int], height: int = 0) -> bool:
    """Return whether each sample is near the one that came a fixed, small number of samples before.

    Of independent samples of a sawtooth two differ by a third of its height on average. `height` is what is
    known of that from earlier samples: these may have met a part of it alone.
    """
    height = max(height, max(samples) - min(samples))
    return any(
        sum([abs(after - before) for before, after in zip(samples, samples[lag:], strict=False)])
        <= LOCKED_SHARE * height * (len(samples) - lag)
        for lag in range(1, MOST_LAG + 1)
    )


def read_episode(finding: Finding) -> Episode | None:
    """Return the growth of floors that a finding rests on; None where it rests on none."""
    rate = RATE.read_number(finding)
    onset_bytes = FLOOR_AT_ONSET.read_count(finding)
    if not rate or onset_bytes is None:
        return None
    return Episode(
        onset_s=ONSET.read_number(finding) or 0.0,
        onset_bytes=onset_bytes,
        onset_step=int(ONSET_STEP.read_number(finding) or 0) or None,
        window_s=WINDOW_KEY.read_number(finding) or 0.0,
        bytes_per_s=rate,
    )


def resume_growth(track: OpenFinding, growth: GrowthTrack) -> None:
    """Continue where a predecessor was, at the first sample that it did not judge: its finding still
    grows.
    """
    if track.settled_until_s is None:
        return
    track.settled_until_s = None
    if track.finding is not None and growth.episode is None:
        growth.episode = read_episode(track.finding)
