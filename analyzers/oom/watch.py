"""One subject under watch: its growth, what its steps need, and whether the device refused it memory."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from ...engine.model import AllocatorReading
from ..findings.subjects import Subject
from ..floors.blocks import Beat, read_beat
from ..floors.episode import GrowthTrack
from ..floors.rate import Line, fit_line
from .forecast import Amplitude, Forecast, Situation, make_forecast

# What an allocator can really use of its limit: less than all where it cannot fill what it holds.

# Moments at which reserved bytes grew that are kept; at twice as many, every other one is dropped.

KEPT_MOMENTS = 32
# Share of what was reserved below which it was given back, and not merely turned over.
RETURNED_SHARE = 0.995
# Share of the limit by which it is always in doubt: the last segment, and what other programs hold.
LEAST_DOUBT = 0.008
# Share of the limit that the last request before an error does not find in one piece, where steps differ.
LAST_LOST = 0.005
# The same where reserved bytes have not grown since the onset.
UNSEEN_DOUBT = 0.02
FALLS_KEPT = 9
# Readings within which the cache is given back so often when every step is new to it, and the share of the
# limit that such steps cannot use in addition to what they hold.
OFTEN_WITHIN = 150
OFTEN_LOST = 0.06
# Standard error of how high growing peaks can go, as a share of the limit.
PEAK_DOUBT = 0.04
# Moments on which a trend of what is lost rests, standard errors by which it must be clear, and its most.
LEAST_POINTS = 6
MOST_POINTS = 24
CLEAR = 3.0
MOST_SLOPE = 1.5
# Standard error, as a share, of the further loss until the limit.
SLOPE_DOUBT = 0.8
# Newest moments whose median counts: what grows in stairs is now above, now below its line.
SMOOTHED = 5
# Standard errors, as shares of what is lost by alike steps, of free blocks that are counted, and of what is
# held above the peak where it has to be guessed.
LOST_DOUBT = 0.06
SPLIT_DOUBT = 0.3
GUESSED_DOUBT = 0.45
# The same of what is held above the peak and not counted as lost, where steps differ.
KEPT_DOUBT = 0.2
# Share of what is held above the peak and not pinned that is lost all the same: given back in segments, it
# finds its next user only in part.
KEPT_LOST = 0.4
KEPT_LOST_OF_PEAKS = 0.5
# Share of what was lost when the cache was given back, beyond what is held above the peak by now, that has
# found a user since, where steps differ.
FILLED_SHARE = 0.7
# Where growing peaks are sampled, the highest steps are seldom met at their height: how much higher they are
# than seen, as a share of how far the highest of so many rounds is above the middle one.
MISSED_SHARE = 0.3
MISSED_ROUNDS = 40


class Usable(NamedTuple):
    """How high live bytes can go under a limit."""

    limit_bytes: int
    # Standard error of that.
    doubt_bytes: float


class _Reading(NamedTuple):
    number: int
    time_s: float
    # What was held; for a moment at which it grew, what was held before and was not enough.
    reserved_bytes: int
    split_bytes: int


class UsableLimit:
    """Learns from memory above the peaks of steps how much of it stays unusable at the limit.

    An allocator reserves another segment when no free block is large enough. What it held then above its live
    bytes was of no use; at the limit it gives back the segments in which nothing lives, so that of that
    excess only what is free in segments with live blocks (`inactive_split_bytes` between steps) is lost.
    Where
    that is not counted: steps that are all alike use a cache that fits them, so that all of the excess is
    lost;
    of steps that differ, what is left of it after the cache was given back, and before that, what it grew.
    """

    def __init__(self) -> None:
        self._newest = _Reading(0, 0.0, 0, 0)
        self._falls: deque[_Reading] = deque(maxlen=FALLS_KEPT)
        self._growths: list[_Reading] = []

    def observe(self, time_s: float, reserved_bytes: int, split_bytes: int) -> None:
        """Observe what is held, and what is free in segments with live blocks; 0 where unknown."""
        before = self._newest
        newest = _Reading(before.number + 1, time_s, reserved_bytes, split_bytes)
        if reserved_bytes > before.reserved_bytes > 0:
            self._growths.append(before._replace(time_s=time_s))
        elif reserved_bytes < RETURNED_SHARE * before.reserved_bytes:
            self._falls.append(newest)
            self._growths.clear()
        if len(self._growths) == 2 * KEPT_MOMENTS:
            del self._growths[1::2]
        self._newest = newest

    @property
    def reserved_bytes(self) -> int:
        return self._newest.reserved_bytes

    def was_given_back(self, since_s: float) -> bool:
        """Return whether cache was given back since a moment, as far as that is remembered."""
        return bool(self._falls) and self._falls[-1].time_s >= since_s

    def of(
        self,
        limit_bytes: int,
        since_s: float,
        now_s: float,
        peak_at: Callable[[float], float],
        uniformity: float,
    ) -> Usable:
        """Return how high live bytes can really go under a limit.

        Args:
            limit_bytes: Most that can be reserved.
            since_s: Start of the growth in question.
            peak_at: The peak of steps at a moment, in bytes.
            uniformity: How far steps are alike in what they need, from 0 to 1.
        """
        if not self._newest.reserved_bytes:
            return Usable(limit_bytes, LEAST_DOUBT * limit_bytes)
        readings = [reading for reading in self._growths if reading.time_s >= since_s]
        readings.append(self._newest._replace(time_s=now_s))
        peaks = [peak_at(reading.time_s) for reading in readings]
        excess = [max(0.0, it.reserved_bytes - peak) for it, peak in zip(readings, peaks, strict=True)]
        if self._newest.split_bytes:
            held = excess[-1]
            excess = [min(rest, float(it.split_bytes)) for it, rest in zip(readings, excess, strict=True)]
            lost = uniformity * excess[-1] + (1 - uniformity) * median(excess[-SMOOTHED:])
            sure = (1 + uniformity) / 2
            kept = max(0.0, held - lost)
            lost += KEPT_LOST * kept
            doubt = math.hypot(SPLIT_DOUBT * lost, (1 - uniformity) * KEPT_DOUBT * kept)
        else:
            (lost, doubt), sure = self._guess(excess, uniformity), uniformity
        slope = sure * _slope_of(list(zip(peaks, excess, strict=True)))
        more = max(0.0, limit_bytes - lost - peaks[-1]) * slope / (1 + slope)
        least = (LEAST_DOUBT if len(readings) > 1 else UNSEEN_DOUBT) * limit_bytes
        lost += (1 - uniformity) * LAST_LOST * limit_bytes
        return Usable(int(limit_bytes - lost - more), math.hypot(doubt, more * SLOPE_DOUBT, least))

    def of_peaks(self, limit_bytes: int, since_s: float, peak_at: Callable[[float], float]) -> Usable:
        """Return how high peaks can really go that grow over a floor which does not.

        Nothing is pinned then; but blocks that served shorter steps do not serve longer ones. What was still
        held when the cache had been given back is the least that such a step needs. Where the cache is given
        back all the time every step is new to it, and the largest request needs a segment of its own.
        """
        rests = [fall.reserved_bytes - peak_at(fall.time_s) for fall in self._falls if fall.time_s >= since_s]
        if not rests:
            return Usable(limit_bytes, PEAK_DOUBT * limit_bytes)
        is_often = len(rests) == FALLS_KEPT and self._newest.number - self._falls[0].number <= OFTEN_WITHIN
        lost = median(rests) + OFTEN_LOST * limit_bytes if is_often else min(rests)
        newest = self._newest
        if newest.split_bytes:
            # Samples blur peaks: what seems to be held above one may be a part of it.
            lost += KEPT_LOST_OF_PEAKS * max(0.0, newest.reserved_bytes - peak_at(newest.time_s) - lost)
        return Usable(int((1 - LAST_LOST) * limit_bytes - max(0.0, lost)), PEAK_DOUBT * limit_bytes)

    def of_sampled_peaks(
        self, limit_bytes: int, reach: Usable, peak_bytes: float, missed_bytes: float
    ) -> Usable:
        """Return how high the peaks of samples can go that grow over a floor which does not.

        Args:
            limit_bytes: Most that can be reserved.
            reach: How high peaks could go if samples met them.
            peak_bytes: The larger peaks of late, as samples show them.
            missed_bytes: How much higher they probably are.
        """
        lost = limit_bytes - reach.limit_bytes + missed_bytes
        kept = max(0.0, self._newest.reserved_bytes - peak_bytes - lost)
        return reach._replace(limit_bytes=int(limit_bytes - lost - KEPT_LOST_OF_PEAKS * kept))

    def _guess(self, excess: Sequence[float], uniformity: float) -> tuple[float, float]:
        """Return what is lost, and its error, where only what is reserved is known.

        `excess` is what was held above the peak each time it was not enough, and at last what is held so now.
        """
        present = excess[-1]
        least = min(excess)
        alike = min(excess[-2:]) if len(excess) > 1 else 0.0
        unlike = least if self._falls else present - least
        lost = uniformity * alike + (1 - uniformity) * unlike
        return lost, math.hypot(uniformity * LOST_DOUBT * alike, (1 - uniformity) * GUESSED_DOUBT * present)


def _slope_of(points: Sequence[tuple[float, float]]) -> float:
    """Return by how much more is lost for each byte by which peaks rise; 0 where that is not clear."""
    rising = [point for before, point in pairwise(points) if point[0] > before[0]]
    if len(rising) < LEAST_POINTS:
        return 0.0
    line = fit_line(rising[:: -(-len(rising) // MOST_POINTS)])
    return min(line.bytes_per_s, MOST_SLOPE) if line.bytes_per_s > CLEAR * line.whole_error else 0.0


RAN_OUT = "it ran out of memory"
# Rounds that must have been seen before a forecast.
LEAST_ROUNDS = 8
# The same of samples that grow, of which a round is many.
LEAST_SAMPLED_ROUNDS = 3
# Which of the largest amplitudes reserved bytes answer to; the very largest may have been odd.
RANK = 2
# For how long a refusal of the device counts.
RETRY_S = 60.0
# Share of the room by which a floor rises visibly.
RISING_SHARE = 0.01
# Beats between two forecasts of the same subject, unless its end is near.
EVERY_BEATS = {"step": 8, "sample": 8, "device": 8, "host": 8}
NEAR_S = 300.0
# Nearer than this, a forecast is renewed when this share of the time left has passed.
NEAR_SHARE = 0.04


class Watch:
    def __init__(self) -> None:
        self.growth = GrowthTrack(has_peaks=True)
        self.amplitudes = Amplitudes()
        self.usable = UsableLimit()
        self.forecast: Forecast | None = None
        # Most that live bytes can really use.
        self.reach: Usable | None = None
        # Whether the newest sample brought a forecast.
        self.is_fresh = False
        self.has_allocator = False
        self.pressed = Pressed()
        # Whether the newest sample brought an out-of-memory error.
        self.has_failed = False
        # Errors counted so far, and when the newest was raised; None before the first sample.
        self._errors: tuple[int, float] | None = None
        # Whether the next beat may be of steps that an error interrupted.
        self._is_interrupted = False
        self._beats_ago = 0
        self._renewed_s = 0.0
        # Onset of the growth that the newest forecast rests on; None without growth.
        self._onset_s: float | None = None

    def observe(self, subject: Subject) -> None:
        self.is_fresh = False
        self._note_errors(subject)
        if self.has_failed:
            self._forget()
            return
        beat = read_beat(subject)
        if beat is None:
            return
        if self._is_interrupted:
            self._is_interrupted = False
            return
        if self.growth.floors.is_late(beat):
            return
        self.pressed.observe(beat.time_s, subject.allocator, self.growth.floors.limit_bytes)
        self.has_allocator = beat.kind != "device"
        if not self.has_allocator:
            return
        self.growth.observe(beat, subject.limit_bytes, is_pressed=self.pressed.is_often(beat.time_s))
        if self.growth.floors.beats <= 1:
            self.amplitudes = Amplitudes()
            self.usable = UsableLimit()
            self.forecast = None
        self.amplitudes.add(beat)
        if beat.reserved_bytes:
            self.usable.observe(beat.time_s, beat.reserved_bytes, beat.split_bytes)
        self._beats_ago += 1
        if self._is_due(beat):
            self._beats_ago = 0
            self._renewed_s = beat.time_s
            self._renew(beat)
        elif self._has_begun():
            self._renew(beat)

    @property
    def lost_because(self) -> str | None:
        """Why nothing is known by now of what was forecast; None where there is a forecast, or never was."""
        if self.has_failed:
            return RAN_OUT
        return self.growth.ended_because if self.forecast is None else None

    def _note_errors(self, subject: Subject) -> None:
        before = self._errors
        count, raised_s = before or (0, -math.inf)
        newest_s = None if subject.rank is None else subject.rank.oom_s
        count = max(count, subject.allocator.ooms or 0)
        raised_s = raised_s if newest_s is None else max(raised_s, newest_s)
        self._errors = (count, raised_s)
        self.has_failed = before is not None and self._errors != before

    def _forget(self) -> None:
        """Watch from the error on, whatever the process lets go of: what was forecast has happened."""
        self.growth = GrowthTrack(has_peaks=True)
        self.amplitudes = Amplitudes()
        self.usable = UsableLimit()
        self.forecast = None
        self.reach = None
        self.pressed = Pressed()
        self._is_interrupted = True
        self._beats_ago = 0
        self._onset_s = None

    @property
    def peak_bytes(self) -> int | None:
        floors = self.growth.floors
        return None if floors.floor_bytes is None else floors.floor_bytes + floors.amplitude_bytes

    @property
    def is_rising(self) -> bool:
        """Whether the floor has just risen by a visible part of the room, and that is no growth yet."""
        floors = self.growth.floors
        pace = floors.newest_pace
        if pace is None or self.growth.episode is not None:
            return False
        return pace * floors.newest_span_s >= RISING_SHARE * max(0.0, floors.headroom_bytes)

    def find_pace(self) -> float:
        """Return the bytes a second by which it grows: floors, or peaks over floors that do not; 0 if none.

        It is the pace that the forecast counts on; before there is one, that of the newest floors.
        """
        line = self.growth.line
        if line is not None:
            return line.bytes_per_s
        pace = self.growth.floors.newest_pace if self.is_rising else None
        return self.growth.floors.find_pace() if pace is None else pace

    @property
    def limit_bytes(self) -> int | None:
        return None if self.reach is None else self.reach.limit_bytes

    def _find_usable(self, time_s: float, above: list[Amplitude]) -> Usable | None:
        """Return the most that live bytes can really use, and how sure that is.

        What an allocator cannot fill is pinned by the live blocks of floors that grow; what is between
        floors and peaks is free at the end of a step, so that all of it can be given back.
        """
        limit = self.growth.floors.limit_bytes
        episode = self.growth.episode
        line = self.growth.line
        if limit is None:
            return None
        if episode is None or line is None:
            return Usable(limit, 0.0)
        usual = above[min(RANK, len(above) - 1)].bytes if above else 0.0
        if episode.is_peak:
            reach = self.usable.of_peaks(limit, episode.onset_s, line.level_at)
            if not self.amplitudes.is_sampled:
                return reach
            missed = MISSED_SHARE * self.amplitudes.find_spread(line, episode.onset_s)
            return self.usable.of_sampled_peaks(limit, reach, line.level_at(time_s) + usual, missed)
        uniformity = self.amplitudes.uniformity(line, usual)
        usable = self.usable.of(
            limit, episode.onset_s, time_s, lambda at_s: line.level_at(at_s) + usual, uniformity
        )
        if not self.amplitudes.is_sampled:
            return usable
        # What an allocator held on to when the device refused more is as little to be had as for a leak.
        lost = limit - min(usable.limit_bytes, limit - self.growth.floors.stranded_bytes)
        if self.usable.was_given_back(episode.onset_s):
            held = max(0.0, self.usable.reserved_bytes - line.level_at(time_s) - usual)
            lost -= round(FILLED_SHARE * (1 - uniformity) * max(0.0, lost - held))
        return usable._replace(limit_bytes=limit - lost)

    def _is_due(self, beat: Beat) -> bool:
        if self.growth.ended_because is not None:
            return True
        middle_s = None if self.forecast is None else self.forecast.middle_s
        if middle_s is None or middle_s >= NEAR_S:
            return self._beats_ago >= EVERY_BEATS[beat.kind]
        return beat.time_s - self._renewed_s >= NEAR_SHARE * middle_s

    def _has_begun(self) -> bool:
        """Return whether floors or peaks grow that the newest forecast does not include."""
        episode = self.growth.episode
        is_known = episode is None or self.growth.line is None or episode.onset_s == self._onset_s
        return not is_known

    def _renew(self, beat: Beat) -> None:
        floors = self.growth.floors
        round_s = self.amplitudes.round_s
        floor = floors.floor_bytes
        is_growing = self.amplitudes.is_sampled and self.growth.line is not None
        least = LEAST_SAMPLED_ROUNDS if is_growing else LEAST_ROUNDS
        if floor is None or round_s is None or len(self.amplitudes) < least:
            return
        above = self._find_amplitudes()
        self.reach = reach = self._find_usable(beat.time_s, above)
        if reach is None:
            return
        self.is_fresh = True
        episode = self.growth.episode
        self._onset_s = None if episode is None else episode.onset_s
        self.growth.lost_bytes = self._find_lost(reach)
        line = self.growth.line
        steps_per_s = floors.steps_per_s
        self.forecast = make_forecast(
            Situation(
                time_s=beat.time_s,
                limit_bytes=reach.limit_bytes,
                limit_doubt_bytes=reach.doubt_bytes,
                floor_bytes=float(floor) if line is None else line.level_at(beat.time_s),
                amplitudes=above,
                recent=self.amplitudes.above_floor(floor),
                round_s=round_s,
                steps_per_round=None if steps_per_s is None else steps_per_s * round_s,
                line=line,
                share=self._share(floor, beat.time_s),
                is_believed=episode is None or episode.is_believed,
                is_of_peaks=episode is not None and episode.is_peak,
                is_scattered=episode is not None and episode.is_scattered,
                is_sampled=self.amplitudes.is_sampled,
                has_retried=self.pressed.is_met(beat.time_s, RETRY_S),
            )
        )

    def _find_lost(self, reach: Usable) -> int:
        """Return the bytes of the limit that growing peaks cannot use."""
        episode = self.growth.episode
        limit = self.growth.floors.limit_bytes
        if limit is None or episode is None or not episode.is_peak:
            return 0
        return limit - reach.limit_bytes

    def _find_amplitudes(self) -> list[Amplitude]:
        """Return how far rounds reached above floors that grow, falling; nothing where they do not."""
        line = self.growth.line
        episode = self.growth.episode
        if line is None or episode is None:
            return []
        return self.amplitudes.above_line(line, episode.onset_s)

    def _share(self, floor: int, time_s: float) -> float:
        episode = self.growth.episode
        line = self.growth.line
        limit = self.limit_bytes
        if episode is None or line is None or limit is None:
            return 0.0
        grown = line.level_at(time_s) - line.level_at(episode.onset_s)
        return grown / max(1.0, limit - floor - self.growth.floors.amplitude_bytes)


# For how long a refusal counts.
WITHIN_S = 600.0
# Refusals within that time that make an allocator pressed.
OFTEN = 3
# Share of the limit that was reserved before the cache was given back, where refusals are not counted.
FULL_SHARE = 0.8
FALLEN_SHARE = 0.98


class Pressed:
    """Refusals of the device: by their count, or seen as cache that was freed near the limit.

    PyTorch counts them as `num_alloc_retries`. Where only bytes are known, reserved bytes that fall from near
    the limit say the same; a program that empties its cache below it does not count.
    """

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=OFTEN)
        self._retries: int | None = None
        self._reserved = 0

    def observe(self, time_s: float, allocator: AllocatorReading, limit_bytes: int | None) -> None:
        if allocator.retries is not None:
            if self._retries is not None and allocator.retries > self._retries:
                self._times.append(time_s)
            self._retries = allocator.retries
            return
        reserved = allocator.reserved_bytes
        before = self._reserved
        if reserved is None:
            return
        if limit_bytes is not None and FULL_SHARE * limit_bytes < before and reserved < FALLEN_SHARE * before:
            self._times.append(time_s)
        self._reserved = reserved

    def is_met(self, time_s: float, within_s: float) -> bool:
        return bool(self._times) and time_s - self._times[-1] <= within_s

    def is_often(self, time_s: float) -> bool:
        return len(self._times) == OFTEN and time_s - self._times[0] <= WITHIN_S


KEPT = 192
# Of earlier rounds, only the maximum of each group of so many is kept, the newest OLDER_KEPT of each size, so
# that rare peaks are forgotten late.
OLDER_ROUNDS = (8, 64)
OLDER_KEPT = 24
# Largest amplitudes that are kept one by one, and how many of the others are joined.
EXACT = 24
TOGETHER = 8
SPANS_KEPT = 64
# Samples that make a round where steps are not known: the most of so many is near the peak of a step.
SAMPLES = 16
LEVELS_KEPT = 192
# A sample is near the usual peak from this share of it on.
TOP = 0.8
# Shares of samples near the top: of steps that differ, and of steps that are alike.
FEW_NEAR = 0.06
MANY_NEAR = 0.11
# Spread of what steps need, as a share, up to which they are alike, and from which on they are not.
ALIKE = 0.04
UNLIKE = 0.12


class Amplitudes:
    """The highs of the newest rounds; a round is a beat of steps, or a few samples."""

    def __init__(self) -> None:
        self._highs: deque[tuple[float, int, int]] = deque(maxlen=KEPT)
        self._older = [_Maxima(rounds) for rounds in OLDER_ROUNDS]
        self._spans: deque[float] = deque(maxlen=SPANS_KEPT)
        self._beats: list[tuple[int, float]] = []
        self._last_s: float | None = None
        self.is_sampled = False
        self._levels: deque[tuple[float, int]] = deque(maxlen=LEVELS_KEPT)

    def __len__(self) -> int:
        return len(self._highs)

    def add(self, beat: Beat) -> None:
        self.is_sampled = beat.kind != "step"
        self._beats.append((beat.high_bytes, beat.time_s))
        self._levels.append((beat.time_s, beat.high_bytes))
        if self.is_sampled and len(self._beats) < SAMPLES:
            return
        highs = sorted(self._beats)
        high, time_s = highs[-1]
        if len(self._highs) == KEPT:
            self._forget(*self._highs[0][:2])
        self._highs.append((time_s, high, high - highs[-2][0] if len(highs) > 1 else 0))
        if self._last_s is not None:
            self._spans.append(beat.time_s - self._last_s)
        self._last_s = beat.time_s
        self._beats = []

    def above_floor(self, floor: int) -> list[float]:
        """Return how far recent rounds reached above a floor that does not grow, in bytes, falling."""
        reached = [float(high - floor) for _, high, _ in self._highs]
        return sorted(self._correct(reached, len(reached)), reverse=True)

    def above_line(self, line: Line, onset_s: float) -> list[Amplitude]:
        """Return how far rounds reached above a floor that rises since an onset, falling.

        Rounds long ago count by the most of some of them; the others of these count as usual ones.
        """
        times = [(time_s, high) for time_s, high, _ in self._highs]
        counts = [1] * len(times)
        for older in self._older:
            times += older.kept
            counts += [older.rounds] * len(older.kept)
        reached = self._correct(line.measure_above(times, onset_s), len(self._highs))
        recent = sorted(reached[: len(self._highs)])
        others = sum(counts) - len(times)
        found = [(value, 1.0) for value in reached]
        if others:
            found.append((recent[len(recent) // 2], float(others)))
        return _thin(sorted(found, reverse=True))

    def find_spread(self, line: Line, onset_s: float) -> float:
        """Return how far the highest of the larger rounds since an onset is above the middle one."""
        highs = [(time_s, high) for time_s, high, _ in self._highs if time_s >= onset_s]
        reached = sorted(line.measure_above(highs))[-MISSED_ROUNDS:]
        return reached[-1] - reached[len(reached) // 2] if reached else 0.0

    def _forget(self, time_s: float, high: int) -> None:
        """Drop the oldest recent round: the most of some such is remembered for longer."""
        gone: tuple[float, int] | None = (time_s, high)
        rounds = 1
        for older in self._older:
            if gone is not None:
                gone = older.add(*gone, rounds)
            rounds = older.rounds

    def uniformity(self, line: Line, usual_bytes: float) -> float:
        """Return how far steps are alike in what they need: 1 where they are, 0 where they differ much.

        A step that rises and falls about evenly is as likely to be met at any height. So of samples of steps
        that are alike a fifth is found in the uppermost fifth of their height; of steps of all lengths, few.
        `usual_bytes` is how far the larger steps reach above the line.
        """
        usual = max(1.0, usual_bytes)
        reached = sorted([above / usual for above in line.measure_above(self._levels)])
        if self.is_sampled:
            near = sum([share >= TOP for share in reached]) / len(reached)
            return min(1.0, max(0.0, (near - FEW_NEAR) / (MANY_NEAR - FEW_NEAR)))
        high = reached[-1 - len(reached) // 10]
        low = reached[len(reached) // 10]
        return min(1.0, max(0.0, (UNLIKE - (high - low) / max(high, 1e-9)) / (UNLIKE - ALIKE)))

    @property
    def round_s(self) -> float | None:
        """Seconds of a round, on average of the newest; None before the second."""
        return sum(self._spans) / len(self._spans) if self._spans else None

    def _correct(self, reached: Sequence[float], recent: int) -> list[float]:
        """Estimate the peaks of steps from samples at random moments.

        The most of some samples falls short of the peak by about as much as the next one falls short of it
        (spacings of the extremes of a uniform sample, David and Nagaraja, section 2.5), and scatters by as
        much. So the shortfall is added, and the scatter that it explains removed. The first `recent` of them
        determine the scatter.
        """
        if not self.is_sampled or recent < 2:
            return list(reached)
        short = sum([gap for _, _, gap in self._highs]) / len(self._highs)
        mean = sum(reached[:recent]) / recent
        spread = sum([(value - mean) ** 2 for value in reached[:recent]]) / recent
        kept = math.sqrt(max(0.0, 1 - short**2 / spread)) if spread > 0 else 0.0
        return [mean + short + kept * (value - mean) for value in reached]


def _thin(found: Sequence[tuple[float, float]]) -> list[Amplitude]:
    """Join amplitudes: the largest stay as they are, the others become the middle of some at a time."""
    thinned = [Amplitude(*one) for one in found[:EXACT]]
    for start in range(EXACT, len(found), TOGETHER):
        some = found[start : start + TOGETHER]
        thinned.append(Amplitude(some[len(some) // 2][0], sum([rounds for _, rounds in some])))
    return thinned


class _Maxima:
    """Maxima of groups of rounds, the newest ones."""

    def __init__(self, rounds: int) -> None:
        # Rounds that each stands for.
        self.rounds = rounds
        self.kept: deque[tuple[float, int]] = deque(maxlen=OLDER_KEPT)
        self._most: tuple[float, int] | None = None
        self._count = 0

    def add(self, time_s: float, high: int, rounds: int) -> tuple[float, int] | None:
        """Add the most of some rounds; return the one that is dropped for it, if any."""
        if self._most is None or high > self._most[1]:
            self._most = (time_s, high)
        self._count += rounds
        if self._count < self.rounds:
            return None
        gone = self.kept[0] if len(self.kept) == OLDER_KEPT else None
        self.kept.append(self._most)
        self._most = None
        self._count = 0
        return gone
