"""Out-of-memory errors that were met, and refusals of the device that come before them: facts, no forecast.

A process counts both since its start (`num_ooms`, `num_alloc_retries` of PyTorch's allocator); here it
matters that a number rises. `docs/verdicts.md` has the rules.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from ..engine.model import (
    AllocatorReading,
    DeviceSample,
    Evidence,
    Finding,
    RankSample,
    Sample,
    Severity,
)
from ..engine.model.finding import FOLLOWED_BY, PROCESS_ENDED, is_last_word
from ..engine.units import format_bytes
from .findings.evidence import JOB, PROCESS, STARTED, EvidenceKey, read_process
from .findings.lifecycle import begin_finding, close_finding, restate
from .findings.subjects import name_rank

# One training process: its counts of errors and retries, and the open findings on them.

OOM_MET = "oom_met"
RETRIES = "retries"
KINDS = (OOM_MET, RETRIES)

# How long nothing may happen before a finding closes; an error that ends its process is shown for as long.
CLEAN_S = 60.0
# Training steps that must end meanwhile, where they are known and the process lives.
CLEAN_STEPS = 10
# Retries since the finding opened that make it `high`.
HIGH_RETRIES = 3
# An error that is older than this when a process is first seen is not news.
FRESH_S = 5.0

LAST = EvidenceKey("last", "s")
RECORD = EvidenceKey("flight record")
STEP = EvidenceKey("step")
SIZE = EvidenceKey("request that failed", "bytes")
COUNT = EvidenceKey("count")
COUNT_BEFORE = EvidenceKey("count before")


class Sighting(NamedTuple):
    node: str
    time_s: float
    interval_s: float
    rank: RankSample
    device: str | None
    step: int | None

    @property
    def ooms(self) -> int | None:
        return (self.rank.allocator or AllocatorReading()).ooms

    @property
    def retries(self) -> int | None:
        return (self.rank.allocator or AllocatorReading()).retries


class CountTrack:
    """The counts of one process and the open findings on them."""

    def __init__(self) -> None:
        self._open: dict[str, Finding] = {}
        self._counts: dict[str, int] = {}
        self._step: int | None = None

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(self._open.values())

    def adopt(self, finding: Finding) -> None:
        self._open[finding.kind] = finding
        self._counts[finding.kind] = COUNT.read_count(finding) or 0

    def observe(self, seen: Sighting) -> Iterator[Finding]:
        """Count one sample in which the process is listed; yield what opened, changed or closed."""
        self._step = seen.step if seen.step is not None else self._step
        errors_before = self._note(OOM_MET, seen.ooms, is_news=_is_fresh(seen))
        retries_before = self._note(RETRIES, seen.retries, is_news=False)
        if errors_before is not None:
            yield self._rise(OOM_MET, errors_before, seen)
        elif retries_before is not None:  # before an error the cache is flushed in vain: that is part of it
            yield self._rise(RETRIES, retries_before, seen)
        yield from self._close_clean(seen.time_s, is_ended=seen.rank.state == "ended")

    def observe_absence(self, time_s: float) -> Iterator[Finding]:
        """Count one sample in which the process is not listed; yield what closed."""
        yield from self._close_clean(time_s, is_ended=True)

    def _note(self, kind: str, count: int | None, *, is_news: bool) -> int | None:
        """Store a count; return the one before where it rose. The first is only a starting point."""
        if count is None:
            return None
        before = self._counts.get(kind, count - 1 if is_news and count else count)
        self._counts[kind] = max(count, before)
        return before if count > before else None

    def _rise(self, kind: str, before: int, seen: Sighting) -> Finding:
        finding = self._open.get(kind) or self._begin(kind, before, seen)
        self._open[kind] = _state(finding, self._counts[kind], seen, self._step)
        return self._open[kind]

    def _begin(self, kind: str, before: int, seen: Sighting) -> Finding:
        rank = seen.rank
        return begin_finding(
            kind,
            seen.node,
            seen.time_s,
            device_uuid=rank.device_uuid,
            device=seen.device,
            about=f"{rank.device_uuid or ''}#{rank.pid}",
            severity="critical",
            evidence=(COUNT_BEFORE(before),),
        )

    def _close_clean(self, time_s: float, *, is_ended: bool) -> Iterator[Finding]:
        for kind, finding in tuple(self._open.items()):
            since_s = finding.updated_s
            if time_s < since_s:  # the clock was set back: count from here
                self._open[kind] = msgspec.structs.replace(finding, updated_s=time_s)
            elif time_s - since_s >= CLEAN_S and (is_ended or self._has_stepped(finding)):
                del self._open[kind]
                because = PROCESS_ENDED if is_ended else f"{CLEAN_S:.0f} s passed without another one"
                yield close_finding(finding, time_s, because)

    def give_way(self, pid: int, time_s: float) -> Iterator[Finding]:
        """Close open findings, because another process trains on the device."""
        for finding in self._open.values():
            closed = close_finding(finding, time_s, PROCESS_ENDED)
            evidence = (*closed.evidence, Evidence(FOLLOWED_BY, pid))
            yield msgspec.structs.replace(closed, evidence=evidence)
        self._open = {}

    def _has_stepped(self, finding: Finding) -> bool:
        """Return whether training has gone on since, as far as steps are known."""
        then = STEP.read_count(finding)
        return self._step is None or then is None or self._step - then >= CLEAN_STEPS


def _is_fresh(seen: Sighting) -> bool:
    """Return whether the newest error of a process is recent, by its own clock."""
    raised_s = seen.rank.oom_s
    return raised_s is not None and abs(seen.time_s - raised_s) <= max(FRESH_S, 2 * seen.interval_s)


def _state(finding: Finding, count: int, seen: Sighting, step: int | None) -> Finding:
    before = COUNT_BEFORE.read_count(finding)
    times = count - (before or 0)
    rank = seen.rank
    title, method, advice, severity = (
        _word_error(rank, times) if finding.kind == OOM_MET else _word_retries(rank, times)
    )
    evidence = [
        PROCESS(rank.pid),
        STARTED(rank.started_s),
        JOB(rank.job),
        COUNT(count),
        COUNT_BEFORE(before),
        LAST(seen.time_s),
        STEP(step),
    ]
    if finding.kind == OOM_MET:
        evidence += [SIZE(rank.oom_size_bytes), RECORD(rank.flight_record)]
    return restate(
        finding,
        seen.time_s,
        device_uuid=rank.device_uuid,
        device=seen.device,
        severity=severity,
        title=title,
        evidence=tuple(evidence),
        method=method,
        advice=advice,
    )


class _Words(NamedTuple):
    title: str
    method: str
    advice: str
    severity: Severity


def _word_error(rank: RankSample, times: int) -> _Words:
    size = rank.oom_size_bytes
    record = rank.flight_record
    again = "" if times == 1 else f" {times} times, at last"
    asking = "" if size is None else f" asking for {format_bytes(size)}"
    note = f" ({rank.notes[-1]})" if record is None and rank.notes else ""
    advice = (
        f"`vramscope inspect {record}` shows what used the memory and what asked for more"
        if record is not None
        else f"No flight record was written{note}: start the job with `vramscope run` to get one next time"
    )
    method = "The process had an out-of-memory error: its allocator's count of them rose"
    return _Words(f"{name_rank(rank)} ran out of memory{again}{asking}", method, advice, "critical")


def _word_retries(rank: RankSample, times: int) -> _Words:
    once = "once" if times == 1 else f"{times} times"
    method = (
        "The device refused the allocator a segment, so it freed its whole cache and tried again: its "
        "count of retries (num_alloc_retries) rose"
    )
    advice = (
        "Each retry stalls training, and the next may fail: lower the micro-batch, end other processes "
        "on the device, or try PYTORCH_ALLOC_CONF=expandable_segments:True against fragmentation"
    )
    title = f"{name_rank(rank)} is at the limit of its device: refused memory {once}, the cache was flushed"
    return _Words(title, method, advice, "high" if times >= HIGH_RETRIES else "medium")


_Key = tuple[str, int, float | None]


class OutOfMemoryAnalyzer:
    """Opens one finding per process and kind when its count rises; closes it once that is long past."""

    name = "out_of_memory"

    def __init__(self) -> None:
        self._tracks: dict[_Key, CountTrack] = {}
        self._last_words: dict[str, Finding] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        found = [*self._observe_present(sample), *self._observe_absent(sample)]
        self._last_words.update((finding.id, finding) for finding in found if is_last_word(finding))
        return [*found, *self._observe_followers(sample)]

    def restore(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            pid, started_s = read_process(finding)
            if finding.kind in KINDS and finding.is_open and pid is not None:
                track = self._tracks.setdefault((finding.node, pid, started_s), CountTrack())
                track.adopt(finding)

    def _observe_present(self, sample: Sample) -> Iterator[Finding]:
        devices = {device.uuid: device for device in sample.devices}
        for rank in sample.ranks:
            if rank.allocator is None:
                continue
            track = self._tracks.setdefault((sample.node, *_identity(rank)), CountTrack())
            yield from track.observe(_sight(sample, rank, devices.get(rank.device_uuid or "")))

    def _observe_absent(self, sample: Sample) -> Iterator[Finding]:
        present = {_identity(rank) for rank in sample.ranks if rank.allocator is not None}
        for key in [key for key in self._tracks if key[0] == sample.node and key[1:] not in present]:
            track = self._tracks[key]
            yield from track.observe_absence(sample.time_s)
            if not track.is_open:
                del self._tracks[key]

    def _observe_followers(self, sample: Sample) -> Iterator[Finding]:
        """Yield the findings about devices on which another process trains by now."""
        if not self._last_words and not any(track.is_open for track in self._tracks.values()):
            return
        labels = {device.uuid: device.label for device in sample.devices}
        living = [rank for rank in sample.ranks if rank.state != "ended"]
        known = {(sample.node, *_identity(rank)) for rank in living}
        dead = [track for key, track in self._tracks.items() if key[0] == sample.node and key not in known]
        for rank in living:
            label = labels.get(rank.device_uuid or "")
            for track in dead:
                if any(_follows(rank, label, finding) for finding in track.findings):
                    yield from track.give_way(rank.pid, sample.time_s)
            for finding in tuple(self._last_words.values()):
                if finding.node == sample.node and _follows(rank, label, finding):
                    del self._last_words[finding.id]
                    evidence = (*finding.evidence, Evidence(FOLLOWED_BY, rank.pid))
                    yield msgspec.structs.replace(finding, evidence=evidence)


def _follows(rank: RankSample, label: str | None, finding: Finding) -> bool:
    """Return whether a process began after an error, on its device or on one of the same name."""
    is_there = finding.device_uuid == rank.device_uuid or (label is not None and finding.device == label)
    return is_there and (rank.started_s is None or rank.started_s > finding.opened_s)


def _identity(rank: RankSample) -> tuple[int, float | None]:
    return rank.pid, rank.started_s


def _sight(sample: Sample, rank: RankSample, device: DeviceSample | None) -> Sighting:
    return Sighting(
        sample.node,
        sample.time_s,
        sample.interval_s,
        rank,
        None if device is None else device.label,
        _read_step(sample, rank, device),
    )


def _read_step(sample: Sample, rank: RankSample, device: DeviceSample | None) -> int | None:
    """Return the newest step of a process: that of its device may be of another process there."""
    if rank.step is not None:
        return rank.step.index
    is_shared = any(it.step is not None and it.device_uuid == rank.device_uuid for it in sample.ranks)
    return None if device is None or is_shared else device.step
