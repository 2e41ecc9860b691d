"""The search for the source of one leak: allocations recorded for a while, and maps compared meanwhile."""

from collections.abc import Iterator
from typing import Literal

from ...engine.model import RankSample, SegmentMap
from ...engine.model.inquiry import Inquiry
from .growth import LeakSource, find_sizes, find_sources
from .holdings import Holdings, measure_holdings

INTERVAL_STEPS = 4
"""From one map to the next: a leak of every step then shows as so many blocks."""
SHORTEST_S = 3.0
LONGEST_S = 10.0
"""Length of an interval."""
INTERVALS = 4
"""In one attempt. It ends with the first map by which a source is known, after two at least."""
RESTS = 6
"""So many times as long as was recorded, nothing is: one part of seven costs 1 % where recording slows a step
by 7 %."""
SHORTEST_REST_S = 10.0
ATTEMPTS = 6
ANSWER_S = 15.0
"""For a map to come, beside what the process may wait for the end of a step."""
LEAST_WAIT_S = 5.0
LONGEST_WAIT_S = 60.0
"""For the end of a step."""
DURATIONS = 2.5
"""How many steps a process may wait for the end of one: steps differ."""

Stage = Literal["rest", "map", "interval", "ending", "over"]


class SourceSearch:
    """Looks for the source of one leak, at most `ATTEMPTS` times, each time twice as long.

    While the process records its allocations it is asked for maps, at ends of steps where it makes steps.
    What has grown from map to map is the source. A process that records itself is only asked for maps.
    """

    def __init__(self) -> None:
        self.sources: tuple[LeakSource, ...] = ()
        self._stage: Stage = "rest"
        self._since_s: float | None = None
        self._held: list[Holdings] = []
        self._steps = 0
        self._attempts = 0
        self._began_s = 0.0
        self._rest_s = 0.0
        self._has_ends = False
        self._map_within_s = ANSWER_S

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be asked."""
        return self._stage == "over"

    @property
    def awaits_map(self) -> bool:
        """Whether a map was asked for that has not come."""
        return self._stage == "map"

    @property
    def is_recording(self) -> bool:
        """Whether the process was asked to record and not yet to stop."""
        return self._stage in ("map", "interval", "ending")

    def follow(self, rank: RankSample, time_s: float) -> Iterator[Inquiry]:
        """Take the process as one sample shows it; yield what should be asked now."""
        self._steps += rank.steps_within
        waited_s = time_s - (self._since_s if self._since_s is not None else time_s)
        if self._stage == "rest" and (self._since_s is None or waited_s >= self._rest_s):
            yield from self._begin(rank, time_s)
        elif self._stage == "interval" and self._is_past(rank, waited_s):
            yield from self._ask(rank, time_s)
        elif self._stage == "ending" or (self._stage == "map" and waited_s >= self._map_within_s):
            yield from self._end(rank, time_s)

    def take_map(self, segment_map: SegmentMap, time_s: float) -> bool:
        """Take a map of the process, whoever asked for it; return whether it names a source."""
        is_older = bool(self._held) and segment_map.time_s <= self._held[-1].time_s
        if not self.awaits_map or is_older or (self._has_ends and not segment_map.is_at_step_end):
            return False
        self._held.append(measure_holdings(segment_map))
        sources = find_sources(self._held)
        is_last = len(self._held) > INTERVALS
        if not sources and is_last:
            sources = find_sizes(self._held)
        self._enter("ending" if sources or is_last else "interval", time_s)
        self.sources = sources or self.sources
        return bool(sources)

    def _begin(self, rank: RankSample, time_s: float) -> Iterator[Inquiry]:
        if self._attempts == ATTEMPTS:
            self._enter("over", time_s)
            return
        self._attempts += 1
        self._held = []
        self._began_s = time_s
        yield from self._ask(rank, time_s)

    def _ask(self, rank: RankSample, time_s: float) -> Iterator[Inquiry]:
        """Ask for a map, and for a recording where none runs: the first, or one that somebody has ended."""
        self._has_ends = rank.step is not None
        wait_s = min(LONGEST_WAIT_S, max(LEAST_WAIT_S, DURATIONS * _duration_s(rank)))
        self._map_within_s = ANSWER_S + wait_s
        self._enter("map", time_s)
        yield Inquiry("segments", rank.pid, wait_s if self._has_ends else None)
        is_first = not self._held
        is_last = len(self._held) == INTERVALS
        if rank.memory_history != "user" and (is_first or (rank.memory_history == "off" and not is_last)):
            interval_s = max(self._interval_s(rank), INTERVAL_STEPS * _duration_s(rank))
            left_s = (INTERVALS - len(self._held)) * interval_s
            yield Inquiry("history", rank.pid, left_s + self._map_within_s)

    def _end(self, rank: RankSample, time_s: float) -> Iterator[Inquiry]:
        """Let the process rest, for good where a line is known."""
        self._rest_s = max(SHORTEST_REST_S, RESTS * (time_s - self._began_s))
        is_known = bool(self.sources) and self.sources[0].frame is not None
        self._enter("over" if is_known else "rest", time_s)
        if rank.memory_history != "user":
            yield Inquiry("history", rank.pid, is_on=False)

    def _interval_s(self, rank: RankSample) -> float:
        # What is kept every hundredth step needs a longer look.
        longer: float = 2 ** (self._attempts - 1)
        return min(LONGEST_S, longer * max(SHORTEST_S, INTERVAL_STEPS * _duration_s(rank)))

    def _is_past(self, rank: RankSample, waited_s: float) -> bool:
        is_stepping = self._steps >= INTERVAL_STEPS or not self._has_ends
        return waited_s >= self._interval_s(rank) and (is_stepping or waited_s >= LONGEST_WAIT_S)

    def _enter(self, stage: Stage, time_s: float) -> None:
        self._stage = stage
        self._since_s = time_s
        self._steps = 0


def _duration_s(rank: RankSample) -> float:
    return (rank.step.duration_s if rank.step is not None else None) or 0.0
