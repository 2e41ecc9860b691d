"""Devices that no driver knows: modelled cards of simulated ranks, and the host where ranks train on it."""

from collections.abc import Sequence
from typing import NamedTuple

from ..model import DeviceSample, DeviceState, HostSample, MemoryReading, ProcessReading
from .messages import Hello
from .track import RankReport

SIMULATED_NAME = "simulated"
CPU_NAME = "host memory"


class Placed(NamedTuple):
    """A rank of this tick with what it said of itself."""

    report: RankReport
    hello: Hello

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
    """Makes modelled devices, each under one index for as long as a rank lives on it."""

    def __init__(self) -> None:
        self._indices: dict[str, int] = {}

    def make_simulated(self, placed: Sequence[Placed]) -> list[DeviceSample]:
        """Return the modelled cards of these ranks, by index."""
        groups: dict[str, list[Placed]] = {}
        for rank in placed:
            uuid = rank.report.sample.device_uuid
            if rank.hello.is_simulated and uuid is not None:
                groups.setdefault(uuid, []).append(rank)
        self._indices = {uuid: index for uuid, index in self._indices.items() if uuid in groups}
        for uuid, ranks in groups.items():
            self._assign_index(uuid, next((r.hello.device.index for r in ranks if r.hello.device), 0))
        made = [_make_simulated(uuid, self._indices[uuid], ranks) for uuid, ranks in groups.items()]
        return sorted(made, key=lambda device: device.index)

    def _assign_index(self, uuid: str, wished: int) -> None:
        """Give a card the index it has in its job, or the next that no card of another job has."""
        if uuid in self._indices:
            return
        taken = set(self._indices.values())
        while wished in taken:
            wished += 1
        self._indices[uuid] = wished


def make_cpu(uuid: str, placed: Sequence[Placed], host: HostSample | None) -> DeviceSample | None:
    """Return the host as the device of the ranks that train on it, or None where none does."""
    ranks = [rank for rank in placed if rank.report.sample.device_uuid == uuid]
    if not ranks:
        return None
    host = host or HostSample()
    return DeviceSample(
        uuid=uuid,
        index=0,
        name=CPU_NAME,
        kind="cpu",
        age_s=0.0,
        memory=MemoryReading(host.total_bytes, host.used_bytes, host.available_bytes, source="host"),
        utilization_percent=host.cpu_percent,
        processes=tuple(_list_process(rank, rank.report.sample.resident_bytes) for rank in ranks),
    )


def _make_simulated(uuid: str, index: int, ranks: Sequence[Placed]) -> DeviceSample:
    live = [rank for rank in ranks if rank.is_live]
    totals = [rank.hello.device.total_bytes for rank in ranks if rank.hello.device is not None]
    state, reason, age_s = _judge(live)
    return DeviceSample(
        uuid=uuid,
        index=index,
        name=SIMULATED_NAME,
        kind="simulated",
        state=state,
        reason=reason,
        age_s=age_s,
        memory=_sum_memory(next((total for total in totals if total is not None), None), live),
        processes=tuple(_list_process(rank, held.now if (held := _hold(rank)) else None) for rank in live),
    )


def _judge(live: Sequence[Placed]) -> tuple[DeviceState, str | None, float | None]:
    """Return state, reason and age of a modelled card, which is as fresh as its ranks."""
    samples = [rank.report.sample for rank in live]
    ages = [sample.age_s for sample in samples if sample.age_s is not None]
    stale = [sample for sample in samples if sample.state == "stale"]
    if stale and len(stale) == len(samples):
        return "stale", f"process {stale[0].pid}: {stale[0].reason}", min(ages, default=None)
    return "ok", None, max(ages, default=None if live else 0.0)


def _sum_memory(total: int | None, live: Sequence[Placed]) -> MemoryReading:
    """Return what live ranks hold together; None where none of them has told.

    The most within the tick is what is certain: while one rank stood at its most, the others held their
    least or more. The least is found likewise.
    """
    held = [found for rank in live if (found := _hold(rank)) is not None]
    if live and not held:
        return MemoryReading(total_bytes=total)
    used = sum(rank.now for rank in held)
    least, most = sum(rank.least for rank in held), sum(rank.most for rank in held)
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
    least, most = report.reserved_min_bytes, report.reserved_max_bytes
    return _Held(
        reserved + context,
        (reserved if least is None else least) + context,
        (reserved if most is None else most) + context,
    )


def _list_process(rank: Placed, used_bytes: int | None) -> ProcessReading:
    sample = rank.report.sample
    return ProcessReading(
        pid=sample.pid,
        command=sample.command,
        used_bytes=used_bytes,
        location="here" if rank.is_live else "gone",
        started_s=sample.started_s,
    )
