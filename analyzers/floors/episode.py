"""One subject's growth from its onset to its end: what a leak is, and what a forecast rests on."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ...engine.model import Finding
from ..findings.evidence import FLOOR_AT_ONSET, ONSET, ONSET_STEP, RATE
from ..findings.evidence import WINDOW as WINDOW_KEY
from ..findings.lifecycle import OpenFinding
from .blocks import KEPT, Beat, Block, turn_over
from .floor_track import MOST_POINTS, FloorTrack
from .growth import Growth, blur_of, has_rising_floors
from .rate import Line, estimate_rate, fit_least_squares

FELL_BACK = "the floor fell back"
PEAK_FELL_BACK = "the peak fell back"
DID_NOT_RESUME = "growth that seemed to resume stopped"
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
# Factor by which the pace of growth that resumes after a pause may have changed.
RESUMED_PACE = 2.0
# Pace of the later half of a growth, as a share of that of the earlier one, below which it slows down.
SLOWED = 0.85
# Blocks of each part at least.
SLOWED_BLOCKS = 4
# Standard errors by which the last third of a growth must surely keep that share of the pace before it.
EVEN_ERRORS = 3.0

# The rate is computed from blocks of so many scales below that of the evidence.
FRESHNESS = 1
# Longer sequences end somewhere: peaks must have used much of the room, and the end must be near.
PEAK_SHARE = 1.5
PEAK_S = 660.0
PEAK_LEAST_S = 120.0
# The same where the device refuses memory already.
PRESSED_SHARE = 0.5
# The end of peaks that scatter is far less certain: it counts when it may be as near as this.
SCATTERED_LEFT_S = 3600.0


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
    # Whether growth is known by the ranks of peaks or the mean of samples alone: its end can only be guessed.
    is_scattered: bool = False
    # Pace, in bytes a second, that growth which resumed after a pause must keep, the pause included.
    least_bytes_per_s: float = 0.0


class GrowthTrack:
    """Floors of one subject, and the growth that they show while it lasts.

    With `has_peaks`, growth of peaks counts too, where floors do not grow and the end is near; and growth
    that the mean of samples alone shows.
    """

    def __init__(self, *, has_peaks: bool = False) -> None:
        self.floors = FloorTrack()
        self.episode: Episode | None = None
        # Why an episode ended with the newest beat; None where none did.
        self.ended_because: str | None = None
        # Whether the newest beat brought back growth that had paused for so long that it counted as ended.
        self.has_resumed = False
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
        # The least from which it counts as the same growth: below, much of it was given back in the meantime.
        self._paused_bytes = 0.0

    def observe(self, beat: Beat, limit_bytes: int | None, *, is_pressed: bool = False) -> None:
        """Add one beat; `limit_bytes` is the most that floors and the amplitude above them can reach.

        `is_pressed`: the device refuses the allocator memory again and again.
        """
        self.ended_because = None
        self.has_resumed = False
        self.completed = self.floors.observe(beat, limit_bytes)
        if not self.completed and not self.floors.has_restarted:
            return
        for level in range(self.completed):
            self.floors.note_record(level)
        if self.floors.has_restarted:
            self._paused_s = None
            self._paused = None
            self._longest_pause_s = 0.0
            self._end("all of it was freed: growth started again")
            return
        episode = self.episode
        if episode is not None:
            self._follow(episode, beat.time_s)
        if self.episode is None:
            self._resume(beat.time_s)
        if episode is None or episode.is_peak or episode.is_scattered:
            self._begin()
        episode = self.episode
        if self._has_peaks and (episode is None or not episode.is_believed or episode.is_scattered):
            self._begin_peaks(is_pressed=is_pressed)
        if self._has_peaks and self.episode is None:
            self._begin_means()

    def _begin_means(self) -> None:
        """Begin an episode with growth of the mean of samples, where reserved bytes are near the limit."""
        for level in range(self.completed):
            growth = self.floors.judge_means(level)
            if growth is None:
                continue
            is_peak = not has_rising_floors(growth)
            if not self._has_paused(growth, is_peak=is_peak):
                self._begin_with(level, growth, is_peak=is_peak, is_scattered=True)
                return

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
        if self.episode is not None and self.episode.is_scattered:
            return
        for level in range(self.completed):
            growth = self.floors.judge_scattered_peaks(level, self.lost_bytes)
            if (
                growth is not None
                and growth.share >= PEAK_SHARE
                and growth.headroom_bytes < SCATTERED_LEFT_S * growth.bytes_per_s
                and not self._has_paused(growth, is_peak=True)
            ):
                self._begin_with(level, growth, is_peak=True, is_scattered=True)
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
                or growth.blocks[0].low < self._paused_bytes
                or not 1 / RESUMED_PACE <= growth.bytes_per_s / paused.bytes_per_s <= RESUMED_PACE
            ):
                continue
            # A pause that is no longer than growth lasted before leaves half of its pace.
            least_bytes_per_s = paused.bytes_per_s / RESUMED_PACE
            line = self._fit_line(paused)
            if line is None or line.bytes_per_s < least_bytes_per_s:
                continue
            self._longest_pause_s = max(self._longest_pause_s, growth.blocks[0].end_s - paused_s)
            self._paused = self._paused_s = None
            self.has_resumed = True
            self.episode = paused._replace(least_bytes_per_s=least_bytes_per_s)
            self.line = line
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
        self,
        level: int,
        growth: Growth,
        *,
        is_peak: bool = False,
        is_believed: bool = True,
        is_scattered: bool = False,
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
            is_scattered,
        )
        self.line = self._fit_line(self.episode)

    def _fit_line(self, episode: Episode) -> Line | None:
        finest = max(0, self._level - FRESHNESS)
        return self.floors.fit_line(episode.onset_s, finest, is_peak=episode.is_peak)

    def _follow(self, episode: Episode, time_s: float) -> None:
        because = self._find_end(episode, time_s)
        if because is not None:
            self._end(because)
            # What was let go comes back, as results that are gathered in rounds do: only what then rises
            # beyond the height of before is news.
            if because not in (FELL_BACK, PEAK_FELL_BACK):
                self.floors.forget_records(time_s)
            return
        if self.completed <= self._level - FRESHNESS:
            return
        line = self._fit_line(episode)
        # A line through peaks that scatter may fall for a while: flat peaks, or lower ones, show their end.
        has_failed = line is not None and line.bytes_per_s < episode.least_bytes_per_s
        if has_failed and not episode.is_scattered:
            self._end(DID_NOT_RESUME)
            self.floors.forget_records(time_s)
        elif line is not None and line.bytes_per_s > 0:
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
        fallen_back = episode.onset_bytes + FALLEN_BACK * (max(since) - episode.onset_bytes)
        if newest < fallen_back:
            return PEAK_FELL_BACK if episode.is_peak else FELL_BACK
        quiet_s = self._measure_pause(
            episode.onset_s, episode.bytes_per_s, is_peak=episode.is_peak, beats=FLAT_BEATS
        )
        if not quiet_s:
            return None
        if episode.is_peak and max([it.high for it in self.floors.pyramid.latest(0, 4)]) < fallen_back:
            return PEAK_FELL_BACK
        self._paused_s = time_s - quiet_s
        self._lasted_s = self._paused_s - episode.onset_s
        self._paused = None if episode.is_peak else episode
        self._paused_bytes = fallen_back
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
    pace, error = fit_least_squares([(it.mid_s, it.low) for it in blocks], blur_of(blocks))
    return pace < PLATEAU_SHARE * bytes_per_s and pace + FLAT_ERRORS * error <= FLAT_DOUBT * bytes_per_s


def _slows(blocks: Sequence[Block]) -> bool:
    """Return whether growth slows down: its later half clearly did, and its last third may go on to.

    Growth that began fast and is even by now, as of a leak after a cache has filled, does not.
    """
    halves = _measure_paces(blocks, 2)
    if halves is None or halves[0].bytes_per_s <= 0:
        return False
    if halves[1].bytes_per_s >= SLOWED * halves[0].bytes_per_s:
        return False
    thirds = _measure_paces(blocks, 3)
    if thirds is None:
        return True
    _, before, after = thirds
    doubt = EVEN_ERRORS * math.hypot(before.error, after.error)
    return before.bytes_per_s <= 0 or after.bytes_per_s - doubt < SLOWED * before.bytes_per_s


class _Pace(NamedTuple):
    bytes_per_s: float
    # Its standard error, where what is kept comes at random: deviations of a sum add up.
    error: float


def _measure_paces(blocks: Sequence[Block], count: int) -> list[_Pace] | None:
    """Return the pace of floors in each of some parts of equal length; None where one has few blocks."""
    if len(blocks) < count * SLOWED_BLOCKS:
        return None
    start_s = blocks[0].start_s
    part_s = (blocks[-1].end_s - start_s) / count
    paces = []
    for part in range(count):
        since_s = start_s + part * part_s
        points = [(it.mid_s, it.low) for it in blocks if since_s <= it.mid_s <= since_s + part_s]
        if len(points) < SLOWED_BLOCKS:
            return None
        pace = estimate_rate(points[:: -(-len(points) // MOST_POINTS)])
        rises = [(after[1] - before[1], after[0] - before[0]) for before, after in pairwise(points)]
        variance = sum([(rise - pace * passed_s) ** 2 / passed_s for rise, passed_s in rises]) / len(rises)
        paces.append(_Pace(pace, math.sqrt(variance / part_s)))
    return paces


def _is_near(growth: Growth, *, is_pressed: bool) -> bool:
    if growth.share < (PRESSED_SHARE if is_pressed else PEAK_SHARE):
        return False
    is_near = growth.headroom_bytes < PEAK_S * growth.bytes_per_s and growth.window_s >= PEAK_LEAST_S
    return is_pressed or is_near


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
