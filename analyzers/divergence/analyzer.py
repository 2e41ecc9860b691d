"""Divergence between ranks of one job: who grows first, and who is the straggler in memory.

Ranks of one pipeline stage do the same work on other data, so that their floors and peaks are alike. Stages
differ by nature and are not compared; where stages are unknown, growth is compared and levels are not.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from ...engine.model import SEVERITIES, Evidence, Finding, RankCoordinates, Sample, Severity
from ...engine.units import format_bytes
from ..findings.evidence import FLOOR, JOB, PROCESS, STARTED, EvidenceKey, read_subject_key
from ..findings.lifecycle import (
    ABSENT_S,
    Crossing,
    NodeClocks,
    OpenFinding,
    Passage,
    begin_finding,
    find_absence_s,
    restate,
)
from ..findings.subjects import Subject, SubjectKey, subjects_of
from .scales import BAND_BYTES, BAND_SHARE, Rise, Row, Scales

# Ranks that should be alike, compared. None is unmeasured.


class RankLevel(msgspec.Struct, frozen=True):
    """One rank among its peers, over the newest block of time in which all of them ended a step."""

    key: SubjectKey
    name: str
    # Least live bytes at step ends.
    floor_bytes: int
    # Most live bytes.
    peak_bytes: int
    # Its floor less the middle floor of the group.
    above_bytes: int


class RankGroup(msgspec.Struct, frozen=True):
    """Ranks of one job that should be alike: of one pipeline stage, or of a job without known stages."""

    node: str
    job: str
    # Pipeline stage; None where unknown, and levels may differ by nature.
    stage: int | None
    time_s: float
    ranks: tuple[RankLevel, ...]
    # Name of the rank with the highest peak; None where stages are unknown or all are alike.
    straggler: str | None
    # How far that peak is above the middle one, as a share of the latter.
    spread: float | None


# Texts of a finding on a rank that is unlike its peers.

KIND = "divergence"


class Words(NamedTuple):
    title: str
    method: str
    advice: str


def word_growth(name: str, peers: int, grown_bytes: int, *, is_first: bool) -> Words:
    """Word a finding on a rank that grows away from its peers; `is_first` within its group."""
    others = "its peer" if peers == 1 else f"its {peers} peers"
    first = " first" if is_first and peers > 1 else ""
    return Words(
        f"{name} grows away from {others}{first}: +{format_bytes(grown_bytes)} at step ends, and rising",
        "Floors of ranks that should be alike (live bytes at step ends): this rank's distance from the "
        "median rose over six spans without falling or slowing, three times as far as its peers moved",
        f"Look for what only {name} does or keeps: logging, evaluation, saving, or its own data",
    )


def word_straggler(name: str, peers: int, peak_bytes: int, middle_bytes: int, limit_bytes: int) -> Words:
    """Word a finding on a rank whose peaks limit its group; `limit_bytes` is what its allocator can
    reserve.
    """
    others = "its peer reaches" if peers == 1 else f"its {peers} peers reach"
    return Words(
        f"{name} limits its group: it peaks at {format_bytes(peak_bytes)} of {format_bytes(limit_bytes)}, "
        f"where {others} {format_bytes(middle_bytes)}",
        "Peaks of the ranks of one pipeline stage: the same rank was highest, near its limit and far "
        "above the median, in every block of ten minutes",
        f"Give {name} less work: balance its batch lengths, or what only it computes and keeps",
    )


# Share of the limit that is left above its peak, below which growth is `medium`, and `high`.
SOON_SHARE = 0.10
NOW_SHARE = 0.05
# Share of the limit that the peaks of a straggler reach, and below which it is no longer one.
LIMITED_SHARE = 0.92
EASED_SHARE = 0.88
# Share of the limit by which its peaks are above the middle one, and below which it is no longer a straggler.
AHEAD_SHARE = 0.10
NEAR_SHARE = 0.07
STRAGGLING_S = 600.0

_ABOVE = EvidenceKey("above the middle", "bytes")
_BEFORE = EvidenceKey("above it before", "bytes")
_PEAK = EvidenceKey("peak", "bytes")
_MIDDLE = EvidenceKey("middle peak", "bytes")
_LIMIT = EvidenceKey("limit", "bytes")
# Whether a rank grew or straggles: one can do both.
WHAT = EvidenceKey("what")
GROWTH = "growth"
_STRAGGLER = "straggler"


@dataclass(slots=True)
class Standing:
    """One rank and its group over a block of time."""

    subject: Subject
    time_s: float
    floor_bytes: int
    peak_bytes: int
    limit_bytes: int | None
    # Its floor less the middle one of the group.
    above_bytes: int
    middle_floor_bytes: int
    # Middle peak of its peers.
    middle_peak_bytes: int
    peers: int

    @property
    def band_bytes(self) -> float:
        return max(BAND_SHARE * self.middle_floor_bytes, BAND_BYTES)

    @property
    def left_bytes(self) -> int | None:
        return None if self.limit_bytes is None else max(0, self.limit_bytes - self.peak_bytes)


class Member:
    """One rank, block after block."""

    def __init__(self) -> None:
        self._growth = OpenFinding()
        self._straggling = OpenFinding()
        self._back = Crossing()
        self._since_s: float | None = None
        self._settled_until_s = float("-inf")

    @property
    def is_growing(self) -> bool:
        """Whether it is known to grow apart."""
        return self._growth.finding is not None

    def adopt(self, finding: Finding) -> None:
        (self._straggling if WHAT.read(finding) == _STRAGGLER else self._growth).adopt(finding)
        self._settled_until_s = max(self._settled_until_s, finding.updated_s)

    def restart(self) -> None:
        self._back.restart()
        self._since_s = None

    def observe_growth(self, now: Standing, rise: Rise | None, *, is_first: bool) -> Sequence[Finding]:
        """Count one block; return the finding on growth if it changed."""
        finding = self._growth.finding
        if now.time_s <= self._settled_until_s:
            return ()
        if finding is None:
            if rise is None:
                return ()
            opened = _state_growth(_begin(now, GROWTH), now, rise.start_bytes, is_first=is_first)
            return self._growth.state(opened)
        before = _BEFORE.read_count(finding) or 0
        grown = now.above_bytes - before
        self._back.observe(now.time_s, is_beyond=grown < now.band_bytes / 2, is_back=False)
        if self._back.is_due:
            self._back = Crossing()
            return self._growth.close(now.time_s, "it is back among its peers")
        is_more_severe = SEVERITIES.index(_judge_growth(now)) > SEVERITIES.index(finding.severity)
        if grown >= 2 * ((_ABOVE.read_count(finding) or 0) - before) or is_more_severe:
            was_first = " first:" in finding.title
            return self._growth.state(_state_growth(finding, now, before, is_first=was_first))
        return ()

    def observe_peak(self, now: Standing, *, is_comparable: bool) -> Sequence[Finding]:
        """Count one block; return the finding on a straggler if it changed."""
        limit = now.limit_bytes
        if not limit or not is_comparable or now.time_s <= self._settled_until_s:
            return ()
        ahead = now.peak_bytes - now.middle_peak_bytes
        is_limited = now.peak_bytes >= LIMITED_SHARE * limit and ahead >= AHEAD_SHARE * limit
        is_eased = now.peak_bytes < EASED_SHARE * limit or ahead < NEAR_SHARE * limit
        if not (is_limited if self._straggling.finding is None else is_eased):
            self._since_s = None
            return ()
        if self._since_s is None:
            self._since_s = now.time_s
        if now.time_s - self._since_s < STRAGGLING_S:
            return ()
        self._since_s = None
        if self._straggling.finding is None:
            return self._straggling.state(_state_straggler(_begin(now, _STRAGGLER), now))
        return self._straggling.close(now.time_s, "its peaks are among those of its peers")

    def end(self, time_s: float, because: str) -> Sequence[Finding]:
        return *self._growth.close(time_s, because), *self._straggling.close(time_s, because)


def _state_growth(finding: Finding, now: Standing, before: int, *, is_first: bool) -> Finding:
    grown = max(0, now.above_bytes - before)
    words = word_growth(now.subject.name, now.peers, grown, is_first=is_first)
    evidence = _ABOVE(now.above_bytes), _BEFORE(before), FLOOR(now.floor_bytes), _LIMIT(now.limit_bytes)
    return _state(finding, now, GROWTH, words, _judge_growth(now), evidence)


def _state_straggler(finding: Finding, now: Standing) -> Finding:
    limit = now.limit_bytes or 0
    words = word_straggler(now.subject.name, now.peers, now.peak_bytes, now.middle_peak_bytes, limit)
    evidence = _PEAK(now.peak_bytes), _MIDDLE(now.middle_peak_bytes), _LIMIT(limit)
    return _state(finding, now, _STRAGGLER, words, "low", evidence)


def _judge_growth(now: Standing) -> Severity:
    """Return the severity of growth by the room that is left above the peak, where that is known."""
    left = now.left_bytes
    limit = now.limit_bytes
    if left is None or not limit or left >= SOON_SHARE * limit:
        return "low"
    return "high" if left < NOW_SHARE * limit else "medium"


def _begin(now: Standing, what: str) -> Finding:
    subject = now.subject
    pid = None if subject.rank is None else subject.rank.pid
    about = f"{subject.device_uuid or ''}#{pid or ''}#{what}"
    return begin_finding(KIND, subject.sample.node, now.time_s, device_uuid=subject.device_uuid, about=about)


def _state(
    finding: Finding,
    now: Standing,
    what: str,
    words: Words,
    severity: Severity,
    evidence: tuple[Evidence, ...],
) -> Finding:
    rank = now.subject.rank
    who = () if rank is None else (PROCESS(rank.pid), STARTED(rank.started_s), JOB(rank.job))
    return restate(
        finding,
        now.time_s,
        device=now.subject.device_label,
        severity=severity,
        title=words.title,
        evidence=(*who, WHAT(what), *evidence),
        method=words.method,
        advice=words.advice,
    )


# Node, job, and pipeline stage where it is known.
GroupKey = tuple[str, str, int | None]


class Told(NamedTuple):
    """What one rank reported in one sample."""

    subject: Subject
    # Its rank in the world.
    number: int
    # None in a sample in which no step of it ended.
    floor_bytes: int | None
    peak_bytes: int | None


def find_peers(sample: Sample) -> dict[GroupKey, list[Told]]:
    """Return the groups of one sample with at least one rank each.

    A process belongs to its job, or, where it was attached to, to those that report the same world size.
    Recorded ranks of one sample are one job. Devices whose rank is unknown have no peers; nor have
    processes that claim the same rank, since those are of different jobs.
    """
    groups: dict[GroupKey, list[Told]] = {}
    for subject in subjects_of(sample):
        coordinates = _find_coordinates(subject)
        job = None if coordinates is None else _find_job(subject, coordinates)
        if coordinates is not None and job is not None:
            groups.setdefault((sample.node, job, coordinates.pp), []).append(_read(subject, coordinates.rank))
    return {key: told for key, told in groups.items() if len({one.number for one in told}) == len(told)}


def has_peers(sample: Sample) -> bool:
    """Return whether there can be a group of two at all."""
    return len(sample.ranks) > 1 or (len(sample.devices) > 1 and sample.devices[0].rank is not None)


def _find_coordinates(subject: Subject) -> RankCoordinates | None:
    if subject.rank is not None:
        return subject.rank.coordinates
    return None if subject.device is None else subject.device.rank


def _find_job(subject: Subject, coordinates: RankCoordinates) -> str | None:
    if subject.rank is None:
        return "trace"
    if subject.rank.job is not None:
        return subject.rank.job
    world = coordinates.world_size
    return None if world is None or world < 2 else f"world of {world}"


def _read(subject: Subject, number: int) -> Told:
    allocator = subject.allocator
    rank = subject.rank
    instant = allocator.allocated_bytes
    most = allocator.allocated_max_bytes
    if rank is not None and rank.step is not None:
        floor = rank.floor_min_bytes
        peak = rank.peak_max_bytes
    else:
        floor = instant
        peak = None
    known = [value for value in (peak, most, instant) if value is not None]
    return Told(subject, number, _round(floor), max((_round(value) or 0 for value in known), default=None))


def _round(value_bytes: int | None) -> int | None:
    """Round bytes up to 512, as the history ring keeps those of a process."""
    return None if value_bytes is None else -(-value_bytes // 512) * 512


BLOCK_S = 10.0
# Longest block: a rank that ended no step for so long has stopped.
MOST_BLOCK_S = 600.0
# Ticks for which a rank, or all of them, may be missing.
ABSENT_TICKS = 3.0
# By how much the highest peak must be above the middle one for a rank to be called a straggler.
APART_SHARE = 0.02
GONE = "the rank is gone"


class Group:
    """The ranks of one job and stage; those in `adopted` continue findings of a predecessor and are moved
    here.
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

    def restart(self) -> None:
        self._scales.clear()
        self._number = None
        for member in self.members.values():
            member.restart()

    def observe(self, told: Sequence[Told], time_s: float) -> Iterator[Finding]:
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
            self.restart()
            self._begin_block(number, time_s)
        self._number = number
        for one in told:
            self._note(one)

    def end(self, time_s: float) -> Iterator[Finding]:
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
        """Restart with new members; close the findings of those that are gone for long."""
        joined = present - self.members.keys()
        missing = self.members.keys() - present
        self._missing_since_s = (self._missing_since_s or time_s) if missing else None
        is_over = self._missing_since_s is not None and time_s - self._missing_since_s >= ABSENT_S
        if not joined and not is_over:
            return
        for key in sorted(missing, key=str) if is_over else ():
            yield from self.members.pop(key).end(time_s, GONE)
        for key in joined:
            self.members[key] = self._adopted.pop(key) if key in self._adopted else Member()
        self._missing_since_s = None
        self.restart()

    def _begin_block(self, number: int, time_s: float) -> None:
        self._number = number
        self._begun_s = time_s
        self._floors = {}
        self._peaks = {}

    def _note(self, one: Told) -> None:
        key = one.subject.key
        floor = one.floor_bytes
        peak = one.peak_bytes
        self._newest[key] = one
        if floor is not None and floor < self._floors.get(key, floor + 1):
            self._floors[key] = floor
        if peak is not None and peak > self._peaks.get(key, -1):
            self._peaks[key] = peak

    def _conclude(self, number: int, time_s: float) -> Iterator[Finding]:
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
        floors = self._floors
        peaks = {key: self._peaks.get(key, floor) for key, floor in floors.items()}
        middle = find_middle(floors.values())
        ordered = sorted(peaks.values())
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


class DivergenceAnalyzer:
    """Opens one finding per rank that grows away from its peers, and per rank that limits them."""

    name = KIND

    def __init__(self) -> None:
        self._clocks = NodeClocks()
        self._groups: dict[GroupKey, Group] = {}
        # Ranks on which a predecessor had findings, until their group is seen.
        self._adopted: dict[SubjectKey, Member] = {}
        self._adopted_s: float | None = None

    def observe(self, sample: Sample) -> Sequence[Finding]:
        passage = self._clocks.note(sample)
        if passage is Passage.LATE:
            return ()
        if passage is not Passage.NEXT:
            for key, group in self._groups.items():
                if key[0] == sample.node:
                    group.restart()
                    group.seen_s = min(group.seen_s, sample.time_s)
        found: list[Finding] = []
        if has_peers(sample):
            for key, told in find_peers(sample).items():
                if len(told) > 1 or key in self._groups:
                    found.extend(self._group(key).observe(told, sample.time_s))
        if self._groups or self._adopted:
            found.extend(self._forget_absent(sample))
        return found

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt open findings of this kind; samples up to their last update change nothing about them."""
        for finding in findings:
            if finding.kind != KIND or not finding.is_open:
                continue
            key = read_subject_key(finding)
            self._adopted.setdefault(key, Member()).adopt(finding)

    def groups(self) -> tuple[RankGroup, ...]:
        """Return the groups with a finished block of time, their ranks side by side."""
        described = (group.describe() for group in self._groups.values())
        return tuple(group for group in described if group is not None)

    def _group(self, key: GroupKey) -> Group:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key, self._adopted)
        return group

    def _forget_absent(self, sample: Sample) -> list[Finding]:
        now_s = sample.time_s
        absent_s = find_absence_s(sample.interval_s, ABSENT_TICKS)
        found = list[Finding]()
        for key in [key for key in self._groups if key[0] == sample.node]:
            if now_s - self._groups[key].seen_s >= absent_s:
                found.extend(self._groups.pop(key).end(now_s))
        if self._adopted and self._adopted_s is None:
            self._adopted_s = now_s
        if self._adopted_s is not None and now_s - self._adopted_s >= absent_s:
            for subject in [subject for subject in self._adopted if subject[0] == sample.node]:
                found.extend(self._adopted.pop(subject).end(now_s, GONE))
        return found
