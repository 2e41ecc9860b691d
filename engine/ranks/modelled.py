"""Devices that no driver knows: modelled cards of simulated ranks, and the host where ranks train on it."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from ..model import DeviceSample, DeviceState, HostSample, MemoryReading, ProcessReading
from .messages import Hello
from .track import RankReport

SIMULATED_NAME = "simulated"
CPU_NAME = "host memory"


class Placed(NamedTuple):
    """A rank of this tick with what it said of itself."""

    report: RankReport
    hello: Hello
    is_visible: bool = True
    """Whether its pid is one that this hub sees, and not that of its container."""

    @property
    def is_live(self) -> bool:
        """Whether its process has not ended."""
        return self.report.sample.state != "ended"


class _Held(NamedTuple):
    """Bytes that one rank holds on a modelled card: now, and within the tick at least and at most."""

    now: int
    least: int
    most: int


class ModelledDevices:
    """Makes modelled devices, each under one index for as long as a rank lives on it.

    A device whose ranks have all ended is shown as it was when one of them lived, and marked `ended`.
    """

    def __init__(self) -> None:
        self._indices: dict[str, int] = {}
        self._shifts: dict[str | None, int] = {}
        self._last: dict[str, DeviceSample] = {}

    def make(self, placed: Sequence[Placed], cpu_uuid: str, host: HostSample | None) -> list[DeviceSample]:
        """Return the devices of these ranks that no driver knows.

        Args:
            cpu_uuid: Key of the device that stands for the processors.
            host: The host at this tick.
        """
        cpu = make_cpu(cpu_uuid, placed, host)
        made = [*self.make_simulated(placed), *([] if cpu is None else [cpu])]
        by_uuid = {device.uuid: device for device in made}
        self._last = {u: last for u, last in self._last.items() if u in by_uuid}
        self._last.update((u, device) for u, device in by_uuid.items() if device.state != "ended")
        return [self._recall(device) for device in made]

    def _recall(self, device: DeviceSample) -> DeviceSample:
        """Return a device that has ended with the memory it had at last."""
        last = self._last.get(device.uuid)
        if device.state != "ended" or last is None:
            return device
        memory = msgspec.structs.replace(last.memory, used_min_bytes=None, used_max_bytes=None)
        return msgspec.structs.replace(device, memory=memory)

    def make_simulated(self, placed: Sequence[Placed]) -> list[DeviceSample]:
        """Return the modelled cards of these ranks, by index."""
        groups: dict[str, list[Placed]] = {}
        for rank in placed:
            uuid = rank.report.sample.device_uuid
            if rank.hello.is_simulated and uuid is not None:
                groups.setdefault(uuid, []).append(rank)
        self._assign_indices(groups)
        made = [_make_simulated(uuid, self._indices[uuid], ranks) for uuid, ranks in groups.items()]
        return sorted(made, key=lambda device: device.index)

    def _assign_indices(self, groups: dict[str, list[Placed]]) -> None:
        """Number the cards; those that have ended take what the others leave."""
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
        """Give a card the index it has in its job, behind those of other jobs if one of them has it.

        All cards of a job are moved alike, so that they stand in its order, whoever reports first.
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
    """Return the index of a card in its job."""
    return next((rank.hello.device.index for rank in ranks if rank.hello.device is not None), 0)


def make_cpu(uuid: str, placed: Sequence[Placed], host: HostSample | None) -> DeviceSample | None:
    """Return the host as the device of the ranks that train on it, or None where none does."""
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
        processes=tuple(_list_process(rank, held.now if (held := _hold(rank)) else None) for rank in live),
    )


def _judge(ranks: Sequence[Placed]) -> tuple[DeviceState, str | None, float | None]:
    """Return state, reason and age of a modelled device, which is as fresh as its ranks."""
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
    """Return what live ranks hold together; None where none of them has told.

    The most within the tick is what is certain: while one rank stood at its most, the others held their
    least or more. The least is found likewise.
    """
    held = [found for rank in live if (found := _hold(rank)) is not None]
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


def _hold(rank: Placed) -> _Held | None:
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
