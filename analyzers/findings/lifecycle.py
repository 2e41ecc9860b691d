"""The life of a finding: the order of a node's samples, hysteresis in their own time, opening and closing."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Sequence, Set
from enum import Enum, auto
from typing import Generic, TypedDict, TypeVar, Unpack

import msgspec

from ...engine.model import Evidence, Finding, Sample, Severity, make_finding_id
from ...engine.model.finding import CLOSED_BECAUSE

# The order of a node's samples: which of them follow, which come late, and where there is a gap.

# Least seconds between two samples that count as a gap; ticks longer than that allow three and a half.

GAP_S = 5.0
GAP_TICKS = 3.5


class Passage(Enum):
    """How a sample relates to the newest one before it."""

    # It follows; so does the first.
    NEXT = auto()
    # It is a duplicate, out of order, or has no time: it is ignored.
    LATE = auto()
    # It follows after a time that was not observed.
    GAP = auto()
    # The clock was set back: earlier samples cannot be compared with it.
    BACK = auto()


class SampleClock:
    """The time of a node's newest sample."""

    def __init__(self) -> None:
        self.newest_s: float | None = None

    def note(self, time_s: float, interval_s: float) -> Passage:
        """Record the time of one sample and return how it relates to those before."""
        newest_s = self.newest_s
        if not math.isfinite(time_s):
            return Passage.LATE
        if newest_s is None or newest_s < time_s <= newest_s + GAP_S:
            self.newest_s = time_s
            return Passage.NEXT
        gap_s = find_gap_s(interval_s)
        if newest_s - gap_s <= time_s <= newest_s:
            return Passage.LATE
        self.newest_s = time_s
        if time_s < newest_s:
            return Passage.BACK
        return Passage.GAP if time_s - newest_s > gap_s else Passage.NEXT


class NodeClocks:
    def __init__(self) -> None:
        self._clocks: dict[str, SampleClock] = {}

    def note(self, sample: Sample) -> Passage:
        clock = self._clocks.get(sample.node)
        if clock is None:
            clock = self._clocks[sample.node] = SampleClock()
        return clock.note(sample.time_s, sample.interval_s)


def find_gap_s(interval_s: float) -> float:
    return max(GAP_S, GAP_TICKS * interval_s)


# Hysteresis in the samples' own time: a state changes only when every sample of a dwell asks for it.

# Seconds that samples must agree before a crossing begins or ends.
DWELL_S = 10.0
# Samples that must agree, however far apart they are.
DWELL_SAMPLES = 3


class Crossing:
    """Whether a value is beyond a threshold; one odd sample neither begins nor ends it."""

    def __init__(self, *, is_active: bool = False) -> None:
        self.is_active = is_active
        self.asked_since_s = 0.0
        self._asked_count = 0
        self._asked_last_s = 0.0

    @property
    def is_asked(self) -> bool:
        """Whether the newest sample asked for the other state."""
        return self._asked_count > 0

    @property
    def is_due(self) -> bool:
        """Whether the samples of a whole dwell asked for the other state."""
        return self._asked_count >= DWELL_SAMPLES and self._asked_last_s - self.asked_since_s >= DWELL_S

    def observe(self, time_s: float, *, is_beyond: bool, is_back: bool) -> None:
        """Count one sample: the value is past the threshold that begins the crossing, or past the other.

        The other one ends the crossing; between the two neither is true.
        """
        if not (is_back if self.is_active else is_beyond):
            self.restart()
            return
        if not self._asked_count:
            self.asked_since_s = time_s
        self._asked_count += 1
        self._asked_last_s = time_s

    def flip(self) -> None:
        self.is_active = not self.is_active
        self.restart()

    def restart(self) -> None:
        """Forget the samples that asked so far: what happened since is unknown."""
        self._asked_count = 0


# How a finding opens, is restated and closes. Its id consists of its subject and the time it opened: two
# processes that see the same samples open the same finding.


class Stated(TypedDict, total=False):
    """What a restated finding changes; what is left out stays as it was."""

    device_uuid: str | None
    device: str | None
    severity: Severity
    title: str
    evidence: tuple[Evidence, ...]
    method: str
    advice: str


def begin_finding(
    kind: str,
    node: str,
    time_s: float,
    *,
    device_uuid: str | None = None,
    device: str | None = None,
    about: str | None = None,
    severity: Severity = "low",
    evidence: tuple[Evidence, ...] = (),
) -> Finding:
    """Open a finding at a sample, without a title yet.

    `about` distinguishes it from others of its kind on the node; None for its device.
    """
    return Finding(
        id=make_finding_id(kind, node, device_uuid if about is None else about, time_s),
        kind=kind,
        node=node,
        device_uuid=device_uuid,
        device=device,
        severity=severity,
        title="",
        opened_s=time_s,
        updated_s=time_s,
        evidence=evidence,
    )


def restate(finding: Finding, time_s: float, **stated: Unpack[Stated]) -> Finding:
    """Update a finding with what is known at a sample; it is never updated before it opened."""
    return msgspec.structs.replace(finding, updated_s=max(time_s, finding.opened_s), **stated)


def close_finding(finding: Finding, time_s: float, because: str) -> Finding:
    """Close a finding; `because` is a clause. It never closes before it opened."""
    closed_s = max(time_s, finding.opened_s)
    evidence = (*finding.evidence, Evidence(CLOSED_BECAUSE, because))
    return msgspec.structs.replace(finding, updated_s=closed_s, closed_s=closed_s, evidence=evidence)


def reopen_finding(finding: Finding) -> Finding:
    """Return a closed finding as it was before: what it is about goes on after a pause."""
    evidence = tuple(it for it in finding.evidence if it.name != CLOSED_BECAUSE)
    return msgspec.structs.replace(finding, closed_s=None, evidence=evidence)


class OpenFinding:
    """The open finding on one subject, if any; analyzers add what they watch of it."""

    def __init__(self) -> None:
        self.finding: Finding | None = None
        # Time of the newest sample that listed the subject.
        self.seen_s = 0.0
        # Last update of an adopted finding: the predecessor judged samples up to then.
        self.settled_until_s: float | None = None
        self.absence = Crossing()

    def adopt(self, finding: Finding) -> None:
        self.finding = finding
        self.seen_s = self.settled_until_s = finding.updated_s

    def is_settled(self, time_s: float) -> bool:
        """Return whether a predecessor has judged the sample of this time."""
        return self.settled_until_s is not None and time_s <= self.settled_until_s

    def state(self, finding: Finding) -> tuple[Finding]:
        """Make this the open finding and return it, to be published."""
        self.finding = finding
        return (finding,)

    def close(self, time_s: float, because: str) -> tuple[Finding, ...]:
        """Close the finding and return it, to be published; empty where none is open."""
        finding = self.finding
        self.finding = None
        return () if finding is None else (close_finding(finding, time_s, because),)

    def observe_absence(self, time_s: float, *, is_lost: bool) -> tuple[Finding, ...]:
        """Count one sample in which the device is lost or not listed; return its finding if that closed."""
        if self.finding is None:
            return ()
        self.absence.observe(time_s, is_beyond=True, is_back=False)
        if self.is_settled(time_s) or not self.absence.is_due:
            return ()
        return self.close(time_s, "the device was lost" if is_lost else "the device is no longer listed")


# Seconds for which a subject must not be listed before its finding closes; longer ticks allow more.
ABSENT_S = 10.0
ABSENT_TICKS = 3.5

# Identifies a subject; its node comes first.
Key = TypeVar("Key", bound=tuple[str, *tuple[object, ...]])
Track = TypeVar("Track", bound=OpenFinding)
OfDevice = TypeVar("OfDevice", bound="DeviceTrack")


def find_absence_s(interval_s: float, ticks: float = ABSENT_TICKS) -> float:
    return max(ABSENT_S, ticks * interval_s)


class Tracks(Generic[Key, Track]):
    """One track for each subject, from the sample that first lists it until it is gone."""

    def __init__(self, make: Callable[[Key], Track]) -> None:
        self._make = make
        self._tracks: dict[Key, Track] = {}
        # Time of the newest sample, and how many subjects were seen in it.
        self._newest_s = -math.inf
        self._seen = 0

    def get(self, key: Key) -> Track | None:
        return self._tracks.get(key)

    def items(self, node: str | None = None) -> list[tuple[Key, Track]]:
        return [(key, track) for key, track in self._tracks.items() if node is None or key[0] == node]

    def see(self, key: Key, time_s: float) -> Track:
        """Return the track of a subject that a sample of this time lists."""
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = self._make(key)
            track.seen_s = -math.inf
        if time_s != self._newest_s:
            self._newest_s = time_s
            self._seen = 0
        if track.seen_s != time_s:
            track.seen_s = time_s
            self._seen += 1
        return track

    def adopt(self, key: Key, finding: Finding) -> None:
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = self._make(key)
        track.adopt(finding)

    def pop(self, key: Key) -> Track | None:
        """Remove the track of a subject that has ended, at once and not only once it is absent for long."""
        track = self._tracks.pop(key, None)
        if track is not None and track.seen_s == self._newest_s:
            self._seen -= 1
        return track

    def pop_absent(
        self, sample: Sample, list_keys: Callable[[Sample], Iterable[Key]], ticks: float = ABSENT_TICKS
    ) -> Iterator[tuple[Key, Track]]:
        """Remove and yield the subjects of a sample's node that were last seen more than so many ticks ago.

        `list_keys` returns the subjects that are still listed, though nothing new is known about them.
        """
        time_s = sample.time_s
        if self._seen == len(self._tracks) and self._newest_s == time_s:
            return
        absent_s = find_absence_s(sample.interval_s, ticks)
        node = sample.node
        late = [
            key for key, it in self._tracks.items() if abs(time_s - it.seen_s) >= absent_s and key[0] == node
        ]
        listed = set(list_keys(sample)) if late else set()
        for key in late:
            if key not in listed:
                yield key, self._tracks.pop(key)


class DeviceTrack(OpenFinding, ABC):
    """What is watched of one device, whose findings need values that last."""

    @abstractmethod
    def restart(self) -> None:
        """Forget everything but the open finding: the clock was set back."""


class CrossingTrack(DeviceTrack):
    """What is watched of one device by crossings, whose samples must follow without a gap."""

    def __init__(self) -> None:
        super().__init__()
        self._last_s: float | None = None

    @property
    @abstractmethod
    def crossings(self) -> tuple[Crossing, ...]: ...

    def restart(self) -> None:
        self._last_s = self.settled_until_s = None
        self._restart_crossings()

    def note_time(self, time_s: float, gap_s: float) -> None:
        """Store the time of a sample; forget what was asked before a gap."""
        if self._last_s is not None and time_s - self._last_s > gap_s:
            self._restart_crossings()
        self._last_s = time_s

    def note_absence(self, time_s: float, gap_s: float, *, is_lost: bool = False) -> tuple[Finding, ...]:
        """Count one sample that does not list the device; return its finding if that closed."""
        self.note_time(time_s, gap_s)
        for crossing in self.crossings:
            crossing.restart()
        return self.observe_absence(time_s, is_lost=is_lost)

    def _restart_crossings(self) -> None:
        for crossing in (*self.crossings, self.absence):
            crossing.restart()


class DeviceTracks(Generic[OfDevice]):
    """One track for each device of every node, also while samples do not list it and its finding is open."""

    def __init__(self, make: Callable[[], OfDevice]) -> None:
        self._make = make
        self._clocks = NodeClocks()
        self._tracks: dict[tuple[str, str], OfDevice] = {}

    def __len__(self) -> int:
        return len(self._tracks)

    def accept(self, sample: Sample) -> bool:
        """Return whether a sample is to be judged: it is neither a duplicate nor out of order."""
        passage = self._clocks.note(sample)
        if passage is Passage.BACK:
            for key, track in self._tracks.items():
                if key[0] == sample.node:
                    track.restart()
        return passage is not Passage.LATE

    def see(self, node: str, uuid: str) -> OfDevice:
        """Return the track of a device that a sample lists."""
        track = self._tracks.get((node, uuid))
        if track is None:
            track = self._tracks[node, uuid] = self._make()
        return track

    def observe_absent(
        self, node: str, present: Set[str], observe: Callable[[str, OfDevice], Iterable[Finding]]
    ) -> list[Finding]:
        """Observe the devices of a node that are not present; those without a finding are forgotten then."""
        found: list[Finding] = []
        for key in sorted(key for key in self._tracks if key[0] == node and key[1] not in present):
            track = self._tracks[key]
            found += observe(key[1], track)
            if track.finding is None:
                del self._tracks[key]
        return found

    def restore(self, findings: Sequence[Finding], kinds: Container[str]) -> None:
        """Adopt open findings of some kinds; samples up to their last update change nothing about them."""
        for finding in sorted(findings, key=lambda finding: (finding.opened_s, finding.updated_s)):
            if finding.kind in kinds and finding.is_open and finding.device_uuid is not None:
                track = self._tracks[finding.node, finding.device_uuid] = self._make()
                track.adopt(finding)


# Whether a person would notice that a value changed.


def is_visible(before: float | None, after: float | None, share: float) -> bool:
    """Return whether a value changed by more than a share of what it was, or became known or unknown."""
    if before is None or after is None:
        return before is not after
    return abs(after - before) > share * abs(before)


# Severity by the time until memory runs out; `docs/verdicts.md` explains the thresholds.

CRITICAL_S = 120.0
HIGH_S = 600.0
MEDIUM_S = 3600.0
# Least seconds to the error of each severity; beyond the last, there is no finding.
LOW_S = 21600.0

# Least growth seen, as a share of the room that is left, of the two most severe: nine in ten that took so
# much went on to an error on the tuning families (`STANDING_DOUBT` of analyzers/oom).
SEVERE_SHARE = 2.0
# The same for growth of peaks, which mostly ends at a length that fits.
SEVERE_SHARE_OF_PEAKS = 4.0

_LIMITS: tuple[tuple[float, Severity], ...] = (
    (CRITICAL_S, "critical"),
    (HIGH_S, "high"),
    (MEDIUM_S, "medium"),
    (LOW_S, "low"),
)


def grade_time_left(
    seconds: float, share: float = math.inf, severe_share: float = SEVERE_SHARE
) -> Severity | None:
    """Return the severity of so many seconds left; None where they are too many for a finding.

    `share` is the growth seen so far, as a share of the room that is left: what has grown for a short while
    may well end, so that it is not as severe yet as it would be if it were sure to go on.
    """
    severity = next((severity for limit_s, severity in _LIMITS if seconds < limit_s), None)
    return "medium" if severity in ("high", "critical") and share < severe_share else severity
