"""The trend of the used memory of a device, from the driver's number alone: no forecast of an error.

A caching allocator fills a card in healthy jobs, so that used memory says when the card will be full and not
whether anything fails then. `docs/verdicts.md` explains the thresholds; `benchmarks/verdict_runs/driver/` has
the runs that they were chosen on, and others that they are scored on.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median, stdev
from typing import NamedTuple

from ..engine.model import DeviceTrend, TrendWord
from .findings.lifecycle import is_visible
from .findings.subjects import Subject
from .floors.blocks import KEPT, Beat, Block, BlockPyramid
from .floors.rate import fit_curve
from .pressure import FULL_SHARE, RELIEVED_SHARE, SCARCE_FREE_BYTES

# Samples are joined to slots of this many seconds, and the least of a slot counts: what comes and goes within
# it is no trend. A series with longer ticks has a slot for each.
SLOT_S = 5.0
# Blocks that are looked at, of each scale. The finest scale on which growth is even is the one that counts.
WINDOWS = (12, 16)
# Least seconds of evidence: most programs have loaded by then.
LEAST_S = 120.0
# Growth has lasted at least so many times as long as the card would last at its pace; where little is left,
# as long suffices.
EVIDENCE = 2.0
SOON_S = 180.0
SOON_EVIDENCE = 1.0
# Share of blocks that rose, of the growth that may fall on one of them, and that may fall back in between.
RISES = 0.8
MOST_IN_ONE = 0.25
MOST_FALL = 0.1
# Pace of the newest part of the window, as a share of that of the first part, below which growth levels off.
LEAST_PACE = 0.65
# Growth has paused, and then ended, where so many blocks brought less than this share of what they should.
PAUSED_BLOCKS = 1.5
PAUSED_SHARE = 0.25
ENDED_BLOCKS = 1.5
ENDED_SHARE = 0.15
# A card that was used by less than this share was idle: for a while after that, growth is a program that
# loads, unless it has become clearly slower since.
IDLE_SHARE = 0.08
LOADING_S = 240.0
SLOWER = 0.4
# Share of the card that must have been given back for a rise to count as one that ends, how much alike its
# pace must be, and by how much it must be exceeded.
GIVEN_BACK_SHARE = 0.05
ALIKE = 6.0
EXCEEDED = 1.02
RISES_KEPT = 8
# Changes of less than this share of the card are none.
NEAR_SHARE = 0.01
# Share of the card by which used memory is above what it ever was until a minute ago where it is `rising`
# though not evenly, how many blocks before that minute count, and how many slots must agree. What rose evenly
# by as much within the minute is `rising` whatever was held before: the program that held more may be gone.
RISING_SHARE = 0.02
RISING_S = 60.0
RISING_BLOCKS = 32
RISING_SLOTS = 3
# Share of the card from which on it is full although it still fills: there is nothing left to forecast.
BRIM_SHARE = 0.985
# Seconds of watching before there is a word.
FIRST_WORD_S = 20.0
# Longest time without a sample, in seconds and in ticks: what happened since is unknown.
GAP_S = 60.0
GAP_TICKS = 6.0
# Seconds by which a clock must go back to have been set.
CLOCK_BACK_S = 60.0
# Standard errors to either side of the rate, and its least error as a share.
DEVIATIONS = 1.2816
LEAST_ERROR = 0.05
# Points that a rate rests on at most.
MOST_POINTS = 16
# Change of a value, as a share, and of the moment when the card is full, in seconds, that a person notices.
NEWS_SHARE = 0.1
NEWS_S = 5.0


class _Growth(NamedTuple):
    """Even growth over a window of blocks."""

    blocks: Sequence[Block]
    level: int
    grown_bytes: int
    # Of the newest half of the window, where that is faster than the whole.
    bytes_per_s: float
    # What is left above the newest low and the usual peaks above it, and the highest ones.
    room_bytes: float
    least_room_bytes: float

    @property
    def onset(self) -> Block:
        """The block from which on it grows: a window of long blocks may begin a little before."""
        least = PAUSED_SHARE * self.grown_bytes / len(self.blocks)
        return next(at for at, after in pairwise(self.blocks) if after.low - at.low >= least)

    @property
    def window_s(self) -> float:
        return self.blocks[-1].end_s - self.blocks[0].start_s

    @property
    def block_s(self) -> float:
        return self.window_s / len(self.blocks)


class _Rise(NamedTuple):
    """Memory that was taken at some pace and given back."""

    top_bytes: int
    bytes_per_s: float


class DeviceTrendTrack:
    """Used memory of one device over the samples, and its trend."""

    def __init__(self) -> None:
        self.trend: DeviceTrend | None = None
        self._newest_s: float | None = None
        self._begin(0.0)

    def _begin(self, time_s: float) -> None:
        """Forget everything: what happened before is unknown."""
        self.trend = None
        self._since_s = time_s
        self._total_bytes = 0
        self._slot_s: float | None = None
        self._low = self._high = 0
        self._pyramid = BlockPyramid(1)
        # Even growth of the newest minute, even growth, and growth that may fill the card, while they last.
        self._climb: _Growth | None = None
        self._growth: _Growth | None = None
        self._filling: _Growth | None = None
        self._is_full = False
        # When growth began, while it lasts, and when the word became what it is.
        self._onset = (time_s, 0)
        self._word_s = time_s
        # When the card was last idle, and what was used then.
        self._idle: tuple[float, int] | None = None
        # Highest low since the last fall, and when it was reached; None while it falls.
        self._top: tuple[float, int] | None = None
        self._bottom_bytes = 0
        self._rises: list[_Rise] = []

    def observe(self, subject: Subject) -> DeviceTrend | None:
        """Process one sample and return the trend by now; None before there is one."""
        device = subject.device
        if device is None:
            return self.trend
        # What such a device has left is what the host has left: `host_stall` warns of that, and much earlier.
        if device.kind == "unified":
            return None
        memory = device.memory
        used = memory.used_bytes
        total = memory.total_bytes
        if used is None or not total:
            return self.trend
        sample = subject.sample
        time_s = sample.time_s
        newest_s = self._newest_s
        if newest_s is not None and newest_s - CLOCK_BACK_S <= time_s <= newest_s:
            return self.trend
        self._newest_s = time_s
        gap_s = max(GAP_S, GAP_TICKS * sample.interval_s)
        if newest_s is None or not newest_s < time_s <= newest_s + gap_s or total != self._total_bytes:
            self._begin(time_s)
            self._total_bytes = total
        least = memory.used_min_bytes
        most = memory.used_max_bytes
        low = used if least is None or least > used else least
        high = used if most is None or most < used else most
        if self._slot_s is None:
            self._slot_s = time_s
            self._low = low
            self._high = high
        else:
            self._low = low if low < self._low else self._low
            self._high = high if high > self._high else self._high
        if time_s + sample.interval_s - self._slot_s >= SLOT_S:
            self._slot_s = None
            self._close_slot(time_s)
        return self.trend

    def _close_slot(self, time_s: float) -> None:
        low = self._low
        completed = self._pyramid.add(Beat(time_s, low, self._high, 0, None, "device"))
        if low < IDLE_SHARE * self._total_bytes:
            self._idle = (time_s, low)
        self._follow_rise(time_s, low)
        if self._climb is not None and self._has_ended(time_s, self._climb):
            self._climb = None
        if self._growth is not None and self._has_ended(time_s, self._growth):
            self._growth = self._filling
        if self._filling is not None and self._has_ended(time_s, self._filling):
            self._filling = None
            self._growth = None
        self._judge(time_s, completed)
        self._judge_climb()
        self._note_full(low)
        self.trend = self._describe(time_s, low)

    # What was taken and given back again: a sawtooth, an evaluation, a job that came and went.

    def _follow_rise(self, time_s: float, low: int) -> None:
        """Follow lows up and down, and remember at which pace was taken what is now given back."""
        near = NEAR_SHARE * self._total_bytes
        if self._top is None:
            if low <= self._bottom_bytes + near:
                self._bottom_bytes = min(low, self._bottom_bytes)
            else:
                self._top = (time_s, low)
            return
        if low > self._top[1] + near:
            self._top = (time_s, low)
        elif low < self._top[1] - GIVEN_BACK_SHARE * self._total_bytes:
            self._remember_rise(low, *self._top)
            self._top = None
            self._bottom_bytes = low

    def _remember_rise(self, low: int, top_s: float, top: int) -> None:
        # A card that was full and is empty has lost its program to an error, and not turned over.
        if top >= BRIM_SHARE * self._total_bytes:
            return
        below = low + NEAR_SHARE * self._total_bytes
        blocks = self._pyramid.mosaic()
        start_s = next((it.end_s for it in reversed(blocks) if it.end_s <= top_s and it.low <= below), None)
        if start_s is None:
            return
        pace = (top - low) / max(top_s - start_s, SLOT_S)
        if any(rise.top_bytes >= top and _are_alike(rise.bytes_per_s, pace, 1.5) for rise in self._rises):
            return
        kept = [rise for rise in self._rises if not _are_alike(rise.bytes_per_s, pace, 1.5)]
        self._rises = sorted([*kept, _Rise(top, pace)])[-RISES_KEPT:]

    # Whether used memory grows evenly, and whether that is enough to say when the card is full.

    def _judge(self, time_s: float, completed: int) -> None:
        for level in range(completed):
            blocks = self._pyramid.latest(level, KEPT)
            for count in WINDOWS:
                if len(blocks) < count:
                    break
                growth = self._find_growth(blocks[-count:], level)
                if growth is None or not self._has_grown(time_s, growth, PAUSED_BLOCKS, PAUSED_SHARE):
                    continue
                if self._growth is None or growth.onset.low_s < self._onset[0]:
                    self._onset = (growth.onset.low_s, growth.onset.low)
                if self._growth is None or level >= self._growth.level:
                    self._growth = growth
                if self._filling is None or level >= self._filling.level:
                    is_filling = self._filling is not None or self._may_fill(time_s, growth, blocks[:-count])
                    self._filling = growth if is_filling else None

    def _judge_climb(self) -> None:
        blocks = self._pyramid.latest(0, WINDOWS[0])
        if self._growth is not None or len(blocks) < WINDOWS[0]:
            return
        climb = self._find_growth(blocks, 0, RISING_S)
        if climb is None or climb.grown_bytes <= RISING_SHARE * self._total_bytes or self._is_refill(climb):
            return
        if self._climb is None:
            self._onset = (climb.onset.low_s, climb.onset.low)
        self._climb = climb

    def _find_growth(self, blocks: Sequence[Block], level: int, least_s: float = LEAST_S) -> _Growth | None:
        lows = [block.low for block in blocks]
        grown = lows[-1] - lows[0]
        if blocks[-1].end_s - blocks[0].start_s < least_s or grown <= NEAR_SHARE * self._total_bytes / 4:
            return None
        diffs = [after - before for before, after in pairwise(lows)]
        if max(diffs) > MOST_IN_ONE * grown or sum([diff > 0 for diff in diffs]) < RISES * len(diffs):
            return None
        if -sum([diff for diff in diffs if diff < 0]) > MOST_FALL * grown:
            return None
        part = len(diffs) * 3 // 7
        if sum(diffs[-part:]) < LEAST_PACE * sum(diffs[:part]):
            return None
        middle = -1 - len(diffs) // 2
        rate = grown / (blocks[-1].mid_s - blocks[0].mid_s)
        newest = (lows[-1] - lows[middle]) / (blocks[-1].mid_s - blocks[middle].mid_s)
        peaks = [max(0, at.high - max(at.low, after.low)) for at, after in pairwise(blocks)]
        room = float(self._total_bytes - lows[-1])
        rooms = (max(0.0, room - median(peaks)), max(0.0, room - max(peaks)))
        return _Growth(blocks, level, grown, max(rate, newest), *rooms)

    def _may_fill(self, time_s: float, growth: _Growth, before: Sequence[Block]) -> bool:
        """Return whether growth has taken so much for so long that it may well fill the card."""
        left_s = growth.room_bytes / growth.bytes_per_s
        if growth.window_s < (SOON_EVIDENCE if left_s < SOON_S else EVIDENCE) * left_s:
            return False
        low = growth.blocks[-1].low
        if low - max([block.low for block in before], default=0) < growth.grown_bytes / 2:
            return False
        if self._idle is not None and time_s - self._idle[0] < LOADING_S:
            idle_s, idle = self._idle
            if growth.bytes_per_s > SLOWER * (low - idle) / max(time_s - idle_s, SLOT_S):
                return False
        return not self._is_refill(growth)

    def _is_refill(self, growth: _Growth) -> bool:
        """Return whether it takes again, at such a pace, no more than was given back before."""
        low = growth.blocks[-1].low
        return any(
            low <= EXCEEDED * rise.top_bytes and _are_alike(rise.bytes_per_s, growth.bytes_per_s, ALIKE)
            for rise in self._rises
        )

    def _has_grown(self, time_s: float, growth: _Growth, blocks: float, share: float) -> bool:
        """Return whether the newest so many blocks brought a share of what they should have."""
        span_s = max(blocks * growth.block_s, 2 * SLOT_S)
        found = self._pyramid.mosaic()
        before = next((it for it in reversed(found) if it.end_s <= time_s - span_s), None)
        if before is None:
            return True
        newest = max(block.low for block in found[-2:])
        return newest - before.low >= share * growth.grown_bytes / growth.window_s * span_s

    def _has_ended(self, time_s: float, growth: _Growth) -> bool:
        return not self._has_grown(time_s, growth, ENDED_BLOCKS, ENDED_SHARE)

    # The words.

    def _note_full(self, low: int) -> None:
        free = self._total_bytes - low
        if self._is_full:
            self._is_full = low >= RELIEVED_SHARE * self._total_bytes
        else:
            slots = self._pyramid.latest(0, 2)
            least = min(block.low for block in slots)
            is_scarce = free < SCARCE_FREE_BYTES
            self._is_full = len(slots) > 1 and (least >= FULL_SHARE * self._total_bytes or is_scarce)

    def _find_word(self, time_s: float, low: int) -> TrendWord:
        if self._filling is not None and low < BRIM_SHARE * self._total_bytes:
            return "filling"
        if self._is_full:
            return "full"
        if self._growth is not None or self._climb is not None:
            return "rising"
        found = self._pyramid.mosaic()
        before = [block.low for block in found if block.end_s <= time_s - RISING_S]
        newest = min(block.low for block in found[-RISING_SLOTS:])
        is_higher = newest - max(before[-RISING_BLOCKS:], default=newest) > RISING_SHARE * self._total_bytes
        return "rising" if is_higher else "steady"

    def _describe(self, time_s: float, low: int) -> DeviceTrend | None:
        if time_s - self._since_s < FIRST_WORD_S:
            return None
        word = self._find_word(time_s, low)
        if self.trend is None or self.trend.word != word:
            self._word_s = time_s
        growth = self._climb if self._growth is None else self._growth
        if growth is None or word not in ("filling", "rising"):
            return DeviceTrend(word, time_s, self._word_s)
        onset_s, onset = self._onset
        rate, error = self._measure_rate(time_s, growth)
        slow = max(rate - DEVIATIONS * error, 0.0)
        fast = rate + DEVIATIONS * error
        is_timed = word == "filling" and slow > 0.0
        since = rate * (time_s - growth.blocks[-1].low_s)
        room = growth.room_bytes - since
        least_room = growth.least_room_bytes - since
        brim = (1.0 - BRIM_SHARE) * self._total_bytes
        return DeviceTrend(
            word,
            time_s,
            onset_s,
            grown_bytes=low - onset,
            rate_bytes_per_s=rate,
            rate_low_bytes_per_s=slow,
            rate_high_bytes_per_s=fast,
            full_in_s=max((room - brim / 2) / rate, 0.0) if is_timed else None,
            full_in_low_s=max((least_room - brim) / fast, 0.0) if is_timed else None,
            full_in_high_s=max(room / slow, 0.0) if is_timed else None,
        )

    def _measure_rate(self, time_s: float, growth: _Growth) -> tuple[float, float]:
        """Return the rate of growth now and its standard error, in bytes a second."""
        finest = max(0, growth.level - 1)
        blocks = [block for block in self._pyramid.mosaic(finest) if block.end_s >= self._onset[0]]
        points = [(block.low_s, float(block.low)) for block in blocks[-2 * MOST_POINTS :]]
        if len(points) < 4:
            return growth.bytes_per_s, growth.bytes_per_s
        line = fit_curve(points[:: -(-len(points) // MOST_POINTS)])
        rate = max(line.slope_at(time_s), 0.0)
        return rate, math.hypot(line.whole_error, LEAST_ERROR * rate, _scatter_rate(growth))


def _scatter_rate(growth: _Growth) -> float:
    """Return the standard error of a rate whose pieces come at random: of those seen and of those ahead."""
    steps = [after.low - before.low for before, after in pairwise(growth.blocks)]
    ahead = max(1.0, growth.room_bytes / max(growth.bytes_per_s * growth.block_s, 1.0))
    return stdev(steps) / growth.block_s * math.sqrt(1 / len(steps) + 1 / ahead)


def _are_alike(first: float, second: float, factor: float) -> bool:
    return second / factor < first < second * factor


def is_other_trend(shown: DeviceTrend | None, newest: DeviceTrend | None) -> bool:
    """Return whether a person would notice the difference between two trends."""
    if shown is newest:
        return False
    if shown is None or newest is None or shown.word != newest.word:
        return True
    if is_visible(shown.rate_bytes_per_s, newest.rate_bytes_per_s, NEWS_SHARE):
        return True
    if shown.full_in_s is None or newest.full_in_s is None:
        return shown.full_in_s is not newest.full_in_s
    moved_s = abs(newest.time_s + newest.full_in_s - shown.time_s - shown.full_in_s)
    return moved_s > max(NEWS_S, NEWS_SHARE * newest.full_in_s)
