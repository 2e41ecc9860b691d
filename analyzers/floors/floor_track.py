"""Beats of one subject in blocks of every scale: its floors, their pauses, and what growth they show."""

import sys
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from .blocks import KEPT, Beat, Block, BlockPyramid, turn_over
from .growth import (
    LENIENT_CLARITY,
    MOST_IN_ONE,
    PHI_LEAST,
    SCATTERED_BLOCKS,
    TREND_BLOCKS,
    WINDOWS,
    Growth,
    blur_of,
    is_new,
    judge_growth,
    judge_means,
    judge_scattered,
    may_have_grown,
    measure_excess,
)
from .rate import Line, fit_clear_slope, fit_curve

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
# Blocks, standard errors, and the share of the room by which floors must have changed for a pace of late.
PACE_BLOCKS = 5
PACE_ERRORS = 3.0
PACE_SHARE = 0.01
# Steps that are counted for their pace at least, where there are so many: one of them is always cut.
COUNTED_STEPS = 32
# Share of the limit from which cache is given back because the device has no more, and how many such moments
# are remembered.
RETURN_SHARE = 0.8
RETURNS_KEPT = 8
# Seconds by which a clock must go back to have been set: a beat so late belongs to a new life.
CLOCK_BACK_S = 60.0
# Scale at which pauses are measured: samples that long ago are blurred less than what they pause by.
PAUSE_LEVELS = {"step": 0, "sample": 4, "device": 1, "host": 1}
# Scale at which the amplitude of steps is read.
AMPLITUDE_LEVEL = 2
# Scale at which the height of steps is read from samples: long ago they met another level, as while growing.
HEIGHT_LEVEL = 4
# Evidence, in seconds or as a share of the headroom, that no drift of samples over a step explains.
UNPHASED_S = 1200.0
UNPHASED_SHARE = 1.0
# How far drift raises the least of some samples of each step, as a share of its height, times their number:
# one for steps that rise and fall evenly; more to be sure, as a part of the height may not have been met.
DRIFT_SHARE = 2.5
# Share of the limit from which on reserved bytes cannot grow along with live ones.
BRIM_SHARE = 0.9
# Blocks that must rise for growth to resume after a pause.
RESUMED_BLOCKS = 5
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
        # Least and most of the newest samples, up to 64, and the most by which 64 of them differed. Of the
        # first 64, which may have seen the model being loaded, it is 0.
        self._least_bytes = sys.maxsize
        self._most_bytes = 0
        self._height_bytes: int | None = None
        # Whether the newest beat began a new life.
        self.has_restarted = False
        self._limits: deque[int] = deque(maxlen=LIMITS_KEPT)
        # Reserved bytes when the cache had been given back at the limit, and the floor then.
        self._returns: deque[tuple[int, int]] = deque(maxlen=RETURNS_KEPT)
        self._reserved_bytes = 0
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
            self._note_return(beat)
            low_bytes = beat.low_bytes
            self._recent.append(low_bytes)
            self._least_bytes = min(self._least_bytes, low_bytes)
            self._most_bytes = max(self._most_bytes, low_bytes)
        self.steps += beat.steps
        completed = self.pyramid.add(beat)
        if completed > HEIGHT_LEVEL and self._recent is not None:
            self._note_height()
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

    def _note_height(self) -> None:
        """Remember how high steps are by what the newest samples met; the first ones saw the model begin."""
        if self._height_bytes is None:
            self._height_bytes = 0
        else:
            self._height_bytes = max(self._height_bytes, self._most_bytes - self._least_bytes)
        self._least_bytes = sys.maxsize
        self._most_bytes = 0

    def _note_return(self, beat: Beat) -> None:
        """Remember what an allocator kept of its cache when it gave it back at the limit."""
        before = self._reserved_bytes
        self._reserved_bytes = beat.reserved_bytes
        if self.limit_bytes is None or before < RETURN_SHARE * self.limit_bytes:
            return
        if 0 < beat.reserved_bytes < before:
            self._returns.append((beat.reserved_bytes, self.floor_bytes or 0))

    def _note_limit(self, limit_bytes: int) -> None:
        limits = self._limits
        gone = limits[0] if len(limits) == LIMITS_KEPT else None
        limits.append(limit_bytes)
        least = self.limit_bytes
        if least is None or limit_bytes <= least:
            self.limit_bytes = limit_bytes
        elif gone == least:
            self.limit_bytes = min(limits)

    def is_late(self, beat: Beat) -> bool:
        """Return whether a beat is not newer than the last; a much older one comes from a clock set back."""
        return self.last is not None and self.last.time_s - CLOCK_BACK_S <= beat.time_s <= self.last.time_s

    def beats_at(self, level: int) -> int:
        """Return the beats in a block of one scale."""
        return BASES["sample" if self.last is None else self.last.kind] << level

    def judge(self, level: int) -> Growth | None:
        """Return how floors grow at one scale, which has just completed a block; None where they do not."""
        kept = self.pyramid.levels[level]
        for count in WINDOWS:
            if len(kept) < count:
                return None
            if kept[-1].low <= kept[-count].low:
                continue
            growth = self._judge_window(tuple(kept), count, self._records.get(level, 0))
            if growth is not None:
                return growth
        return None

    def judge_resumed(self, level: int, since_s: float) -> Growth | None:
        """Return how floors grow again at one scale since a pause; None where they do not clearly rise.

        They must rise beyond all that they reached within the pause: what is turned over comes and goes.
        """
        blocks = self.pyramid.latest(level, RESUMED_BLOCKS)
        if len(blocks) < RESUMED_BLOCKS or blocks[0].start_s < since_s or self.last is None:
            return None
        grown = blocks[-1].low - blocks[0].low
        diffs = [after.low - before.low for before, after in pairwise(blocks)]
        if min(diffs) <= 0 or max(diffs) > MOST_IN_ONE * grown or grown < LENIENT_CLARITY * blur_of(blocks):
            return None
        kept = self.pyramid.levels[level]
        past = [it.low for it in kept if since_s <= it.start_s and it.end_s <= blocks[0].start_s]
        record = max([self._records.get(level, 0), self._news_above_bytes, *past])
        if blocks[-1].low - record < grown / 2:
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
        kept = self.pyramid.levels[level]
        if len(kept) < WINDOWS[0] or self.limit_bytes is None or kept[-1].high <= kept[-WINDOWS[0]].high:
            return None
        blocks = tuple(kept)
        found = blocks[-WINDOWS[0] :]
        headroom = self.limit_bytes - lost_bytes - found[-1].high
        if found[-1].high - found[0].high <= PHI_LEAST * max(0, headroom):
            return None
        past = [block.high for block in blocks[: -WINDOWS[0]]]
        record = max([self._peak_records.get(level, 0), self._peak_news_above_bytes, *past])
        window = [turn_over(block) for block in found]
        growth = judge_growth(window, headroom, record, is_lenient=is_lenient)
        return None if growth is None or self._may_be_phase(growth) else growth

    def judge_scattered_peaks(self, level: int, lost_bytes: int) -> Growth | None:
        """Return how peaks of samples grow at one scale, which has just completed a block, by their ranks.

        `lost_bytes` of the limit cannot be used. Peaks of steps are exact, so that ranks tell nothing more.
        """
        blocks = self.pyramid.latest(level, SCATTERED_BLOCKS)
        is_sampled = self.last is not None and self.last.kind == "sample"
        if not is_sampled or len(blocks) < SCATTERED_BLOCKS or self.limit_bytes is None:
            return None
        if max(blocks[-1].high, blocks[-2].high) <= blocks[0].high:
            return None
        past = [block.high for block in self.pyramid.levels[level]]
        record = max([self._peak_records.get(level, 0), self._peak_news_above_bytes, *past])
        growth = judge_scattered(blocks, self.limit_bytes - lost_bytes, record)
        return None if growth is None or self._may_be_phase(growth) else growth

    def judge_means(self, level: int) -> Growth | None:
        """Return how the mean of samples grows at one scale, which has just completed a block.

        Only where what is reserved is near the limit: before that, floors or peaks have time to show it.
        """
        kept = self.pyramid.latest(level, max(TREND_BLOCKS))
        if self._recent is None or self.limit_bytes is None or not kept or not kept[-1].reserved:
            return None
        if not may_have_grown(kept, self.limit_bytes):
            return None
        for count in TREND_BLOCKS:
            blocks = kept[-count:]
            if len(blocks) < count or blocks[-1].end_s - blocks[0].start_s < self._least_s:
                continue
            growth = judge_means(blocks, self.limit_bytes)
            if growth is None or self._may_be_phase(growth):
                continue
            past = [
                it.mean
                for it in (*self.pyramid.mosaic(level + 1), *kept[:-count])
                if self._news_since_s <= it.start_s and it.end_s <= blocks[0].start_s
            ]
            if is_new(growth, max(past, default=0.0)):
                return growth
        return None

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
        height = self._height_bytes or max(self._recent) - min(self._recent)
        lag = find_lag(tuple(self._recent), height)
        if lag is None:
            return False
        # So many samples of each step are evenly apart: drift raises the least of them up to about that share
        # of the height of a step, before the next one is the least.
        return lag == 1 or growth.grown_bytes <= DRIFT_SHARE * height / lag

    def fit_line(self, since_s: float, finest: int, *, is_peak: bool = False) -> Line | None:
        """Return a robust line through floors, or peaks, since a moment; None where too little is known.

        Blocks finer than `finest` are blurred where samples are few, and left out.
        """
        scales = self._list_scales(since_s, finest, is_peak=is_peak)
        # The least of more samples is nearer to the floor; exact floors count as soon as they are known.
        while self._recent is not None and sum([len(blocks) for blocks in scales]) > MOST_POINTS:
            finest += 1
            scales = self._list_scales(since_s, finest, is_peak=is_peak)
        sign = -1 if is_peak else 1
        points: list[tuple[float, float]] = []
        for blocks in scales:
            excess = sign * measure_excess(blocks)
            points += [(block.low_s, block.low - excess) for block in blocks]
        if len(points) < LEAST_POINTS:
            return None
        return fit_curve(points[:: -(-len(points) // MOST_POINTS)])

    def _list_scales(self, since_s: float, finest: int, *, is_peak: bool) -> list[list[Block]]:
        """Return blocks since a moment, those of one scale together, oldest first; peaks in place of floors
        with `is_peak`.
        """
        since = [
            [turn_over(block) if is_peak else block for block in blocks if block.mid_s >= since_s]
            for blocks in self.pyramid.mosaic_by_scale(finest)
        ]
        return [blocks for blocks in since if blocks]

    @property
    def headroom_bytes(self) -> float:
        """What is left above the newest floor and the amplitude of steps; with an unknown limit, the
        floor.
        """
        floor = self.floor_bytes or 0
        if self.limit_bytes is None:
            return float(floor)
        return float(self.limit_bytes - floor - self.amplitude_bytes - self.stranded_bytes)

    @property
    def stranded_bytes(self) -> int:
        """What steps that reach as high as of late cannot use of what is held.

        Free blocks in segments with live ones where they are counted. Else what was kept when the cache was
        given back at the limit, and what floors have grown since, as that is pinned too.
        """
        floor = self.floor_bytes or 0
        peak = floor + self.amplitude_bytes
        if self.last is not None and self.last.split_bytes:
            return min(self.last.split_bytes, max(0, self.last.reserved_bytes - peak))
        if not self._returns:
            return 0
        kept = min([reserved + max(0, floor - before) for reserved, before in self._returns])
        return max(0, kept - peak)

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
        """Recent training steps a second; None where steps are not known.

        Where recent steps are few, older ones are counted too: the first and the last are cut.
        """
        blocks = self.pyramid.latest(AMPLITUDE_LEVEL, WINDOW)
        if len(blocks) < 2 or blocks[0].last_step is None or blocks[-1].last_step is None:
            return None
        first, last = blocks[0], blocks[-1]
        newest = blocks[-1].last_step
        if 0 < newest - blocks[0].last_step < COUNTED_STEPS:
            first = next(
                it
                for it in self.pyramid.mosaic(AMPLITUDE_LEVEL)
                if it.last_step is not None and 0 < newest - it.last_step <= COUNTED_STEPS
            )
        span_s = last.end_s - first.end_s
        steps = newest - (first.last_step or 0)
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

    def find_pace(self) -> float:
        """Return the bytes a second by which floors have risen of late; 0 where that is not clear.

        It takes a visible part of the room; and of samples, that as much more is reserved: without that steps
        may have been met at other moments.
        """
        blocks = self.pyramid.latest(AMPLITUDE_LEVEL, WINDOW)
        if len(blocks) < PACE_BLOCKS or blocks[-1].end_s - blocks[0].start_s < self._least_s:
            return 0.0
        floors = [(block.low_s, float(block.low)) for block in blocks]
        pace = fit_clear_slope(floors, blur_of(blocks), PACE_ERRORS) or 0.0
        grown = pace * (blocks[-1].end_s - blocks[0].start_s)
        if pace <= 0 or grown < PACE_SHARE * max(0.0, self.headroom_bytes):
            return 0.0
        if self._recent is None:
            return pace
        first, last = blocks[0].reserved, blocks[-1].reserved
        is_at_brim = self.limit_bytes is not None and last >= BRIM_SHARE * self.limit_bytes
        if first and not is_at_brim:
            return pace if last - first >= grown / 2 else 0.0
        growth = Growth(tuple(blocks), pace, round(grown), self.headroom_bytes)
        return 0.0 if self._may_be_phase(growth) else pace

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
        self._height_bytes = None
        self._returns.clear()
        self._reserved_bytes = 0

    def _is_new_life(self) -> bool:
        finest = self.pyramid.levels[0]
        if len(finest) < 2 or finest[-1].high >= FALLEN_SHARE * finest[-2].low:
            return False
        blocks = self.pyramid.latest(0, WINDOW)
        return blocks[-1].high < FALLEN_SHARE * min([block.low for block in blocks[:-1]])


# Samples that are looked at.
RECENT = 64
MOST_LAG = 12
# Share of their range by which samples of one lag differ at most, on average, where they are locked.
LOCKED_SHARE = 0.12


def find_lag(samples: Sequence[int], height: int = 0) -> int | None:
    """Return after how many samples each is near the one before it, the fewest; None where it is not.

    Of independent samples of a sawtooth two differ by a third of its height on average. `height` is what is
    known of that from earlier samples: these may have met a part of it alone.
    """
    height = max(height, max(samples) - min(samples))
    for lag in range(1, MOST_LAG + 1):
        apart = sum([abs(after - before) for before, after in zip(samples, samples[lag:], strict=False)])
        if apart <= LOCKED_SHARE * height * (len(samples) - lag):
            return lag
    return None
