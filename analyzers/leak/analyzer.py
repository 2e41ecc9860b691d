"""Leaks of device memory (`leak`) and of host memory (`host_leak`), of a process or of a host as a whole.

The rule is the horizon ratio over floors (`analyzers/floors/episode.py`); thresholds and what they mean stand
in `docs/verdicts.md`.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from ...engine.model import Finding, Sample, make_finding_id
from ...engine.model.finding import PROCESS_ENDED
from ..closing import close_finding
from ..floors.beat import Beat, round_sector
from ..floors.episode import Episode, GrowthTrack
from .owner import HOST_LEAK, KINDS, Owner, OwnerKey, listed_keys, owners_of
from .wording import Leak, is_news, read_episode, read_key, state_leak


class LeakTrack:
    """The growth of one owner and the finding on it."""

    def __init__(self) -> None:
        self.finding: Finding | None = None
        self.seen_s = 0.0
        """Time of the newest sample that listed it."""
        self._growth = GrowthTrack()
        self._settled_until_s: float | None = None

    def adopt(self, finding: Finding) -> None:
        """Go on with a finding that a predecessor opened."""
        self.finding = finding
        self.seen_s = finding.updated_s
        self._settled_until_s = finding.updated_s

    def observe(self, owner: Owner, beat: Beat, limit_bytes: int | None) -> Iterator[Finding]:
        """Take one beat; yield what opened, changed or closed."""
        self._growth.observe(beat, limit_bytes)
        if self._settled_until_s is not None:
            if beat.time_s <= self._settled_until_s:
                return
            self._settle()
        if self._growth.ended_because is not None:
            yield from self._close(beat.time_s, self._growth.ended_because)
        elif self._growth.episode is not None and self._growth.completed:
            yield from self._state(owner, self._growth.episode, beat.time_s)

    def end(self, time_s: float) -> Iterator[Finding]:
        """Yield the finding as closed: its owner has ended."""
        yield from self._close(time_s, PROCESS_ENDED)

    def _settle(self) -> None:
        """Go on from where the predecessor was: what it opened is growth still."""
        self._settled_until_s = None
        if self.finding is not None and self._growth.episode is None:
            self._growth.episode = read_episode(self.finding)

    def _state(self, owner: Owner, episode: Episode, time_s: float) -> Iterator[Finding]:
        leak = self._measure(owner, episode, time_s)
        if self.finding is None or (leak.grown_bytes > 0 and is_news(self.finding, leak)):
            self.finding = state_leak(self.finding or _open(owner, time_s), leak)
            yield self.finding

    def _measure(self, owner: Owner, episode: Episode, time_s: float) -> Leak:
        floors = self._growth.floors
        return Leak(
            owner=owner,
            time_s=time_s,
            episode=episode,
            floor_bytes=floors.floor_bytes or episode.onset_bytes,
            limit_bytes=floors.limit_bytes,
            headroom_bytes=None if floors.limit_bytes is None else max(0.0, floors.headroom_bytes),
            steps_per_s=floors.steps_per_s,
            source=floors.last.kind if floors.last is not None else "sample",
        )

    def _close(self, time_s: float, because: str) -> Iterator[Finding]:
        finding = self.finding
        self.finding = None
        if finding is not None:
            yield close_finding(finding, time_s, because)


def _open(owner: Owner, time_s: float) -> Finding:
    about = owner.device_uuid if owner.pid is None else f"{owner.device_uuid or ''}#{owner.pid}"
    return Finding(
        id=make_finding_id(owner.kind, owner.node, about, time_s),
        kind=owner.kind,
        node=owner.node,
        device_uuid=owner.device_uuid,
        device=owner.device,
        severity="low",
        title="",
        opened_s=time_s,
        updated_s=time_s,
    )


ABSENT_S = 10.0
"""Seconds for which an owner must not be listed before its finding closes; longer ticks allow three."""
ABSENT_TICKS = 3.5


class LeakAnalyzer:
    """Open one finding per owner while its floors grow without end; close it when they stop or it ends."""

    name = "leak"

    def __init__(self) -> None:
        self._tracks: dict[OwnerKey, LeakTrack] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        """Take one sample and return the findings it opened, updated or closed."""
        found: list[Finding] = []
        for owner, beat, limit_bytes in chain(owners_of(sample), hosts_of(sample)):
            track = self._tracks.get(owner.key)
            if track is None:
                track = self._tracks[owner.key] = make_track(owner.key)
            track.seen_s = sample.time_s
            if beat is not None:
                found += track.observe(owner, beat, limit_bytes)
        found += self._observe_absent(sample)
        return found

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt open findings of these kinds; samples up to their last update change nothing about them."""
        for finding in findings:
            if finding.kind in KINDS and finding.is_open:
                key = read_key(finding)
                self._tracks.setdefault(key, make_track(key)).adopt(finding)

    def _observe_absent(self, sample: Sample) -> Iterator[Finding]:
        absent_s = max(ABSENT_S, ABSENT_TICKS * sample.interval_s)
        late = [key for key, track in self._tracks.items() if track.seen_s != sample.time_s]
        listed = listed_keys(sample) if late else set()
        for key in late:
            track = self._tracks[key]
            if key[1] != sample.node or key in listed or abs(sample.time_s - track.seen_s) < absent_s:
                continue
            yield from track.end(sample.time_s)
            del self._tracks[key]


# Page-locked buffers, files in a tmpfs or in shared memory, data loader workers and other programs belong
# to no process that reports. What those that do report hold is subtracted, so that a process that leaks is
# told by itself and not twice. Page cache is not counted: used is what the kernel could not make available
# (MemTotal - MemAvailable, proc_meminfo(5)).
SOON_S = 86_400.0
"""A host that has more time than this is left alone: nobody can be named, and much may happen on it."""


class HostTrack(LeakTrack):
    """The growth of a host, told only where it would be full within a day."""

    def _state(self, owner: Owner, episode: Episode, time_s: float) -> Iterator[Finding]:
        left_s = self._measure(owner, episode, time_s).time_left_s
        if self.finding is not None or (left_s is not None and left_s < SOON_S):
            yield from super()._state(owner, episode, time_s)


def hosts_of(sample: Sample) -> Iterator[tuple[Owner, Beat, int]]:
    """Yield the host where its memory is known, with its beat and the most that it can reach in bytes."""
    host = sample.host
    if host is None or host.used_bytes is None or host.total_bytes is None:
        return
    explained = sum(
        [round_sector(rank.resident_bytes or 0) for rank in sample.ranks if rank.state != "ended"]
    )
    rest = max(0, round_sector(host.used_bytes) - explained)
    owner = Owner(HOST_LEAK, sample.node, None, None, None, None, "the host")
    beat = Beat(sample.time_s, rest, rest, 0, None, "host")
    yield owner, beat, max(rest, host.total_bytes - explained)


def make_track(key: OwnerKey) -> LeakTrack:
    """Return a track for an owner that was not seen before."""
    kind, _, _, pid, _ = key
    return HostTrack() if kind == HOST_LEAK and pid is None else LeakTrack()
