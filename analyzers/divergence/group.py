"""One group of ranks that should be alike: what each did in blocks of ten seconds, side by side."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from ...engine.model import Finding
from ..subjects import SubjectKey
from .member import Member, Standing
from .model import RankGroup, RankLevel
from .peers import GroupKey, Told
from .scales import Row, Scales

BLOCK_S = 10.0
MOST_BLOCK_S = 600.0
"""Longest block: a rank that ended no step for so long has stopped."""
ABSENT_S = 10.0
"""Seconds that a rank, or all of them, may be missing."""
APART_SHARE = 0.02
"""By how much the highest peak must be above the middle one for a rank to be called a straggler."""
GONE = "the rank is gone"


class Group:
    """The ranks of one job and stage.

    Args:
        key: Which they are.
        adopted: Ranks on which something is open from before; each is taken from here by its group.
    """

    def __init__(self, key: GroupKey, adopted: dict[SubjectKey, Member]) -> None:
        self.key = key
        self._adopted = adopted
        self.members: dict[SubjectKey, Member] = {}
        self.seen_s = float("-inf")
        self._missing_since_s: float | None = None
        self._begun_s = 0.0
        self._number: int | None = None
        self._floors: dict[SubjectKey, int] = {}
        self._peaks: dict[SubjectKey, int] = {}
        self._newest: dict[SubjectKey, Told] = {}
        self._scales = Scales()
        self._standings: tuple[Standing, ...] = ()

    def start_anew(self) -> None:
        """Forget everything but what is open."""
        self._scales.clear()
        self._number = None
        for member in self.members.values():
            member.start_anew()

    def observe(self, told: Sequence[Told], time_s: float) -> Iterator[Finding]:
        """Count one sample; yield findings that opened, changed or closed."""
        self.seen_s = time_s
        yield from self._compare_members({one.subject.key for one in told}, time_s)
        number = int(time_s // BLOCK_S)
        if self._number is None:
            self._begin_block(number, time_s)
        elif number != self._number and len(self._floors) == len(self.members):
            if len(self.members) > 1:
                yield from self._conclude(self._number, time_s)
            self._begin_block(number, time_s)
        elif time_s - self._begun_s > MOST_BLOCK_S:
            self.start_anew()
            self._begin_block(number, time_s)
        self._number = number
        for one in told:
            self._note(one)

    def end(self, time_s: float) -> Iterator[Finding]:
        """Yield what is open as closed: the whole group is gone."""
        for member in self.members.values():
            yield from member.end(time_s, "its job has ended")

    def describe(self) -> RankGroup | None:
        """Return the ranks side by side; None before the first block is over."""
        if not self._standings:
            return None
        node, job, stage = self.key
        middle = find_middle(one.peak_bytes for one in self._standings)
        highest = max(self._standings, key=lambda one: one.peak_bytes)
        is_apart = stage is not None and highest.peak_bytes > (1 + APART_SHARE) * middle > 0
        return RankGroup(
            node=node,
            job=job,
            stage=stage,
            time_s=self._standings[0].time_s,
            ranks=tuple(
                RankLevel(one.subject.key, one.subject.name, one.floor_bytes, one.peak_bytes, one.above_bytes)
                for one in self._standings
            ),
            straggler=highest.subject.name if is_apart else None,
            spread=highest.peak_bytes / middle - 1 if stage is not None and middle else None,
        )

    def _compare_members(self, present: set[SubjectKey], time_s: float) -> Iterator[Finding]:
        """Begin anew with others; of who is gone for long, close what was open."""
        joined, missing = present - self.members.keys(), self.members.keys() - present
        self._missing_since_s = (self._missing_since_s or time_s) if missing else None
        is_over = self._missing_since_s is not None and time_s - self._missing_since_s >= ABSENT_S
        if not joined and not is_over:
            return
        for key in sorted(missing, key=str) if is_over else ():
            yield from self.members.pop(key).end(time_s, GONE)
        for key in joined:
            self.members[key] = self._adopted.pop(key) if key in self._adopted else Member()
        self._missing_since_s = None
        self.start_anew()

    def _begin_block(self, number: int, time_s: float) -> None:
        self._number, self._begun_s = number, time_s
        self._floors, self._peaks = {}, {}

    def _note(self, one: Told) -> None:
        key, floor, peak = one.subject.key, one.floor_bytes, one.peak_bytes
        self._newest[key] = one
        if floor is not None and floor < self._floors.get(key, floor + 1):
            self._floors[key] = floor
        if peak is not None and peak > self._peaks.get(key, -1):
            self._peaks[key] = peak

    def _conclude(self, number: int, time_s: float) -> Iterator[Finding]:
        """Hold the ranks of a block that is over against each other."""
        standings = self._stand(time_s)
        self._standings = tuple(standings.values())
        middle = next(iter(standings.values())).middle_floor_bytes
        row = Row(middle, {key: standing.above_bytes for key, standing in standings.items()})
        moved = self._scales.add(number, row)
        is_quiet = not any(member.is_growing for member in self.members.values())
        for key, standing in standings.items():
            member = self.members[key]
            rises = (self._scales.find_rise(key, scale, standing.left_bytes) for scale in moved)
            rise = None if member.is_growing else next((found for found in rises if found is not None), None)
            yield from member.observe_growth(standing, rise, is_first=is_quiet)
            yield from member.observe_peak(standing, is_comparable=self.key[2] is not None)

    def _stand(self, time_s: float) -> dict[SubjectKey, Standing]:
        """Return where every rank stands."""
        floors = self._floors
        peaks = {key: self._peaks.get(key, floor) for key, floor in floors.items()}
        middle, ordered = find_middle(floors.values()), sorted(peaks.values())
        return {
            key: Standing(
                subject=self._newest[key].subject,
                time_s=time_s,
                floor_bytes=floor,
                peak_bytes=peaks[key],
                limit_bytes=self._newest[key].subject.limit_bytes,
                above_bytes=floor - middle,
                middle_floor_bytes=middle,
                middle_peak_bytes=_find_middle_without(ordered, peaks[key]),
                peers=len(floors) - 1,
            )
            for key, floor in sorted(floors.items(), key=lambda item: str(item[0]))
        }


def find_middle(values: Iterable[int]) -> int:
    """Return the median of one value or more, the lower of the two in the middle of an even number."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


def _find_middle_without(ordered: Sequence[int], one: int) -> int:
    """Return the middle of all but one of two sorted values or more: a group may have thousands."""
    middle = (len(ordered) - 2) // 2
    return ordered[middle + 1] if bisect_left(ordered, one) <= middle else ordered[middle]
