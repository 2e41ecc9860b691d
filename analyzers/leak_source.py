"""Names the line behind growth: asks the process when a leak or forecast opens, and adds the answer to it."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeVar

import msgspec

from ..engine.model import Evidence, Finding, RankSample, Sample, SegmentMap
from ..engine.model.finding import Inquiry
from ..engine.model.memory_snapshot import Frame
from ..engine.model.sample import ALLOCATED
from .findings.evidence import GROWN, SOURCE, SOURCE_FILE, EvidenceKey, read_process
from .segments import find_caller, find_headline, keep_python

# The search for the source of one leak: allocations recorded for a while, and maps compared meanwhile.

# From one map to the next: a leak of every step then shows as so many blocks.

INTERVAL_STEPS = 4
SHORTEST_S = 3.0
# Length of an interval.
LONGEST_S = 10.0
# In one attempt. It ends with the first map by which a source is known, after two at least.
INTERVALS = 4
# After recording, it rests for so many times as long: one part of seven costs 1 % where recording slows a
# step by 7 %.
RESTS = 6
SHORTEST_REST_S = 10.0
ATTEMPTS = 6
# Seconds to wait for a map, in addition to the wait for the end of a step.
ANSWER_S = 15.0
LEAST_WAIT_S = 5.0
# Most seconds to wait for the end of a step.
LONGEST_WAIT_S = 60.0
# Steps to wait for the end of one: steps differ.
DURATIONS = 2.5

Stage = Literal["rest", "map", "interval", "ending", "over"]


class SourceSearch:
    """Searches for the source of one leak, at most `ATTEMPTS` times, each time twice as long.

    While the process records its allocations it is asked for maps, at ends of steps where it makes steps.
    What has grown from map to map is the source. A process that records itself is only asked for maps.
    """

    def __init__(self) -> None:
        self.sources: tuple[LeakSource, ...] = ()
        self._stage: Stage = "rest"
        self._since_s: float | None = None
        self._maps: list[Holdings] = []
        self._steps = 0
        self._attempts = 0
        self._began_s = 0.0
        self._rest_s = 0.0
        self._has_ends = False
        self._map_within_s = ANSWER_S

    @property
    def is_over(self) -> bool:
        return self._stage == "over"

    @property
    def awaits_map(self) -> bool:
        return self._stage == "map"

    @property
    def is_recording(self) -> bool:
        """Whether the process was asked to record and not yet to stop."""
        return self._stage in ("map", "interval", "ending")

    def follow(self, rank: RankSample, time_s: float) -> Iterator[Inquiry]:
        """Observe the process in one sample; yield what should be asked now."""
        self._steps += rank.steps_within
        waited_s = time_s - (self._since_s if self._since_s is not None else time_s)
        if self._stage == "rest" and (self._since_s is None or waited_s >= self._rest_s):
            yield from self._begin(rank, time_s)
        elif self._stage == "interval" and waited_s >= self._interval_s(rank):
            is_stepping = self._steps >= INTERVAL_STEPS or not self._has_ends
            if is_stepping or waited_s >= LONGEST_WAIT_S:
                yield from self._ask(rank, time_s)
        elif self._stage == "ending" or (self._stage == "map" and waited_s >= self._map_within_s):
            yield from self._end(rank, time_s)

    def take_map(self, segment_map: SegmentMap, time_s: float) -> bool:
        """Add a map of the process, whoever asked for it; return whether it names a source."""
        is_older = bool(self._maps) and segment_map.time_s <= self._maps[-1].time_s
        if not self.awaits_map or is_older or (self._has_ends and not segment_map.is_at_step_end):
            return False
        self._maps.append(measure_holdings(segment_map))
        sources = find_sources(self._maps)
        is_last = len(self._maps) > INTERVALS
        if not sources and is_last:
            sources = find_sizes(self._maps)
        self._enter("ending" if sources or is_last else "interval", time_s)
        self.sources = sources or self.sources
        return bool(sources)

    def _begin(self, rank: RankSample, time_s: float) -> Iterator[Inquiry]:
        if self._attempts == ATTEMPTS:
            self._enter("over", time_s)
            return
        self._attempts += 1
        self._maps = []
        self._began_s = time_s
        yield from self._ask(rank, time_s)

    def _ask(self, rank: RankSample, time_s: float) -> Iterator[Inquiry]:
        """Ask for a map, and for a recording where none runs: the first, or one that somebody has ended."""
        self._has_ends = rank.step is not None
        wait_s = min(LONGEST_WAIT_S, max(LEAST_WAIT_S, DURATIONS * _duration_s(rank)))
        self._map_within_s = ANSWER_S + wait_s
        self._enter("map", time_s)
        yield Inquiry("segments", rank.pid, wait_s if self._has_ends else None)
        is_first = not self._maps
        is_last = len(self._maps) == INTERVALS
        if rank.memory_history != "user" and (is_first or (rank.memory_history == "off" and not is_last)):
            interval_s = max(self._interval_s(rank), INTERVAL_STEPS * _duration_s(rank))
            left_s = (INTERVALS - len(self._maps)) * interval_s
            yield Inquiry("history", rank.pid, left_s + self._map_within_s)

    def _end(self, rank: RankSample, time_s: float) -> Iterator[Inquiry]:
        """Let the process rest, for good where a line is known."""
        self._rest_s = max(SHORTEST_REST_S, RESTS * (time_s - self._began_s))
        is_known = bool(self.sources) and self.sources[0].frame is not None
        self._enter("over" if is_known else "rest", time_s)
        if rank.memory_history != "user":
            yield Inquiry("history", rank.pid, is_on=False)

    def _interval_s(self, rank: RankSample) -> float:
        # A leak of every hundredth step needs a longer look.
        longer: float = 2 ** (self._attempts - 1)
        return min(LONGEST_S, longer * max(SHORTEST_S, INTERVAL_STEPS * _duration_s(rank)))

    def _enter(self, stage: Stage, time_s: float) -> None:
        self._stage = stage
        self._since_s = time_s
        self._steps = 0


def _duration_s(rank: RankSample) -> float:
    return (rank.step.duration_s if rank.step is not None else None) or 0.0


# Live bytes in one segment map, by the place that allocated them and by size of block.


class Held(NamedTuple):
    size_bytes: int
    blocks: int

    def plus(self, other: "Held") -> "Held":
        return Held(self.size_bytes + other.size_bytes, self.blocks + other.blocks)

    def minus(self, other: "Held") -> "Held":
        return Held(self.size_bytes - other.size_bytes, self.blocks - other.blocks)


NOTHING = Held(0, 0)


class Place(NamedTuple):
    """Where blocks were allocated."""

    # Who allocated them, or called the model that did.
    caller: Frame
    # The innermost line outside of PyTorch.
    innermost: Frame


class Holdings(NamedTuple):
    """Live bytes of one map as a whole."""

    time_s: float
    is_at_step_end: bool
    # None where the map leaves segments out.
    live_bytes: int | None
    # Only of blocks whose allocation was recorded.
    by_place: dict[Place, Held]
    by_size: dict[int, Held]


def measure_holdings(segment_map: SegmentMap) -> Holdings:
    by_size = _by_size(segment_map)
    live_bytes = sum(held.size_bytes for held in by_size.values())
    return Holdings(
        time_s=segment_map.time_s,
        is_at_step_end=segment_map.is_at_step_end,
        live_bytes=None if segment_map.segments_left_out else live_bytes,
        by_place=_by_place(segment_map),
        by_size=by_size,
    )


def _by_place(segment_map: SegmentMap) -> dict[Place, Held]:
    found: dict[Place, Held] = {}
    for live in segment_map.live_stacks:
        frames = keep_python(tuple(Frame(*entry) for entry in live.stack))
        caller = find_caller(frames)
        innermost = find_headline(frames)
        if caller is not None and innermost is not None:
            place = Place(caller, innermost)
            found[place] = found.get(place, NOTHING).plus(Held(live.size_bytes, live.count))
    return found


def _by_size(segment_map: SegmentMap) -> dict[int, Held]:
    counts = Counter(
        size for segment in segment_map.segments for size, state in segment.blocks if state == ALLOCATED
    )
    return {size: Held(size * count, count) for size, count in counts.items()}


# What has grown over some segment maps of one process: by the stack that allocated it, else by block size.

# RESIN (OSDI 2022) names a leak in the same way: snapshots on suspicion, and what is in the later one only,
# grouped by stack. Maps are made between two steps, where what serves a step only has gone; and what is
# filled once, as a cache, or emptied again is no leak: a source grows from map to map.

Key = TypeVar("Key", bound=Hashable)

MOST_SOURCES = 3
# A stack, or size, with a smaller share of what has grown is not named.
LEAST_SHARE = 0.2
# Share of all that has grown; where the sources explain less of it, the leak is something else.
LEAST_EXPLAINED = 0.5
# Share of its gain that a place may have gained from one map to the next: else it was filled once.
MOST_OF_ONE = 0.8
# Share of its gain that it may have lost again.
MOST_LOST = 0.2
LEAST_MAPS = 3
# Where maps were made anywhere within steps, what serves a step comes and goes: a chance rise is likely.
LEAST_MAPS_WITHIN_STEPS = 5


class LeakSource(NamedTuple):
    """One place that keeps memory, or one size of block where the place is not known."""

    # What was kept between the maps.
    size_bytes: int
    # In how many blocks.
    blocks: int
    # Share of all that has grown.
    share: float
    # Who allocated it, or called the model that did; None where no allocation was recorded.
    frame: Frame | None
    # The innermost line outside of PyTorch that allocated most of it.
    allocated_at: Frame | None = None

    @property
    def words(self) -> str:
        """Its name in a sentence: `evaluate() at train.py:212`, `blocks of 2,097,152 bytes`."""
        if self.frame is None:
            return f"blocks of {self.size_bytes // self.blocks:,} bytes"
        name = self.frame.name
        where = f"{self.frame.filename.rpartition('/')[2]}:{self.frame.line}"
        return where if name.startswith("<") else f"{name}() at {where}"


class _Growth(NamedTuple):
    """What one place, or size, gained from map to map; less what it lost."""

    gains: tuple[Held, ...]
    # The innermost line that allocated most of it.
    line: Frame | None = None

    @property
    def whole(self) -> Held:
        return Held(sum(gain.size_bytes for gain in self.gains), sum(gain.blocks for gain in self.gains))

    @property
    def has_grown(self) -> bool:
        return self.whole.size_bytes > 0 and self.whole.blocks > 0

    def is_steady(self, *, has_step_ends: bool) -> bool:
        """Return whether it grew again and again, and gave hardly anything back."""
        gained = [max(0, gain.blocks) for gain in self.gains]
        if not has_step_ends and not all(gained):
            return False
        has_spread = max(gained) <= MOST_OF_ONE * sum(gained)
        return has_spread and self.whole.blocks >= (1 - MOST_LOST) * sum(gained)

    def plus(self, other: "_Growth") -> "_Growth":
        """Add another's; the line stays."""
        return _Growth(tuple(a.plus(b) for a, b in zip(self.gains, other.gains, strict=True)), self.line)


def find_sources(maps: Sequence[Holdings]) -> tuple[LeakSource, ...]:
    """Return the places that have grown most over maps of one process, the largest first; at most three.

    Args:
        maps: In order of time, with allocations recorded between them.

    Returns:
        Empty where there are fewer than three maps (five where they are not of ends of steps), where nothing
        grew from map to map, or where what did is less than half of all that has grown.
    """
    if not _are_enough(maps):
        return ()
    by_place = _grow([held.by_place for held in maps])
    callers: dict[Frame, _Growth] = {}
    for place, grown in sorted(by_place.items(), key=lambda item: -item[1].whole.size_bytes):
        known = callers.get(place.caller)
        callers[place.caller] = grown._replace(line=place.innermost) if known is None else known.plus(grown)
    return _rank(list(callers.items()), maps)


def find_sizes(maps: Sequence[Holdings]) -> tuple[LeakSource, ...]:
    """Return the sizes of block that have grown most, as `find_sources` does; for where no place is known."""
    if not _are_enough(maps):
        return ()
    grown = _grow([held.by_size for held in maps])
    return _rank([(None, growth) for growth in grown.values()], maps)


def _are_enough(maps: Sequence[Holdings]) -> bool:
    return len(maps) >= (LEAST_MAPS if _have_step_ends(maps) else LEAST_MAPS_WITHIN_STEPS)


def _have_step_ends(maps: Sequence[Holdings]) -> bool:
    return all(held.is_at_step_end for held in maps)


def _grow(maps: Sequence[dict[Key, Held]]) -> dict[Key, _Growth]:
    """Return what has grown from the first map to the last, with every change between."""
    grown: dict[Key, _Growth] = {}
    for key in maps[-1]:
        held = [each.get(key, NOTHING) for each in maps]
        growth = _Growth(tuple(after.minus(before) for before, after in pairwise(held)))
        if growth.has_grown:
            grown[key] = growth
    return grown


def _rank(grown: list[tuple[Frame | None, _Growth]], maps: Sequence[Holdings]) -> tuple[LeakSource, ...]:
    """Return the steady ones that are a large share of all that has grown, whether its place is known
    or not.
    """
    first_bytes = maps[0].live_bytes
    last_bytes = maps[-1].live_bytes
    live_bytes = 0 if first_bytes is None or last_bytes is None else last_bytes - first_bytes
    total_bytes = max(live_bytes, sum(growth.whole.size_bytes for _, growth in grown))
    ordered = sorted(grown, key=lambda item: -item[1].whole.size_bytes)
    sources = [
        LeakSource(*growth.whole, growth.whole.size_bytes / total_bytes, caller, growth.line)
        for caller, growth in ordered
        if growth.is_steady(has_step_ends=_have_step_ends(maps))
    ]
    named = tuple(source for source in sources if source.share >= LEAST_SHARE)[:MOST_SOURCES]
    return named if sum(source.share for source in named) >= LEAST_EXPLAINED else ()


_LINE = EvidenceKey("allocated at")
_KEPT = EvidenceKey("kept while watched", "bytes")
_SHARE = EvidenceKey("share of the growth", "%")
_OURS = tuple(key.name for key in (SOURCE, SOURCE_FILE, _LINE, _KEPT, _SHARE))
_LEAK = "leak"
_OOM = "oom"

# Node and process id.
_Process = tuple[str, int]


class LeakSourceInquirer:
    """Follows each process that reports and whose floor grows, until the source of that is named.

    Its forecast mostly opens before its leak; both are about the same growth.
    """

    name = "leak_source"

    def __init__(self) -> None:
        self._searches: dict[_Process, SourceSearch] = {}
        # Open findings on growth, by id.
        self._growing: dict[_Process, set[str]] = {}
        # Until other growth of the process begins.
        self._named: dict[_Process, tuple[Evidence, ...]] = {}
        # Processes that record for growth that has ended.
        self._abandoned: list[_Process] = []
        self._time_s = 0.0

    def restore(self, findings: Sequence[Finding]) -> None:
        """Learn from open findings of a predecessor which line growth comes from."""
        for finding in findings:
            ours = tuple(each for each in finding.evidence if each.name in _OURS)
            process = _process_of(finding)
            if ours and finding.is_open and process is not None:
                self._named[process] = ours
                self._growing.setdefault(process, set()).add(finding.id)

    def follow(self, sample: Sample, findings: Sequence[Finding]) -> Sequence[Inquiry]:
        """Observe one sample and its findings; return what should be asked now."""
        self._time_s = sample.time_s
        for finding in findings:
            self._note(finding)
        abandoned = self._abandoned
        self._abandoned = []
        stops = [Inquiry("history", pid, is_on=False) for _, pid in abandoned]
        if not self._searches:
            return stops
        living = {rank.pid: rank for rank in sample.ranks if rank.state == "ok"}
        return [*stops, *self._ask(sample.node, living)]

    def awaits_map(self, node: str, pid: int) -> bool:
        search = self._searches.get((node, pid))
        return search is not None and search.awaits_map

    def take_map(self, segment_map: SegmentMap) -> None:
        process = segment_map.node, segment_map.pid
        search = self._searches.get(process)
        if search is not None and search.take_map(segment_map, self._time_s):
            self._named[process] = tuple(_list_evidence(search.sources))

    def enrich(self, finding: Finding) -> Finding:
        """Return a finding with the source of its leak; the same object where none is known."""
        process = _process_of(finding)
        named = None if process is None else self._named.get(process)
        if named is None or SOURCE.read(finding) is not None:
            return finding
        words = str(named[0].value)
        return msgspec.structs.replace(
            finding,
            title=f"{finding.title}, kept by {words}",
            evidence=(*finding.evidence, *named),
            advice=f"Look at {words}: what it allocates outlives its step. {finding.advice}".rstrip(),
        )

    def _note(self, finding: Finding) -> None:
        process = _process_of(finding)
        if process is None:
            return
        if finding.is_open:
            if process not in self._growing:
                self._named.pop(process, None)
            self._growing.setdefault(process, set()).add(finding.id)
            if process not in self._named:
                self._searches.setdefault(process, SourceSearch())
            return
        growing = self._growing.get(process, set())
        growing.discard(finding.id)
        if not growing and self._growing.pop(process, None) is not None:
            search = self._searches.pop(process, None)
            if search is not None and search.is_recording:
                self._abandoned.append(process)

    def _ask(self, node: str, living: dict[int, RankSample]) -> Iterator[Inquiry]:
        for process, search in self._searches.items():
            rank = living.get(process[1])
            if process[0] == node and rank is not None and not search.is_over:
                yield from search.follow(rank, self._time_s)


def _process_of(finding: Finding) -> _Process | None:
    """Return node and process of a finding about a floor that grows; None for any other.

    A forecast that rests on peaks, or on rare steps, has nothing that was kept.
    """
    is_growth = finding.kind == _LEAK or (finding.kind == _OOM and GROWN.read_number(finding) is not None)
    pid, _ = read_process(finding) if is_growth else (None, None)
    return None if pid is None else (finding.node, pid)


def _list_evidence(sources: Sequence[LeakSource]) -> Iterator[Evidence]:
    yield SOURCE(" and ".join(source.words for source in sources[:2]))
    frame = sources[0].frame
    line = sources[0].allocated_at
    if frame is not None:
        yield SOURCE_FILE(f"{frame.filename}:{frame.line}")
    if line is not None and line != frame:
        yield _LINE(f"{line.filename}:{line.line}")
    yield _KEPT(sources[0].size_bytes)
    yield _SHARE(round(100 * sources[0].share))
