"""One subject's growth from its onset to its end: what a leak is, and what a forecast rests on."""

from typing import NamedTuple

from .beat import Beat
from .blocks import turn_over
from .growth import Growth
from .rate import Line
from .track import FloorTrack

FELL_BACK = "the floor fell back"
FALLEN_BACK = 0.5
"""Share of what it grew that a floor must have given back for the growth to be over."""
PLATEAU_SHARE = 0.15
"""Share of its rate below which growth has stopped."""
PLATEAU_PAST = 0.25
"""Share of the time since the onset for which it must have stopped, and at least the evidence at first."""

FRESHNESS = 1
"""Scales below that of the evidence whose blocks make the rate anew."""
PEAK_SHARE, PEAK_S, PEAK_LEAST_S = 1.5, 660.0, 120.0
"""Longer sequences end somewhere: peaks must have taken much of the room, and the rest must be near."""
PRESSED_SHARE = 0.5
"""The same where the device refuses memory already."""


class Episode(NamedTuple):
    """Growth that goes on."""

    onset_s: float
    onset_bytes: int
    onset_step: int | None
    window_s: float
    """Evidence on which it was first believed."""
    bytes_per_s: float
    is_peak: bool = False
    """Whether it is peaks that grow, above a floor that stands."""
    is_believed: bool = True
    """Whether it is taken to go on; longer sequences and larger batches mostly end at a length that fits."""


class GrowthTrack:
    """Floors of one subject, and the growth that they show while it lasts.

    Args:
        has_peaks: Whether growth of peaks counts too, where floors do not grow and the end is near.
    """

    def __init__(self, *, has_peaks: bool = False) -> None:
        self.floors = FloorTrack()
        self.episode: Episode | None = None
        self.ended_because: str | None = None
        """Why an episode has ended by the newest beat; None where none has."""
        self.completed = 0
        """Scales that completed a block by the newest beat."""
        self.line: Line | None = None
        """Through the floors since the onset, while they grow."""
        self.lost_bytes = 0
        """What growing peaks cannot use of the limit, as far as that is known."""
        self._has_peaks = has_peaks
        self._level = 0

    def observe(self, beat: Beat, limit_bytes: int | None, *, is_pressed: bool = False) -> None:
        """Take one beat.

        Args:
            beat: The reading.
            limit_bytes: Most that floors and what is on top can reach.
            is_pressed: Whether the device refuses the allocator memory again and again.
        """
        self.ended_because = None
        self.completed = self.floors.observe(beat, limit_bytes)
        for level in range(self.completed):
            self.floors.note_record(level)
        if self.floors.has_restarted:
            self._end("what was allocated was given back: it began anew")
            return
        episode = self.episode
        if episode is not None and self.completed:
            self._follow(episode, beat.time_s)
        if episode is None or episode.is_peak:
            self._begin()
        if self._has_peaks and (self.episode is None or not self.episode.is_believed):
            self._begin_peaks(is_pressed=is_pressed)

    def _begin_peaks(self, *, is_pressed: bool) -> None:
        """Begin with growth of peaks; or believe in it, once the end is near."""
        for level in range(self.completed):
            growth = self.floors.judge_peaks(level, self.lost_bytes, is_lenient=True)
            if growth is None:
                continue
            is_believed = _is_near(growth, is_pressed=is_pressed) and (
                is_pressed or self.floors.judge_peaks(level, self.lost_bytes, is_lenient=False) is not None
            )
            if self.episode is None or is_believed:
                self._begin_with(level, growth, is_peak=True, is_believed=is_believed)
                return

    def _begin(self) -> None:
        """Begin with growth of floors, of the finest scale that shows it."""
        for level in range(self.completed):
            growth = self.floors.judge(level)
            if growth is not None:
                self._begin_with(level, growth)
                return

    def _begin_with(
        self, level: int, growth: Growth, *, is_peak: bool = False, is_believed: bool = True
    ) -> None:
        first = growth.blocks[0]
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
        """Return why growth is over, or None while it goes on."""
        found = self.floors.pyramid.mosaic(self._level)
        blocks = [turn_over(block) for block in found] if episode.is_peak else found
        since = [block.low for block in blocks if block.end_s > episode.onset_s]
        if not since:
            return None
        newest = max(since[-2:]) if episode.is_peak else min(since[-2:])
        if newest < episode.onset_bytes + FALLEN_BACK * (max(since) - episode.onset_bytes):
            return "the peak fell back" if episode.is_peak else FELL_BACK
        quiet_s = max(episode.window_s, PLATEAU_PAST * (time_s - episode.onset_s))
        before = [block for block in blocks if block.end_s <= time_s - quiet_s]
        if not before or before[-1].mid_s < episode.onset_s:
            return None
        expected = episode.bytes_per_s * (time_s - before[-1].mid_s)
        if newest - before[-1].low < PLATEAU_SHARE * expected:
            return f"growth stopped for {quiet_s:.0f} s"
        return None

    def _end(self, because: str) -> None:
        if self.episode is not None:
            self.episode, self.line, self.ended_because = None, None, because


def _is_near(growth: Growth, *, is_pressed: bool) -> bool:
    """Return whether growth of peaks is near its end, or the device refuses memory already."""
    if growth.share < (PRESSED_SHARE if is_pressed else PEAK_SHARE):
        return False
    is_near = growth.headroom_bytes < PEAK_S * growth.bytes_per_s and growth.window_s >= PEAK_LEAST_S
    return is_pressed or is_near
