"""What a recording holds except samples, in frozen structs."""

import math
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from ..model import (
    SIMULATED_TRACE,
    Assessment,
    DeviceKind,
    DeviceSample,
    DeviceState,
    Finding,
    RankSample,
    Sample,
)

# `step` and `phase` are found in the samples when they are asked for; all others are stored as events.
EventKind = Literal[
    "recording_started",
    "recording_stopped",
    "hub_restarted",
    "source_changed",
    "samples_dropped",
    "rank_attached",
    "rank_ended",
    "oom",
    "device_state",
    "device_error",
    "step",
    "phase",
]


class ImportedFile(msgspec.Struct, frozen=True):
    """A file of another tool from which a recording was made."""

    # As given.
    path: str
    # Recognized by its content, as `series CSV`.
    format: str
    # `wall`: seconds since the epoch; `trace`: seconds since a start of its own.
    clock: Literal["wall", "trace"]
    # Values of a simulation; None if the format does not say.
    is_simulated: bool | None = None
    # What was left out or reinterpreted and why, in sentences.
    notes: tuple[str, ...] = ()


class RecordingIdentity(msgspec.Struct, frozen=True):
    # Node of the first sample; more may follow.
    node: str
    # Wall clock, seconds since the epoch.
    created_s: float
    # Version of the vramscope that made the file.
    version: str
    # From one sample to the next, as in the settings; None if the agent decided.
    interval_s: float | None = None
    memory_interval_s: float | None = None
    # Jobs of `vramscope run` that were seen, at most the first 64.
    jobs: tuple[str, ...] = ()
    # Random; the same in all files of one `--rotate`.
    series: str = ""
    # Position of the file in its series.
    number: int = 0
    # Empty if it was measured.
    imported: tuple[ImportedFile, ...] = ()


class RecordingEvent(msgspec.Struct, frozen=True):
    kind: EventKind
    # Time of the sample that shows it, in the samples' own clock; of `device_error` when the driver wrote it.
    time_s: float
    node: str
    text: str
    device_uuid: str | None = None
    pid: int | None = None
    rank: int | None = None
    step: int | None = None
    # Only of events that are counted, as dropped samples.
    count: int | None = None
    # Of `device_state`: the state from then on.
    state: DeviceState | None = None


class RecordedDevice(msgspec.Struct, frozen=True):
    id: int
    node: str
    uuid: str
    index: int
    label: str
    kind: DeviceKind
    name: str | None = None
    total_bytes: int | None = None

    @property
    def is_simulated(self) -> bool:
        """As of a `DeviceSample`."""
        return self.kind == "simulated" or (self.kind == "trace" and self.name == SIMULATED_TRACE)


class OverviewMinute(msgspec.Struct, frozen=True):
    """One device in one minute of the samples' own clock; None was not measured."""

    start_s: float
    node: str
    device_uuid: str
    samples: int
    used_min_bytes: int | None
    used_max_bytes: int | None
    allocated_max_bytes: int | None


class Told(msgspec.Struct, frozen=True):
    """Findings and assessments between one sample and the next."""

    # Number of the newest sample then; `time_s` is its time.
    tick: int
    time_s: float
    # Those that opened, changed or closed.
    findings: tuple[Finding, ...] = ()
    # All that are open; None if none has changed.
    assessments: tuple[Assessment, ...] | None = None


class Damage(msgspec.Struct, frozen=True):
    """Parts of a recording that could not be read and were left out."""

    blocks: int = 0
    # Samples of those blocks, as the index counts them.
    samples: int = 0
    # Newest samples, findings, events, minutes of the overview.
    rows: int = 0
    # The newest seconds, in a second file, could not be opened.
    tail_lost: bool = False

    @property
    def sentence(self) -> str | None:
        blocks = _count(self.blocks, "damaged block")
        rows = _count(self.rows, "damaged row")
        parts = [f"{blocks} with {_count(self.samples, 'sample')}"] if self.blocks else []
        parts += [rows] if self.rows else []
        parts += ["the newest seconds, because their file (-wal) cannot be opened"] if self.tail_lost else []
        return f"left out: {', '.join(parts)}" if parts else None


def describe_device(number: int, node: str, device: DeviceSample) -> RecordedDevice:
    return RecordedDevice(
        number,
        node,
        device.uuid,
        device.index,
        device.label,
        device.kind,
        device.name,
        device.memory.total_bytes,
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


# In every sample of a job that trains; found again when they are asked for.
FREQUENT: frozenset[EventKind] = frozenset({"step", "phase"})
_MOST_COUNT = (1 << 63) - 1
_RankKey = tuple[int, float | None]


class EventFinder:
    """Compares each sample of one node with the one before."""

    def __init__(self) -> None:
        self._before: Sample | None = None
        self._ranks: dict[_RankKey, RankSample] = {}
        self._devices: dict[str, DeviceSample] = {}

    def observe(self, sample: Sample) -> list[RecordingEvent]:
        """Return what happened between the sample before and this one."""
        found = [
            *self._compare_seqs(sample),
            *(event for rank in sample.ranks for event in self._compare_rank(sample, rank)),
            *(event for device in sample.devices for event in self._compare_device(sample, device)),
            *self._find_errors(sample),
        ]
        ranks = {_key(rank): rank for rank in sample.ranks}
        for key, rank in self._ranks.items():
            if key not in ranks and rank.state != "ended":
                found.append(_of_rank("rank_ended", sample, rank, "is no longer reported"))
        self._before = sample
        self._ranks = ranks
        self._devices = {device.uuid: device for device in sample.devices}
        return found

    def _compare_seqs(self, sample: Sample) -> Iterator[RecordingEvent]:
        before = self._before
        if before is None or sample.seq == before.seq + 1:
            return
        if sample.seq <= before.seq:
            text = "sample numbers start again: the agent was restarted"
            yield RecordingEvent("hub_restarted", sample.time_s, sample.node, text)
            return
        count = min(sample.seq - before.seq - 1, _MOST_COUNT)
        text = f"{count:,} samples never arrived"
        yield RecordingEvent("samples_dropped", sample.time_s, sample.node, text, count=count)

    def _compare_rank(self, sample: Sample, rank: RankSample) -> Iterator[RecordingEvent]:
        before = self._ranks.get(_key(rank))
        if before is None and rank.state != "ended":
            job = "" if rank.job is None else f", job {rank.job}"
            yield _of_rank("rank_attached", sample, rank, f"reports{job}")
        if rank.state == "ended" and before is not None and before.state != "ended":
            yield _of_rank("rank_ended", sample, rank, rank.reason or "has ended")
        if rank.oom_s is not None and rank.oom_s != (None if before is None else before.oom_s):
            yield _of_rank("oom", sample, rank, "ran out of memory")
        if rank.step is not None and (before is None or rank.step != before.step):
            yield _of_rank("step", sample, rank, f"ended step {rank.step.index}", step=rank.step.index)
        if rank.phase is not None and (before is None or rank.phase != before.phase):
            yield _of_rank("phase", sample, rank, rank.phase)

    def _find_errors(self, sample: Sample) -> Iterator[RecordingEvent]:
        """Yield the errors that drivers reported since the sample before, which carries those of a minute."""
        known = self._before.events if self._before is not None else ()
        labels = {device.uuid: device.label for device in sample.devices}
        for event in sample.events:
            if any(event.is_same(it) for it in known):
                continue
            label = labels.get(event.device_uuid or "")
            where = f"device {label}" if label is not None else f"a device at {event.pci_address or '—'}"
            who = "" if event.pid is None else f" (process {event.pid})"
            text = f"{where}: {event.name}{who}"
            yield RecordingEvent(
                "device_error",
                event.time_s if math.isfinite(event.time_s) else sample.time_s,
                sample.node,
                text,
                device_uuid=event.device_uuid,
                pid=event.pid,
            )

    def _compare_device(self, sample: Sample, device: DeviceSample) -> Iterator[RecordingEvent]:
        before = self._devices.get(device.uuid)
        if before is not None and device.state != before.state:
            why = "" if device.reason is None else f": {device.reason}"
            text = f"device {device.label} is {device.state}{why}"
            yield RecordingEvent(
                "device_state",
                sample.time_s,
                sample.node,
                text,
                device_uuid=device.uuid,
                state=device.state,
            )
        ooms = _count_ooms(device)
        ooms_before = 0 if before is None else _count_ooms(before)
        if ooms > ooms_before and not sample.ranks:
            text = f"device {device.label} ran out of memory"
            count = ooms - ooms_before
            yield RecordingEvent(
                "oom",
                sample.time_s,
                sample.node,
                text,
                device_uuid=device.uuid,
                step=device.step,
                count=count,
            )
        if device.step is not None and before is not None and device.step != before.step and not sample.ranks:
            text = f"device {device.label} is at step {device.step}"
            yield RecordingEvent(
                "step", sample.time_s, sample.node, text, device_uuid=device.uuid, step=device.step
            )


def _count_ooms(device: DeviceSample) -> int:
    """Errors of a device in an imported file; processes that report count their own."""
    return 0 if device.allocator is None else device.allocator.ooms or 0


def _key(rank: RankSample) -> _RankKey:
    return rank.pid, rank.started_s


def _of_rank(
    kind: EventKind, sample: Sample, rank: RankSample, text: str, *, step: int | None = None
) -> RecordingEvent:
    number = None if rank.coordinates is None else rank.coordinates.rank
    who = f"process {rank.pid}" if number is None else f"rank {number}"
    said = text if kind == "phase" else f"{who} {text}"
    return RecordingEvent(kind, sample.time_s, sample.node, said, rank.device_uuid, rank.pid, number, step)


MINUTE_S = 60.0
# Samples, least and most device used, and most allocated, in bytes.
Figures = tuple[int, int | None, int | None, int | None]
# By number of the device.
Minute = dict[int, Figures]
_DECODER = msgspec.msgpack.Decoder(dict[int, Figures])
MOST_DEVICES = 1 << 16


class OverviewBuilder:
    """Folds the samples of one node into minutes of their own clock."""

    def __init__(self) -> None:
        self._minutes: dict[int, Minute] = {}

    def add(self, sample: Sample, device_ids: Iterable[int]) -> bool:
        """Fold a sample, with the numbers of its devices; return whether it began another minute."""
        minute = minute_of(sample.time_s)
        is_other = bool(self._minutes) and minute not in self._minutes
        figures = self._minutes.setdefault(minute, {})
        for number, device in zip(device_ids, sample.devices, strict=True):
            figures[number] = merge_figures(figures.get(number), _read(device))
        return is_other

    def take(self) -> dict[int, Minute]:
        """Return and forget what was folded so far, by minute."""
        minutes = self._minutes
        self._minutes = {}
        return minutes


def minute_of(time_s: float) -> int:
    """Number of the minute, kept within what a file can hold."""
    return math.floor(max(-1e15, min(1e15, time_s)) / MINUTE_S)


def merge_minutes(old: Minute, new: Minute) -> Minute:
    return old | {number: merge_figures(old.get(number), figures) for number, figures in new.items()}


def merge_figures(old: Figures | None, new: Figures) -> Figures:
    if old is None:
        return new
    count, low, high, most = old
    more, new_low, new_high, new_most = new
    if new_low is not None and (low is None or new_low < low):
        low = new_low
    if new_high is not None and (high is None or new_high > high):
        high = new_high
    if new_most is not None and (most is None or new_most > most):
        most = new_most
    return count + more, low, high, most


def pack_minute(minute: Minute) -> bytes:
    return msgspec.msgpack.encode(minute)


def unpack_minute(data: bytes) -> Minute:
    """Raises `ValueError` if damaged."""
    minute = _DECODER.decode(data)
    if len(minute) > MOST_DEVICES:
        raise ValueError(f"{len(minute)} devices in a minute")
    return minute


def _read(device: DeviceSample) -> Figures:
    memory = device.memory
    allocator = device.allocator
    low = memory.used_bytes if memory.used_min_bytes is None else memory.used_min_bytes
    high = memory.used_bytes if memory.used_max_bytes is None else memory.used_max_bytes
    allocated = None
    if allocator is not None:
        known = allocator.allocated_max_bytes
        allocated = allocator.allocated_bytes if known is None else known
    return 1, low, high, allocated
