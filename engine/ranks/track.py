"""One training process: the reports of its probe, folded into what a tick publishes."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ..model import (
    AllocatorReading,
    DeviceSample,
    DeviceState,
    HostSample,
    MemoryReading,
    ModelStateReading,
    PhaseReading,
    ProcessReading,
    RankSample,
    RankState,
    StepReading,
)
from .messages import (
    Goodbye,
    Hello,
    ModelState,
    OutOfMemoryMet,
    PhaseRow,
    ProbeMessage,
    ReadingRow,
    Readings,
    SizeRow,
    StepRow,
    Steps,
)

# Steps of different sizes in one tick.
MOST_SIZED = 16
# Until steps with exact peaks are published again, for late analyzers: an allocator's peak rises only once.
REPEATED_AFTER_S = 10.0

# Tokens and samples.
_Size = tuple[int | None, int | None]


class Extremes:
    """Least and most of one value within the tick."""

    def __init__(self) -> None:
        self.least: int | None = None
        self.most: int | None = None

    def fold(self, value: int | None) -> None:
        """None is no reading."""
        if value is not None:
            self.least = value if self.least is None else min(value, self.least)
            self.most = value if self.most is None else max(value, self.most)


class TickSteps:
    """Folds steps as they end; of those of one size it keeps the most informative one."""

    def __init__(self) -> None:
        self.count = 0
        self.floors = Extremes()
        self.peaks = Extremes()
        # The newest step of this tick or an earlier one.
        self.newest: StepReading | None = None
        self._sized: dict[_Size, StepReading] = {}
        # The newest step of each size with an exact peak, of this tick or an earlier one.
        self._exact: dict[_Size, StepReading] = {}
        self._repeated_s: float | None = None

    def list_sized(self, now_s: float) -> tuple[StepReading, ...]:
        """Return steps of known size, one of each size, in the order in which they ended.

        Now and then steps of earlier ticks are among them, whose peaks are exact.
        """
        if self._repeated_s is None:
            self._repeated_s = now_s
        steps = self._sized
        if self._exact and now_s - self._repeated_s >= REPEATED_AFTER_S:
            self._repeated_s = now_s
            steps = {**self._sized, **self._exact}
        return tuple(sorted(steps.values(), key=lambda step: step.index))

    def fold(self, rows: Iterable[StepRow], sizes: Iterable[SizeRow] = ()) -> None:
        """Fold steps that ended. `sizes`: index, tokens and samples of those whose size is known."""
        known_sizes = {index: (tokens, batch) for index, tokens, batch in sizes}
        for row in rows:
            self.count += 1
            self.floors.fold(row[3])
            self.peaks.fold(row[4])
            size = known_sizes.get(row[0])
            self.newest = StepReading(*row) if size is None else StepReading(*row, *size)
            if size is not None and size != (None, None):
                self._store(size, self.newest)

    def begin_next(self) -> "TickSteps":
        """Return the collector of the next tick; the newest step stays."""
        following = TickSteps()
        following.newest = self.newest
        following._exact = self._exact
        following._repeated_s = self._repeated_s
        return following

    def _store(self, size: _Size, step: StepReading) -> None:
        known = self._sized.get(size)
        if known is None or _usefulness(step) >= _usefulness(known):
            self._sized[size] = step
            _forget_least(self._sized)
        if step.is_peak_exact and step.floor_bytes is not None:
            self._exact[size] = step
            _forget_least(self._exact)


def _forget_least(steps: dict[_Size, StepReading]) -> None:
    if len(steps) > MOST_SIZED:
        del steps[min(steps, key=lambda size: _usefulness(steps[size]))]


def _usefulness(step: StepReading) -> tuple[bool, bool, int]:
    """Sort key: how much a step says of what its size needs; exact peaks first, then the greatest."""
    peak = step.peak_bytes
    return step.is_peak_exact and step.floor_bytes is not None, step.floor_bytes is not None, peak or 0


# A probe sends every 0.8 s; one that has missed three turns is blocked.
STALE_AFTER_S = 3.0
MAX_TEXT_CHARS = 1024
MAX_NOTE_CHARS = 300
# A thousand processes at their bounds still fit into one message.
MAX_NAME_CHARS = 200
MAX_NOTES = 8
MAX_PHASES = 16
MAX_PHASE_CHARS = 40


# Process id and when it started, in seconds since the epoch; None if unknown.
ProcessKey = tuple[int, float | None]

_OF_CONTAINER = "its pid is from inside its container: this agent cannot see the process itself"


class Moment(NamedTuple):
    """When messages were read from their sockets."""

    monotonic_s: float
    wall_s: float
    # Seconds since the read before; nothing that arrives now has waited for longer.
    since_s: float


class RankReport(NamedTuple):
    """A rank as one tick publishes it, and the bounds of its segments within the tick."""

    sample: RankSample
    reserved_min_bytes: int | None
    reserved_max_bytes: int | None
    # Login name of the owner of its process.
    user: str | None = None


class RankTrack:
    """What is known of one process, from its first hello to its end.

    Args:
        pid: Process id in the pid namespace of the hub, or in its own if it is not visible from there.
        met_s: When the hello came, in monotonic seconds.
        is_visible: The hub can see the process.
    """

    def __init__(
        self, pid: int, hello: Hello, met_s: float, user: str | None = None, *, is_visible: bool = True
    ) -> None:
        self.pid = pid
        self.is_visible = is_visible
        self._user = user
        self.hello = _shorten(hello)
        self.met_s = met_s
        # When it ended, in monotonic seconds; None while it lives.
        self.ended_s: float | None = None
        self._reason: str | None = None
        self._heard_s = met_s
        self._row: ReadingRow | None = None
        self._readings = Readings(v=1, rows=())
        self._steps = TickSteps()
        self._phases: dict[str, PhaseReading] = {}
        self._model_state: ModelStateReading | None = None
        self._out_of_memory: OutOfMemoryMet | None = None
        self._ooms = 0
        self._begin_tick()

    @property
    def is_modelled(self) -> bool:
        """Its device exists only through it: a simulated card, or the host as a device."""
        return self.hello.is_simulated or self.hello.backend == "cpu"

    @property
    def key(self) -> ProcessKey:
        """Distinguishes processes of other pid namespaces too."""
        return self.pid, self.hello.started_s

    @property
    def end_reason(self) -> str | None:
        """Why nothing more will come; None while it lives."""
        return self._reason

    def is_of_process(self, other: "RankTrack") -> bool:
        """Return whether both are of one process; a pid alone says so only if the kernel has reported it."""
        if (self.pid, self.is_visible) != (other.pid, other.is_visible):
            return False
        started_s = self.hello.started_s
        return self.is_visible or (started_s is not None and started_s == other.hello.started_s)

    @property
    def has_reported(self) -> bool:
        """It has sent a value at least once."""
        return self._row is not None or self._steps.newest is not None or self._ooms > 0

    def fold(self, message: ProbeMessage, moment: Moment) -> None:
        """Fold one message; parts of a segment map are ignored here."""
        if isinstance(message, Readings):
            self._fold_readings(message, moment)
        elif isinstance(message, Hello):
            self.hello = _shorten(message)
        elif isinstance(message, Steps):
            self._steps.fold(message.rows, message.sizes)
            self._fold_phases(message.phases)
        elif isinstance(message, ModelState):
            self._model_state = ModelStateReading(
                message.parameters_bytes,
                message.gradients_bytes,
                message.optimizer_bytes,
                message.grad_sample_bytes,
            )
        elif isinstance(message, OutOfMemoryMet):
            self._out_of_memory = message
            self._ooms = self._ooms + 1
        elif isinstance(message, Goodbye):
            is_detached = message.reason == "detached"
            self.end(moment.monotonic_s, "its probe was detached" if is_detached else "the process has ended")

    def end(self, now_s: float, reason: str | None = None) -> None:
        """Note that nothing more will come; the first reason stays."""
        if self.ended_s is None:
            self._reason = reason or self._explain_silence()
            self.ended_s = now_s

    def resume(self, hello: Hello) -> None:
        """Continue with a process that has connected again."""
        self.hello = _shorten(hello)
        self.ended_s = None
        self._reason = None

    def take(self, now_s: float, device_uuid: str | None) -> RankReport:
        """Return the rank as the tick publishes it, and begin the next tick."""
        state, reason = self._judge(now_s)
        hello = self.hello
        row = self._row
        steps = self._steps
        oom = self._out_of_memory
        readings = self._readings
        sample = RankSample(
            pid=self.pid,
            started_s=hello.started_s,
            job=_cut(hello.job),
            command=_cut(hello.command),
            device_uuid=device_uuid,
            backend=hello.backend,
            is_simulated=hello.is_simulated,
            coordinates=hello.coordinates,
            state=state,
            reason=reason,
            age_s=None if row is None else round(max(0.0, now_s - self._heard_s), 3),
            allocator=self._read_allocator(),
            capacity_bytes=hello.capacity_bytes,
            context_bytes=hello.context_bytes if hello.is_simulated else None,
            pinned_bytes=None if row is None else row[8],
            resident_bytes=None if row is None else row[9],
            phase=_cut(readings.phase),
            step=steps.newest,
            steps_within=steps.count,
            floor_min_bytes=steps.floors.least,
            peak_max_bytes=steps.peaks.most,
            sized_steps=steps.list_sized(now_s),
            model_state=self._model_state,
            allocator_settings=_cut(hello.allocator_settings),
            memory_history=readings.memory_history,
            flight_record=None if oom is None else _cut(oom.flight_record),
            oom_s=None if oom is None else oom.time_s,
            oom_size_bytes=None if oom is None else oom.size_bytes,
            phases=tuple(self._phases.values()),
            readings_dropped=readings.dropped,
            notes=self._notes(),
        )
        report = RankReport(sample, self._reserved.least, self._reserved.most, self._user)
        self._begin_tick()
        return report

    def _begin_tick(self) -> None:
        self._allocated = Extremes()
        self._reserved = Extremes()
        self._steps = self._steps.begin_next()

    def _fold_readings(self, readings: Readings, moment: Moment) -> None:
        self._readings = readings
        for row in readings.rows:
            self._allocated.fold(row[1])
            self._reserved.fold(row[4])
        if readings.rows:
            self._row = readings.rows[-1]
            # The wall clock may have been set meanwhile; no reading lay in its socket for longer than this.
            waited_s = min(max(0.0, moment.wall_s - self._row[0]), moment.since_s)
            self._heard_s = moment.monotonic_s - waited_s

    def _fold_phases(self, rows: Iterable[PhaseRow]) -> None:
        """Keep the newest of each name; longer names are cut here, but stay separate as in the probe."""
        for row in rows:
            if row[0] in self._phases or len(self._phases) < MAX_PHASES:
                self._phases[row[0]] = PhaseReading(row[0][:MAX_PHASE_CHARS], *row[1:])

    def _read_allocator(self) -> AllocatorReading | None:
        row = self._row
        if row is None:
            return AllocatorReading(ooms=self._ooms) if self._ooms else None
        _time_s, allocated, requested, active, reserved, inactive_split, retries, ooms, *_host = row
        return AllocatorReading(
            allocated_bytes=allocated,
            allocated_max_bytes=self._allocated.most,
            reserved_bytes=reserved,
            requested_bytes=requested,
            active_bytes=active,
            inactive_split_bytes=inactive_split,
            retries=retries,
            ooms=max(ooms or 0, self._ooms) if ooms is not None or self._ooms else None,
            allocations=self._readings.allocations,
            frees=self._readings.frees,
        )

    def _judge(self, now_s: float) -> tuple[RankState, str | None]:
        if self.ended_s is not None:
            return "ended", self._reason
        is_due = self._row is not None or self.hello.backend is not None
        silent_s = now_s - self._heard_s
        if is_due and silent_s > STALE_AFTER_S:
            return "stale", f"it has not reported for {silent_s:.0f} s"
        return "ok", None

    def _explain_silence(self) -> str:
        if not self.is_visible or Path(f"/proc/{self.pid}").exists():
            return "its probe closed the connection"
        return "the process ended without notice"

    def _notes(self) -> tuple[str, ...]:
        oom = self._out_of_memory
        reasons = () if oom is None or oom.reason is None else (oom.reason,)
        unseen = () if self.is_visible else (_OF_CONTAINER,)
        return tuple(note[:MAX_NOTE_CHARS] for note in (*self.hello.notes, *reasons, *unseen)[-MAX_NOTES:])


def _shorten(hello: Hello) -> Hello:
    """Cut long names of a hello, and notes that do not fit."""
    device = hello.device
    coordinates = hello.coordinates
    if device is not None:
        names = {name: _cut(getattr(device, name), MAX_NAME_CHARS) for name in ("uuid", "name", "pci_bus_id")}
        device = msgspec.structs.replace(device, **names)
    if coordinates is not None:
        coordinates = msgspec.structs.replace(coordinates, source=_cut(coordinates.source, MAX_NAME_CHARS))
    notes = tuple(note[:MAX_NOTE_CHARS] for note in hello.notes[-MAX_NOTES:])
    return msgspec.structs.replace(hello, device=device, coordinates=coordinates, notes=notes)


def _cut(text: str | None, most: int = MAX_TEXT_CHARS) -> str | None:
    return None if text is None else text[:most]


SIMULATED_NAME = "simulated"
CPU_NAME = "host memory"


class Placed(NamedTuple):
    """A rank of this tick with its hello."""

    report: RankReport
    hello: Hello
    # Its pid is one that this hub sees, not that of its container.
    is_visible: bool = True

    @property
    def is_live(self) -> bool:
        return self.report.sample.state != "ended"


class _Held(NamedTuple):
    """Bytes of one rank on a simulated card: now, and within the tick at least and at most."""

    now: int
    least: int
    most: int


class ModelledDevices:
    """Makes simulated devices, each under one index for as long as a rank is on it.

    A device whose ranks have all ended is shown as it was when one of them lived, and marked `ended`.
    """

    def __init__(self) -> None:
        self._indices: dict[str, int] = {}
        self._shifts: dict[str | None, int] = {}
        self._last: dict[str, DeviceSample] = {}

    def make(self, placed: Sequence[Placed], cpu_uuid: str, host: HostSample | None) -> list[DeviceSample]:
        """Return the devices of these ranks that no driver knows."""
        cpu = make_cpu(cpu_uuid, placed, host)
        made = [*self.make_simulated(placed), *([] if cpu is None else [cpu])]
        by_uuid = {device.uuid: device for device in made}
        self._last = {u: last for u, last in self._last.items() if u in by_uuid}
        self._last.update((u, device) for u, device in by_uuid.items() if device.state != "ended")
        return [self._recall(device) for device in made]

    def _recall(self, device: DeviceSample) -> DeviceSample:
        """Return a device that has ended with the last memory it had."""
        last = self._last.get(device.uuid)
        if device.state != "ended" or last is None:
            return device
        memory = msgspec.structs.replace(last.memory, used_min_bytes=None, used_max_bytes=None)
        return msgspec.structs.replace(device, memory=memory)

    def make_simulated(self, placed: Sequence[Placed]) -> list[DeviceSample]:
        """Return the simulated cards of these ranks, by index."""
        groups: dict[str, list[Placed]] = {}
        for rank in placed:
            uuid = rank.report.sample.device_uuid
            if rank.hello.is_simulated and uuid is not None:
                groups.setdefault(uuid, []).append(rank)
        self._assign_indices(groups)
        made = [_make_simulated(uuid, self._indices[uuid], ranks) for uuid, ranks in groups.items()]
        return sorted(made, key=lambda device: device.index)

    def _assign_indices(self, groups: dict[str, list[Placed]]) -> None:
        """Number the cards; those that have ended get what the others leave."""
        live = {uuid: ranks for uuid, ranks in groups.items() if any(rank.is_live for rank in ranks)}
        jobs = {_job_of(ranks) for ranks in groups.values()}
        self._shifts = {job: shift for job, shift in self._shifts.items() if job in jobs}
        before = self._indices
        self._indices = {}
        self._indices.update((uuid, before[uuid]) for uuid in live if uuid in before)
        for uuid in sorted(live, key=lambda uuid: _wished_index(live[uuid])):
            self._assign_index(uuid, live[uuid])
        for uuid in sorted(groups.keys() - live.keys(), key=lambda uuid: _wished_index(groups[uuid])):
            wished = before.get(uuid, _wished_index(groups[uuid]))
            taken = set(self._indices.values())
            self._indices[uuid] = wished if wished not in taken else 1 + max(taken)

    def _assign_index(self, uuid: str, ranks: Sequence[Placed]) -> None:
        """Give a card the index it has in its job, after those of other jobs if one of them has it.

        All cards of a job are moved alike, so that they keep its order, whoever reports first.
        """
        if uuid in self._indices:
            return
        taken = set(self._indices.values())
        job = _job_of(ranks)
        wished = _wished_index(ranks)
        if job not in self._shifts:
            self._shifts[job] = 1 + max(taken) if wished in taken else 0
        index = wished + self._shifts[job]
        while index in taken:
            index += 1
        self._indices[uuid] = index


def _job_of(ranks: Sequence[Placed]) -> str | None:
    return ranks[0].hello.job


def _wished_index(ranks: Sequence[Placed]) -> int:
    return next((rank.hello.device.index for rank in ranks if rank.hello.device is not None), 0)


def make_cpu(uuid: str, placed: Sequence[Placed], host: HostSample | None) -> DeviceSample | None:
    """Return the host as the device of the ranks that train on it, or None if there is none."""
    ranks = [rank for rank in placed if rank.report.sample.device_uuid == uuid]
    if not ranks:
        return None
    host = host or HostSample()
    live = [rank for rank in ranks if rank.is_live]
    state, reason, age_s = _judge(ranks) if not live else ("ok", None, 0.0)
    return DeviceSample(
        uuid=uuid,
        index=0,
        name=CPU_NAME,
        kind="cpu",
        state=state,
        reason=reason,
        age_s=age_s,
        memory=MemoryReading(host.total_bytes, host.used_bytes, host.available_bytes, source="host"),
        utilization_percent=host.cpu_percent,
        processes=tuple(_list_process(rank, rank.report.sample.resident_bytes) for rank in live),
    )


def _make_simulated(uuid: str, index: int, ranks: Sequence[Placed]) -> DeviceSample:
    live = [rank for rank in ranks if rank.is_live]
    totals = [rank.hello.device.total_bytes for rank in ranks if rank.hello.device is not None]
    state, reason, age_s = _judge(ranks)
    return DeviceSample(
        uuid=uuid,
        index=index,
        name=SIMULATED_NAME,
        kind="simulated",
        state=state,
        reason=reason,
        age_s=age_s,
        memory=_sum_memory(next((total for total in totals if total is not None), None), live or ranks),
        processes=tuple(
            _list_process(rank, held.now if (held := _sum_held(rank)) else None) for rank in live
        ),
    )


def _judge(ranks: Sequence[Placed]) -> tuple[DeviceState, str | None, float | None]:
    """Return state, reason and age of a simulated device, which is as fresh as its ranks."""
    live = [rank for rank in ranks if rank.is_live]
    samples = [rank.report.sample for rank in live or ranks]
    ages = [sample.age_s for sample in samples if sample.age_s is not None]
    if not live:
        last = min(samples, key=lambda sample: math.inf if sample.age_s is None else sample.age_s)
        return "ended", f"process {last.pid}: {last.reason}", last.age_s
    stale = [sample for sample in samples if sample.state == "stale"]
    if stale and len(stale) == len(samples):
        return "stale", f"process {stale[0].pid}: {stale[0].reason}", min(ages, default=None)
    return "ok", None, max(ages, default=None)


def _sum_memory(total: int | None, live: Sequence[Placed]) -> MemoryReading:
    """Return what live ranks use together; None if no rank has reported.

    The most within the tick is what is certain: while one rank was at its most, the others used their least
    or more. The least is found likewise.
    """
    held = [found for rank in live if (found := _sum_held(rank)) is not None]
    if live and not held:
        return MemoryReading(total_bytes=total)
    used = sum(rank.now for rank in held)
    least = sum(rank.least for rank in held)
    most = sum(rank.most for rank in held)
    return MemoryReading(
        total_bytes=total,
        used_bytes=used,
        free_bytes=None if total is None else max(0, total - used),
        used_min_bytes=min([used, *(most - rank.most + rank.least for rank in held)]),
        used_max_bytes=max([used, *(least - rank.least + rank.most for rank in held)]),
    )


def _sum_held(rank: Placed) -> _Held | None:
    report = rank.report
    reserved = report.sample.allocator.reserved_bytes if report.sample.allocator else None
    if reserved is None:
        return None
    context = report.sample.context_bytes or 0
    least = report.reserved_min_bytes
    most = report.reserved_max_bytes
    return _Held(
        reserved + context,
        (reserved if least is None else least) + context,
        (reserved if most is None else most) + context,
    )


def _locate(rank: Placed) -> Literal["here", "outside", "gone"]:
    """Return where the process is: a pid of its container may be anybody's here, and nobody may signal it."""
    if not rank.is_live:
        return "gone"
    return "here" if rank.is_visible else "outside"


def _list_process(rank: Placed, used_bytes: int | None) -> ProcessReading:
    sample = rank.report.sample
    return ProcessReading(
        pid=sample.pid,
        user=rank.report.user,
        command=sample.command,
        used_bytes=used_bytes,
        location=_locate(rank),
        started_s=sample.started_s,
    )
