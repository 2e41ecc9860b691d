"""From the newest snapshot of a node to its devices in a fleet."""

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

from ...engine.bus.snapshot import Snapshot
from ...engine.model import Assessment, DeviceSample, Finding, RankCoordinates, RankSample, Sample
from ..device_names import name_device
from ..risk import LEVELS, assess_risk, doubt_silent
from .model import FleetDevice

Description = tuple[object, ...]
_GRAVE = LEVELS.index("medium")
_READ_DEVICE = attrgetter("uuid", "index", "name", "kind", "mig_index", "state", "memory.total_bytes", "rank")
_READ_RANK = attrgetter("device_uuid", "pid", "started_s", "state", "job", "coordinates")


def read_devices(snapshot: Snapshot) -> tuple[FleetDevice, ...]:
    """Return the devices of a node; of a lost one as they were, with a risk only where it was grave."""
    sample = snapshot.sample
    if sample is None:
        return ()
    ranks: dict[str | None, list[RankSample]] = {}
    for rank in sample.ranks:
        ranks.setdefault(rank.device_uuid, []).append(rank)
    known: dict[str | None, list[Assessment]] = {}
    for assessment in doubt_silent(sample, snapshot.assessments):
        known.setdefault(assessment.device_uuid, []).append(assessment)
    return tuple(
        _read_device(device, snapshot, sample, ranks.get(device.uuid, ()), known.get(device.uuid, ()))
        for device in sample.devices
    )


class NodeDevices(NamedTuple):
    """The devices of a node, and what they were read of."""

    snapshot: Snapshot
    devices: tuple[FleetDevice, ...]
    description: Description
    """What was read of its sample beside bytes that are used."""


def read_node(now: Snapshot, before: NodeDevices | None = None) -> NodeDevices:
    """Return the devices of a node, as `read_devices`.

    From one sample to the next nothing mostly changes but how much is used: then no more is read.

    Args:
        now: The newest snapshot.
        before: What was read of an earlier one; None to read all.
    """
    description = _describe(now)
    if before is None or description != before.description or not _is_alike(before.snapshot, now):
        return NodeDevices(now, read_devices(now), description)
    if now.sample is None or any(it.oom_in_s is not None for it in before.devices):
        return NodeDevices(now, read_devices(now), description)
    used = [device.memory.used_bytes for device in now.sample.devices]
    devices = [
        known if known.used_bytes == used_bytes else replace(known, used_bytes=used_bytes)
        for known, used_bytes in zip(before.devices, used, strict=True)
    ]
    return NodeDevices(now, tuple(devices), description)


def _is_alike(before: Snapshot, now: Snapshot) -> bool:
    """Return whether nothing was found or assessed since."""
    is_told = before.findings is now.findings and before.assessments is now.assessments
    return is_told and before.connection == now.connection and before.node == now.node


def _describe(snapshot: Snapshot) -> Description:
    """Return what is read of a sample beside bytes that are used, and ages, which are told of what is old."""
    sample = snapshot.sample
    if sample is None:
        return ()
    devices = sample.devices
    allocators = [
        it.allocator and (it.allocator.allocated_bytes is None, it.allocator.reserved_bytes is None)
        for it in devices
    ]
    ages = [it.age_s for it in devices if it.state != "ok"]
    facts = [*map(_READ_DEVICE, devices)], [*map(_READ_RANK, sample.ranks)]
    return sample.node, *facts, allocators, ages


def _read_device(
    device: DeviceSample,
    snapshot: Snapshot,
    sample: Sample,
    ranks: Sequence[RankSample],
    known: Sequence[Assessment],
) -> FleetDevice:
    """Return one device, of its ranks and of what is assessed of them."""
    risk = assess_risk(device, snapshot.findings, known, sample.ranks)
    is_lost = snapshot.connection == "lost"
    is_doubted = is_lost and LEVELS.index(risk.level) < _GRAVE
    place = _find_place(device, ranks)
    chances = [it.probability for it in known if it.probability is not None]
    return FleetDevice(
        node=snapshot.node or sample.node,
        uuid=device.uuid,
        label=device.label,
        name=name_device(device),
        model=device.name,
        state=device.state,
        is_old=is_lost or device.state in ("lost", "stale"),
        is_node_lost=is_lost,
        is_simulated=device.is_simulated,
        used_bytes=device.memory.used_bytes,
        total_bytes=device.memory.total_bytes,
        level="unknown" if is_doubted else risk.level,
        reason="its node is lost" if is_doubted else risk.reason,
        oom_in_s=None if is_doubted else risk.time_left_s(sample.time_s),
        probability=None if is_doubted else max(chances, default=None),
        kinds=_list_kinds(device, snapshot.findings) if snapshot.findings else (),
        jobs=_list_jobs(ranks),
        rank=place.rank if place else None,
        tp=place.tp if place else None,
        pp=place.pp if place else None,
        dp=place.dp if place else None,
    )


def _list_kinds(device: DeviceSample, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return the kinds of the open findings of a device."""
    about = (it for it in findings if it.is_open and it.device_uuid == device.uuid)
    return tuple(sorted({finding.kind for finding in about}))


def _list_jobs(ranks: Sequence[RankSample]) -> tuple[str, ...]:
    """Return the jobs that train on a device: mostly there is one process."""
    if len(ranks) == 1:
        return () if ranks[0].job is None else (ranks[0].job,)
    return tuple(sorted({rank.job for rank in ranks if rank.job is not None}))


def _find_place(device: DeviceSample, ranks: Sequence[RankSample]) -> RankCoordinates | None:
    """Return where its process stands; None where there is none, or several that stand elsewhere."""
    if len(ranks) == 1:
        return ranks[0].coordinates or device.rank
    places = [rank.coordinates for rank in ranks if rank.coordinates is not None]
    if not places:
        return device.rank
    return places[0] if all(place.rank == places[0].rank for place in places) else None
