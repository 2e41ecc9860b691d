"""One subject's growth from its onset to its end: what a leak is, and what a forecast rests on."""

from typing import NamedTuple

from .beat import Beat
from .growth import Growth
from .rate import Line
from .track import FloorTrack

FALLEN_BACK = 0.5
"""Share of what it grew that a floor must have given back for the growth to be over."""
PLATEAU_SHARE = 0.15
"""Share of its rate below which growth has stopped."""
PLATEAU_PAST = 0.25
"""Share of the time since the onset for which it must have stopped, and at least the evidence at first."""

FRESHNESS = 2
"""Scales below that of the evidence whose blocks make the rate anew."""


class Episode(NamedTuple):
    """Growth that goes on."""

    onset_s: float
    onset_bytes: int
    onset_step: int | None
    window_s: float
    """Evidence on which it was first believed."""
    bytes_per_s: float


class GrowthTrack:
    """Floors of one subject, and the growth that they show while it lasts."""

    def __init__(self) -> None:
        self.floors = FloorTrack()
        self.episode: Episode | None = None
        self.ended_because: str | None = None
        """Why an episode has ended by the newest beat; None where none has."""
        self.completed = 0
        """Scales that completed a block by the newest beat."""
        self.line: Line | None = None
        """Through the floors since the onset, while they grow."""
        self._level = 0

    def observe(self, beat: Beat, limit_bytes: int | None) -> None:
        """Take one beat."""
        self.ended_because = None
        self.completed = self.floors.observe(beat, limit_bytes)
        growths = [(level, self.floors.judge(level)) for level in range(self.completed)]
        if self.floors.has_restarted:
            self._end("what was allocated was given back: it began anew")
        elif self.episode is not None:
            if self.completed:
                self._follow(self.episode, beat.time_s)
        else:
            for level, growth in growths:
                if growth is not None:
                    self._level, self.episode = level, _begin(growth)
                    self.line = self.floors.fit_line(self.episode.onset_s)
                    return

    def _follow(self, episode: Episode, time_s: float) -> None:
        because = self._find_end(episode, time_s)
        if because is not None:
            self._end(because)
            return
        if self.completed <= self._level - FRESHNESS:
            return
        line = self.floors.fit_line(episode.onset_s)
        if line is not None and line.bytes_per_s > 0:
            self.line = line
            self.episode = episode._replace(bytes_per_s=line.bytes_per_s)

    def _find_end(self, episode: Episode, time_s: float) -> str | None:
        """Return why growth is over, or None while it goes on."""
        floor = self.floors.floor_bytes
        if floor is None:
            return None
        most = max([block.low for block in self.floors.pyramid.latest(self._level, 16)], default=floor)
        if floor < episode.onset_bytes + FALLEN_BACK * (most - episode.onset_bytes):
            return "the floor fell back"
        quiet_s = max(episode.window_s, PLATEAU_PAST * (time_s - episode.onset_s))
        before = self.floors.floor_before(time_s - quiet_s)
        if before is None or before.mid_s < episode.onset_s:
            return None
        if floor - before.low < PLATEAU_SHARE * episode.bytes_per_s * (time_s - before.mid_s):
            return f"growth stopped for {quiet_s:.0f} s"
        return None

    def _end(self, because: str) -> None:
        if self.episode is not None:
            self.episode, self.line, self.ended_because = None, None, because


def _begin(growth: Growth) -> Episode:
    first = growth.blocks[0]
    return Episode(first.end_s, first.low, first.last_step, growth.window_s, growth.bytes_per_s)
