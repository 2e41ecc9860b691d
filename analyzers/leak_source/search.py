"""The search for the source of one leak: a map, allocations recorded for a while, a pause, another map."""

from collections.abc import Iterator
from typing import Literal

from ...engine.model import RankSample, SegmentMap
from ...engine.model.inquiry import Inquiry
from .growth import LeakSource, find_sources

RECORDED_STEPS = 8
"""Steps that should be recorded; a leak of every step then shows as so many blocks."""
SHORTEST_S, LONGEST_S = 5.0, 40.0
PAUSE_S, PAUSE_STEPS = 3.0, 3
"""After the recording: what serves a step is freed meanwhile, what is kept stays."""
REST_S = 60.0
"""Between two attempts: ten seconds of seventy cost 1 % where recording slows a step by 7 %."""
ATTEMPTS = 6
MAP_WITHIN_S = 15.0

Stage = Literal["first map", "recording", "pause", "second map", "rest", "over"]


class SourceSearch:
    """Looks for the source of one leak, step by step, at most `ATTEMPTS` times."""

    def __init__(self) -> None:
        self.sources: tuple[LeakSource, ...] = ()
        self._stage: Stage = "rest"
        self._since_s: float | None = None
        self._first: SegmentMap | None = None
        self._steps = 0
        self._seconds = SHORTEST_S
        self._attempts = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be asked."""
        return self._stage == "over"

    @property
    def awaits_map(self) -> bool:
        """Whether a map was asked for that has not come."""
        return self._stage == "second map" or (self._stage == "first map" and self._first is None)

    def follow(self, rank: RankSample, time_s: float) -> Iterator[Inquiry]:
        """Take the process as one sample shows it; yield what should be asked now."""
        self._steps += rank.steps_within
        waited_s = time_s - (self._since_s if self._since_s is not None else time_s)
        if self._stage == "rest" and (self._since_s is None or waited_s >= REST_S):
            yield from self._begin(rank, time_s)
        elif self._stage == "recording" and waited_s >= self._seconds:
            self._enter("pause", time_s)
        elif self._stage == "pause" and self._is_settled(waited_s):
            self._enter("second map", time_s)
            yield Inquiry("segments", rank.pid)
        elif self._stage in ("first map", "second map") and waited_s >= MAP_WITHIN_S:
            self._enter("rest", time_s)
        elif self._stage == "first map" and self._first is not None:
            self._enter("recording", time_s)
            if rank.memory_history != "user":
                yield Inquiry("history", rank.pid, self._seconds)

    def take_map(self, segment_map: SegmentMap, time_s: float) -> bool:
        """Take a map of the process; return whether it names a source."""
        if self._stage == "first map":
            self._first = segment_map
        elif self._stage == "second map" and self._first is not None:
            if segment_map.time_s <= self._first.time_s:
                return False
            self.sources = find_sources(self._first, segment_map)
            self._enter("over" if self.sources and self.sources[0].frame is not None else "rest", time_s)
            return bool(self.sources)
        return False

    def _begin(self, rank: RankSample, time_s: float) -> Iterator[Inquiry]:
        if self._attempts == ATTEMPTS:
            self._enter("over", time_s)
            return
        self._attempts += 1
        self._first = None
        duration_s = (rank.step.duration_s if rank.step is not None else None) or 0.0
        longer = 2 ** (self._attempts - 1)  # what is kept every hundredth step needs a longer look
        self._seconds = min(LONGEST_S, longer * max(SHORTEST_S, RECORDED_STEPS * duration_s))
        self._enter("first map", time_s)
        yield Inquiry("segments", rank.pid)

    def _is_settled(self, waited_s: float) -> bool:
        return waited_s >= PAUSE_S and (self._steps >= PAUSE_STEPS or waited_s >= LONGEST_S)

    def _enter(self, stage: Stage, time_s: float) -> None:
        self._stage, self._since_s, self._steps = stage, time_s, 0
