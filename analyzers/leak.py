"""Leaks of device memory (`leak`) and of host memory (`host_leak`), of a process or of a host as a whole.

The rule is the horizon ratio over floors (`analyzers/floors/episode.py`); `docs/verdicts.md` explains the
thresholds.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from ..engine.model import Evidence, Finding, HostSample, RankSample, Sample, Severity
from ..engine.model.finding import PROCESS_ENDED
from ..engine.units import GIB, format_bytes
from .findings.evidence import (
    CAPACITY,
    FLOOR,
    FLOOR_AT_ONSET,
    GROWN,
    ONSET,
    ONSET_STEP,
    PROCESS,
    RATE,
    RATE_PER_STEP,
    STARTED,
    TIME_LEFT,
    WINDOW,
    EvidenceKey,
    read_process,
)
from .findings.lifecycle import OpenFinding, Tracks, begin_finding, grade_time_left, reopen_finding, restate
from .findings.subjects import Subject, name_rank, subjects_of
from .floors.blocks import Beat, BeatKind, read_beat, round_sector
from .floors.episode import Episode, GrowthTrack, resume_growth

# Who leaks: a process, a device or a host that is known as a whole, or the host memory of a process.

LEAK = "leak"
HOST_LEAK = "host_leak"
KINDS = (LEAK, HOST_LEAK)

# Room to grow of a process that holds less; one that holds more has as much room as it holds.
HOST_HEADROOM_BYTES = 8 * GIB

# Node, kind of finding, UUID of the device, process id and start time.
OwnerKey = tuple[str, str, str | None, int | None, float | None]


class Owner(NamedTuple):
    """The subject of a finding, from its newest sample."""

    kind: str
    node: str
    device_uuid: str | None
    # Label of the device.
    device: str | None
    pid: int | None
    started_s: float | None
    # What it is named after; None for the host as a whole.
    named: Subject | RankSample | None

    @property
    def name(self) -> str:
        if self.named is None:
            return "the host"
        return name_rank(self.named) if isinstance(self.named, RankSample) else self.named.name

    @property
    def key(self) -> OwnerKey:
        return self.node, self.kind, self.device_uuid, self.pid, self.started_s

    @property
    def is_host(self) -> bool:
        return self.kind == HOST_LEAK and self.pid is None


def owners_of(sample: Sample) -> Iterator[tuple[Owner, Beat | None, int | None]]:
    """Yield the owners in a sample, with the beat, if there is one, and the most that it can reach in
    bytes.
    """
    for subject in subjects_of(sample):
        rank = subject.rank
        device = subject.device
        yield (
            Owner(
                LEAK,
                sample.node,
                subject.device_uuid,
                None if device is None else device.label,
                None if rank is None else rank.pid,
                None if rank is None else rank.started_s,
                subject,
            ),
            read_beat(subject),
            subject.limit_bytes,
        )
    labels = {device.uuid: device.label for device in sample.devices}
    for rank in sample.ranks:
        if rank.state == "ok" and rank.resident_bytes is not None:
            owner = Owner(
                HOST_LEAK,
                sample.node,
                rank.device_uuid,
                labels.get(rank.device_uuid or ""),
                rank.pid,
                rank.started_s,
                rank,
            )
            resident = round_sector(rank.resident_bytes)
            step = None if rank.step is None else rank.step.index
            beat = Beat(sample.time_s, resident, resident, rank.steps_within, step, "host")
            yield owner, beat, _host_limit(sample.host, rank)


def listed_keys(sample: Sample) -> set[OwnerKey]:
    """Return who is listed and has not ended, though nothing new may be known about them."""
    node = sample.node
    found: set[OwnerKey] = {(node, HOST_LEAK, None, None, None)}
    found |= {
        (node, LEAK, device.uuid, None, None)
        for device in sample.devices
        if device.state not in ("lost", "ended")
    }
    for rank in sample.ranks:
        if rank.state != "ended":
            found |= {(node, kind, rank.device_uuid, rank.pid, rank.started_s) for kind in KINDS}
    return found


def _host_limit(host: HostSample | None, rank: RankSample) -> int:
    resident = rank.resident_bytes or 0
    usual = resident + max(resident, HOST_HEADROOM_BYTES)
    if host is None or host.total_bytes is None or host.used_bytes is None:
        return usual
    return min(usual, resident + max(0, host.total_bytes - host.used_bytes))


# What a leak finding says: title, evidence, method and advice.

_MEMORY = EvidenceKey("memory")

# Seconds left to out of memory below which a leak is medium at least; nearer it is as severe as a forecast.
MEDIUM_S = 86_400.0
# Change of growth or rate, as a share, that a person would notice.
NEWS_SHARE = 0.25

_MEASURES: dict[BeatKind, str] = {
    "step": "allocated, least of each step",
    "sample": "allocated",
    "device": "device used",
    "host": "resident host memory",
}


# What growth on a device must have taken, as a share of the headroom left, to be called a leak; until then a
# forecast says what grows. Over more than so many seconds, proportionally less. Within the first minutes, in
# which results of an evaluation pile up and caches fill, it must be nearly as much as is left.
NAMED_SHARE = 0.2
NAMED_LASTING_S = 2400.0
NAMED_EARLY_SHARE = 0.75
NAMED_EARLY_S = 480.0


class Leak(NamedTuple):
    """What is known about one leak at one moment."""

    owner: Owner
    time_s: float
    episode: Episode
    floor_bytes: int
    limit_bytes: int | None
    headroom_bytes: float | None
    steps_per_s: float | None
    source: BeatKind

    @property
    def grown_bytes(self) -> int:
        return self.floor_bytes - self.episode.onset_bytes

    @property
    def time_left_s(self) -> float | None:
        """Seconds until the headroom is gone at this rate; None without a known limit."""
        if self.headroom_bytes is None or self.source == "device":
            return None
        return self.headroom_bytes / self.episode.bytes_per_s

    @property
    def severity(self) -> Severity:
        left_s = self.time_left_s
        if left_s is None:
            return "low"
        severity = grade_time_left(left_s, self.grown_bytes / max(1.0, self.headroom_bytes or 0.0))
        if severity is None or severity == "low":
            return "medium" if left_s < MEDIUM_S else "low"
        return severity


def state_leak(finding: Finding, leak: Leak) -> Finding:
    return restate(
        finding,
        leak.time_s,
        device=leak.owner.device,
        severity=leak.severity,
        title=_word_title(leak),
        evidence=_list_evidence(leak),
        method=(
            f"Floors of equal blocks over {leak.episode.window_s:.0f} s rose steadily without slowing "
            "down, by enough of the headroom to forecast when it runs out (horizon ratio); the rate is "
            "the median of all slopes (Theil-Sen)"
        ),
        advice=_advise(leak),
    )


def is_news(finding: Finding, leak: Leak) -> bool:
    """Return whether a person would notice what has changed since a finding was last stated."""
    grown = GROWN.read_number(finding) or 0.0
    rate = RATE.read_number(finding) or 0.0
    is_grown = abs(leak.grown_bytes - grown) > NEWS_SHARE * max(grown, 1.0)
    return (
        finding.severity != leak.severity
        or is_grown
        or abs(leak.episode.bytes_per_s - rate) > NEWS_SHARE * rate
    )


def read_key(finding: Finding) -> OwnerKey:
    return finding.node, finding.kind, finding.device_uuid, *read_process(finding)


def _per_step(leak: Leak) -> float | None:
    return None if not leak.steps_per_s else leak.episode.bytes_per_s / leak.steps_per_s


def _word_title(leak: Leak) -> str:
    if leak.owner.is_host:
        return word_host_title(leak.episode.bytes_per_s, leak.grown_bytes)
    per_step = _per_step(leak)
    pace = (
        f"{format_bytes(round(per_step))} a step"
        if per_step is not None
        else f"{format_bytes(round(leak.episode.bytes_per_s * 60))} a minute"
    )
    since = f" since step {leak.episode.onset_step:,}" if leak.episode.onset_step is not None else ""
    what = " of host memory" if leak.owner.kind == HOST_LEAK else ""
    what = " of device memory" if leak.source == "device" else what
    return f"{leak.owner.name} leaks {pace}{what}{since} ({format_bytes(leak.grown_bytes)})"


def _list_evidence(leak: Leak) -> tuple[Evidence, ...]:
    owner = leak.owner
    per_step = _per_step(leak)
    left_s = leak.time_left_s
    return (
        PROCESS(owner.pid),
        STARTED(owner.started_s),
        _MEMORY(HOST_MEASURE if owner.is_host else _MEASURES[leak.source]),
        RATE(leak.episode.bytes_per_s),
        RATE_PER_STEP(None if per_step is None else round(per_step)),
        GROWN(leak.grown_bytes),
        ONSET(leak.episode.onset_s),
        ONSET_STEP(leak.episode.onset_step),
        FLOOR_AT_ONSET(leak.episode.onset_bytes),
        FLOOR(leak.floor_bytes),
        CAPACITY(leak.limit_bytes),
        TIME_LEFT(None if left_s is None else round(left_s)),
        WINDOW(leak.episode.window_s),
    )


def _advise(leak: Leak) -> str:
    if leak.owner.is_host:
        return HOST_ADVICE
    if leak.source == "host":
        return (
            "Look for lists that keep batches or results, data loader workers whose Python objects are "
            "copied on write, and unbounded caches"
        )
    if leak.source == "device":
        return (
            "Device memory alone does not show who uses it: start the job with `vramscope run` to see "
            "the floor of each step"
        )
    return (
        "Look for tensors that outlive their step: losses kept without .item() or .detach(), hooks and "
        "lists that keep activations, evaluation without torch.no_grad(), an unbounded cache, "
        "per-sample gradients that are kept"
    )


class LeakTrack(OpenFinding):
    """The growth of one owner and the finding on it."""

    def __init__(self) -> None:
        super().__init__()
        self._growth = GrowthTrack()
        # The finding that closed as its growth stopped.
        self._paused: Finding | None = None

    def observe(self, owner: Owner, beat: Beat, limit_bytes: int | None) -> Sequence[Finding]:
        growth = self._growth
        growth.observe(beat, limit_bytes)
        if self.is_settled(beat.time_s):
            return ()
        resume_growth(self, growth)
        if growth.ended_because is not None:
            closed = self.close(beat.time_s, growth.ended_because)
            self._paused = closed[0] if closed else None
            return closed
        if growth.has_resumed and growth.episode is not None and self._paused is not None:
            # The same leak after a pause is the same finding.
            paused = reopen_finding(self._paused)
            self._paused = None
            return self.state(state_leak(paused, self._measure(owner, growth.episode, beat.time_s)))
        if growth.episode is not None and growth.completed:
            return self._state_leak(self._measure(owner, growth.episode, beat.time_s))
        return ()

    def _state_leak(self, leak: Leak) -> Sequence[Finding]:
        if self.finding is None and not self._is_named(leak):
            return ()
        if self.finding is None or (leak.grown_bytes > 0 and is_news(self.finding, leak)):
            return self.state(state_leak(self.finding or _open(leak.owner, leak.time_s), leak))
        return ()

    def _is_named(self, leak: Leak) -> bool:
        """Return whether growth is called a leak by now: a cache that fills would have slowed down."""
        lasted_s = leak.time_s - leak.episode.onset_s
        is_early = lasted_s < NAMED_EARLY_S
        least = NAMED_EARLY_SHARE if is_early else NAMED_SHARE * min(1.0, NAMED_LASTING_S / lasted_s)
        if leak.owner.kind == LEAK and leak.grown_bytes < least * (leak.headroom_bytes or 0.0):
            return False
        return not self._growth.is_slowing

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


def _open(owner: Owner, time_s: float) -> Finding:
    return begin_finding(
        owner.kind,
        owner.node,
        time_s,
        device_uuid=owner.device_uuid,
        device=owner.device,
        about=owner.device_uuid if owner.pid is None else f"{owner.device_uuid or ''}#{owner.pid}",
    )


class LeakAnalyzer:
    """Opens one finding per owner while its floors grow without end; closes it when they stop or it ends."""

    name = "leak"

    def __init__(self) -> None:
        self._tracks = Tracks(make_track)

    def observe(self, sample: Sample) -> Sequence[Finding]:
        found: list[Finding] = []
        for owner, beat, limit_bytes in chain(owners_of(sample), hosts_of(sample)):
            track = self._tracks.see(owner.key, sample.time_s)
            if beat is not None:
                found += track.observe(owner, beat, limit_bytes)
        for rank in sample.ranks:
            if rank.state == "ended":
                keys = [(sample.node, kind, rank.device_uuid, rank.pid, rank.started_s) for kind in KINDS]
                ended = [track for track in map(self._tracks.pop, keys) if track is not None]
                found += chain.from_iterable(it.close(sample.time_s, PROCESS_ENDED) for it in ended)
        for _, track in self._tracks.pop_absent(sample, listed_keys):
            found += track.close(sample.time_s, PROCESS_ENDED)
        return found

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt open findings of these kinds; samples up to their last update change nothing about them."""
        for finding in findings:
            if finding.kind in KINDS and finding.is_open:
                self._tracks.adopt(read_key(finding), finding)


# Page-locked buffers, files in a tmpfs or in shared memory, data loader workers and other programs belong to
# no process that reports. What reporting processes hold is subtracted, so that a process that leaks is
# reported by itself and not twice. Page cache is not counted: used is what the kernel could not make
# available (MemTotal - MemAvailable, proc_meminfo(5)).

# A host that has more time than this is left alone: nobody can be named, and much may happen on it.
SOON_S = 86_400.0


class HostTrack(LeakTrack):
    """The growth of a host, reported only where it would be full within a day."""

    def _state_leak(self, leak: Leak) -> Sequence[Finding]:
        if self.finding is not None or (leak.time_left_s is not None and leak.time_left_s < SOON_S):
            return super()._state_leak(leak)
        return ()


def hosts_of(sample: Sample) -> Iterator[tuple[Owner, Beat, int]]:
    """Yield the host where its memory is known, with its beat and the most that it can reach in bytes."""
    host = sample.host
    if host is None or host.used_bytes is None or host.total_bytes is None:
        return
    explained = sum(
        [round_sector(rank.resident_bytes or 0) for rank in sample.ranks if rank.state != "ended"]
    )
    rest = max(0, round_sector(host.used_bytes) - explained)
    owner = Owner(HOST_LEAK, sample.node, None, None, None, None, None)
    beat = Beat(sample.time_s, rest, rest, 0, None, "host")
    yield owner, beat, max(rest, host.total_bytes - explained)


def make_track(key: OwnerKey) -> LeakTrack:
    _, kind, _, pid, _ = key
    return HostTrack() if kind == HOST_LEAK and pid is None else LeakTrack()


# Texts on the memory of a host as a whole, where they differ from those on a process.

HOST_MEASURE = "host memory in use, less that of the reporting processes"
HOST_ADVICE = (
    "Look for files that pile up in /dev/shm or another tmpfs (df -h -t tmpfs), page-locked buffers "
    "that are never freed, data loader workers whose Python objects are copied on write, and other "
    "programs (ps aux --sort -rss)"
)


def word_host_title(bytes_per_s: float, grown_bytes: int) -> str:
    pace = format_bytes(round(bytes_per_s * 60))
    grown = format_bytes(grown_bytes)
    return f"host memory fills by {pace} a minute, outside all reporting processes ({grown})"
