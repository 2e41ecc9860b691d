"""A fleet: the newest snapshot of each node, its devices, and how many nodes are covered."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ...engine.model import Assessment, DeviceSample, Finding, RankCoordinates, RankSample, RiskLevel, Sample
from ...engine.model.finding import bring_forward
from ...engine.viewer.snapshot import Snapshot
from ...engine.wire.selection import find_mismatch
from ..findings.subjects import name_device
from ..risk import LEVELS, assess_risk, doubt_silent
from .model import (
    RANKS,
    FleetDevice,
    FleetGroup,
    FleetNode,
    FleetSort,
    Grouping,
    find_need,
    find_worst,
    group_devices,
    order_naturally,
)

# One node of a fleet in one line: the age of its values, the sum of its devices, the state of its agent.


class NodeSummary(msgspec.Struct, frozen=True):
    """Summary of a node; None is unmeasured."""

    node: FleetNode
    device_count: int
    # Level of its device at highest risk.
    level: RiskLevel
    # Device used over capacity, of all devices whose memory is known; 0 to 1.
    used_share: float | None
    # Samples that never reached this viewer.
    samples_dropped: int
    # Version of its agent, and the agent's own CPU and memory.
    version: str | None = None
    cpu_percent: float | None = None
    rss_bytes: int | None = None
    viewers: int | None = None
    # What it could not do or measure, in sentences.
    notes: tuple[str, ...] = ()
    # Its name according to its agent, where that differs; None where it does not, or is unknown.
    own_name: str | None = None


def summarize_node(node: FleetNode, snapshot: Snapshot, devices: Sequence[FleetDevice]) -> NodeSummary:
    hub = snapshot.hub
    reported_name = None if snapshot.sample is None else snapshot.sample.node
    return NodeSummary(
        node=node,
        device_count=len(devices),
        level=max((device.level for device in devices), key=LEVELS.index, default="unknown"),
        used_share=_share_used(devices),
        samples_dropped=snapshot.samples_dropped,
        version=None if hub is None else hub.version,
        cpu_percent=None if hub is None else hub.cpu_percent,
        rss_bytes=None if hub is None else hub.rss_bytes,
        viewers=None if hub is None else hub.viewers,
        notes=(*filter(None, (node.mismatch,)), *(() if hub is None else hub.notes)),
        own_name=None if reported_name == node.name else reported_name,
    )


def order_by_need(summaries: Sequence[NodeSummary]) -> list[NodeSummary]:
    """Sort nodes: first those that need a person, the lost ones, then by risk; else as they were."""
    return sorted(summaries, key=lambda it: (it.node.state == "live", -LEVELS.index(it.level)))


def _share_used(devices: Sequence[FleetDevice]) -> float | None:
    known = [
        (device.used_bytes, device.total_bytes)
        for device in devices
        if device.used_bytes is not None and device.total_bytes
    ]
    total = sum(capacity for _, capacity in known)
    return sum(used for used, _ in known) / total if total else None


# Counts of devices: how many are at which level, which are in danger, which is nearest to it.

# Counted node by node and added up, so that a message of one node of a thousand needs no look at all others.

_GRAVE_RANK = RANKS["medium"]


class Census(NamedTuple):
    """Counts of some devices."""

    total: int = 0
    # Devices by level; levels without devices are left out.
    levels: Mapping[RiskLevel, int] = {}
    # Devices of nodes that are not lost.
    present: int = 0
    # Those of them whose level is unknown.
    unknown: int = 0
    # Those of these on which no process has a probe.
    lacking: int = 0
    # Those of the unknown that fill.
    filling: int = 0
    # Those at medium level or above.
    grave: tuple[FleetDevice, ...] = ()
    # The one nearest to running out; the fullest where all are equally near.
    worst: FleetDevice | None = None
    # Highest used share of the capacity, 0 to 1.
    fullest_share: float = 0.0

    # The highest level as a number, with low and unknown as one: neither is a reason to move.
    need: int = 0


def count_devices(devices: Sequence[FleetDevice]) -> Census:
    levels: dict[RiskLevel, int] = {}
    grave: list[FleetDevice] = []
    lost = unknown = lacking = filling = 0
    fullest = 0.0
    for device in devices:  # of every device of a fleet, at each of its samples
        level = device.level
        levels[level] = levels.get(level, 0) + 1
        if RANKS[level] >= _GRAVE_RANK:
            grave.append(device)
        if device.is_node_lost:
            lost += 1
        elif level == "unknown":
            unknown += 1
            lacking += device.lacks_probe and device.rank is None and not device.jobs
            filling += device.trend == "filling"
        if device.used_bytes is not None and device.total_bytes:
            share = device.used_bytes / device.total_bytes
            fullest = share if share > fullest else fullest
    present = len(devices) - lost
    worst = find_worst(devices)
    need = find_need(levels)
    total = len(devices)
    return Census(total, levels, present, unknown, lacking, filling, tuple(grave), worst, fullest, need)


def add_up(parts: Iterable[Census]) -> Census:
    levels: dict[RiskLevel, int] = {}
    grave: list[FleetDevice] = []
    worst: list[FleetDevice] = []
    total = present = unknown = lacking = filling = 0
    fullest = 0.0
    for part in parts:
        total = total + part.total
        present = present + part.present
        unknown = unknown + part.unknown
        lacking = lacking + part.lacking
        filling = filling + part.filling
        fullest = max(fullest, part.fullest_share)
        for level, count in part.levels.items():
            levels[level] = levels.get(level, 0) + count
        if part.grave:
            grave += part.grave
        if part.worst is not None:
            worst.append(part.worst)
    lead = find_worst(worst)
    need = find_need(levels)
    return Census(total, levels, present, unknown, lacking, filling, tuple(grave), lead, fullest, need)


class Coverage(NamedTuple):
    """How much of a fleet is seen."""

    # Nodes with current values.
    live: int
    total: int
    # Further nodes that are known and not followed, because nobody asked for them.
    nodes_left_out: int = 0
    # Further devices of the followed nodes.
    devices_left_out: int = 0

    @property
    def is_partial(self) -> bool:
        return self.live < self.total

    @property
    def text(self) -> str:
        """For example `118 of 128 nodes`, or `128 nodes`."""
        noun = "node" if self.total == 1 else "nodes"
        return f"{self.live:,} of {self.total:,} {noun}" if self.is_partial else f"{self.total:,} {noun}"

    @property
    def followed_text(self) -> str:
        """The share of the nodes that is followed: `12 of 128 nodes followed`; empty where all are."""
        known = self.total + self.nodes_left_out
        return f"{self.total:,} of {known:,} nodes followed" if self.nodes_left_out else ""


class FleetPicture(NamedTuple):
    """All nodes of a fleet at one moment; it does not change while the fleet goes on."""

    # The devices of each, nodes in order.
    nodes: Mapping[str, tuple[FleetDevice, ...]]
    counted: Mapping[str, Census]
    census: Census
    coverage: Coverage

    @property
    def devices(self) -> list[FleetDevice]:
        return [device for its in self.nodes.values() for device in its]

    def find(self, key: tuple[str, str]) -> FleetDevice | None:
        node, uuid = key
        return next((device for device in self.nodes.get(node, ()) if device.uuid == uuid), None)


class Fleet:
    """Collects snapshots of nodes, one after another; a node that cannot be read leaves the others
    unchanged.
    """

    def __init__(self) -> None:
        self._snapshots: dict[str, Snapshot] = {}
        self._read: dict[str, NodeDevices] = {}
        self._devices: dict[str, tuple[FleetDevice, ...]] = {}
        self._counted: dict[str, Census] = {}
        self._unread: set[str] = set()
        self._offsets: dict[str, ClockOffset] = {}
        self._heard_s: dict[str, float] = {}
        self._names: tuple[str, ...] | None = None
        # Nodes that its feed knows and does not follow.
        self.nodes_left_out = 0

    def note(self, snapshot: Snapshot, received_s: float) -> None:
        """Store the newest snapshot of its node, received by our wall clock; a node that is gone is
        forgotten.
        """
        name = snapshot.node
        if snapshot.is_gone:
            self._forget(name)
            return
        if name not in self._snapshots:
            self._names = None
        self._snapshots[name] = snapshot
        self._unread.add(name)
        if snapshot.connection == "live" and snapshot.sample is not None:
            self._heard_s[name] = received_s
            if name not in self._offsets:
                self._offsets[name] = ClockOffset()
            self._offsets[name].add(snapshot.sample, received_s)

    def _forget(self, name: str) -> None:
        for known in (
            self._snapshots,
            self._read,
            self._devices,
            self._counted,
            self._offsets,
            self._heard_s,
        ):
            known.pop(name, None)
        self._unread.discard(name)
        self._names = None

    @property
    def names(self) -> tuple[str, ...]:
        if self._names is None:
            self._names = tuple(sorted(self._snapshots, key=order_naturally))
            self._devices = {name: self._devices.get(name, ()) for name in self._names}
            self._counted = {name: self._counted.get(name, Census()) for name in self._names}
        return self._names

    @property
    def picture(self) -> FleetPicture:
        for name in self.names:  # which puts what is known of them in order
            if name in self._unread:
                self._read_node(name)
        counted = self._counted.copy()
        return FleetPicture(self._devices.copy(), counted, add_up(counted.values()), self.coverage)

    @property
    def coverage(self) -> Coverage:
        live = left_out = 0
        for snapshot in self._snapshots.values():
            if snapshot.sample is not None:
                live += snapshot.connection == "live"
                left_out += snapshot.sample.devices_left_out
        return Coverage(live, len(self._snapshots), self.nodes_left_out, left_out)

    def devices_of(self, name: str) -> tuple[FleetDevice, ...]:
        if name in self._unread:
            self._read_node(name)
        return self._devices[name]

    def _read_node(self, name: str) -> None:
        self._unread.discard(name)
        self._read[name] = read = read_node(self._snapshots[name], self._read.get(name))
        self._devices[name] = read.devices
        self._counted[name] = count_devices(read.devices)

    def node(self, name: str) -> FleetNode:
        snapshot = self._snapshots[name]
        offset = self._offsets.get(name)
        is_live = snapshot.connection == "live"
        return FleetNode(
            name=name,
            state=snapshot.connection,
            reason=snapshot.reason,
            silent_s=snapshot.silent_s,
            heard_s=self._heard_s.get(name),
            clock_offset_s=offset.offset_s if is_live and offset is not None else None,
            mismatch=None if snapshot.sample is None else find_mismatch(snapshot.sample),
        )

    def summarize(self, name: str) -> NodeSummary:
        return summarize_node(self.node(name), self._snapshots[name], self.devices_of(name))

    def lost(self) -> list[FleetNode]:
        return [self.node(name) for name in self.names if self._snapshots[name].connection == "lost"]


# Samples that the estimate rests on.
REMEMBERED = 32
LEAST_TOLD_S = 2.0


class ClockOffset:
    """Estimates a node's wall clock less ours.

    A message is late by an unknown delay, never early, so that sample time less the time of arrival is too
    low by that delay; the highest of the newest samples is the least wrong (the clock filter of RFC 5905,
    section 10, without its round trip).
    """

    def __init__(self) -> None:
        self._differences: deque[float] = deque(maxlen=REMEMBERED)
        self._interval_s = 0.0
        self._last_s: float | None = None

    def add(self, sample: Sample, received_s: float) -> None:
        """Add a sample and its time of arrival by our wall clock; the same sample twice counts once."""
        if sample.clock != "wall" or sample.time_s == self._last_s:
            return
        self._last_s = sample.time_s
        self._interval_s = sample.interval_s
        self._differences.append(sample.time_s - received_s)

    @property
    def offset_s(self) -> float | None:
        """The estimate; None where delay alone may be as large: two seconds and two ticks."""
        highest = max(self._differences, default=None)
        if highest is None or abs(highest) < LEAST_TOLD_S + 2 * self._interval_s:
            return None
        return highest


Description = tuple[object, ...]
_GRAVE = LEVELS.index("medium")
_READ_DEVICE = attrgetter("uuid", "index", "name", "kind", "mig_index", "state", "memory.total_bytes", "rank")
_READ_RANK = attrgetter("device_uuid", "pid", "started_s", "state", "job", "coordinates")


def read_devices(snapshot: Snapshot) -> tuple[FleetDevice, ...]:
    """Read the devices of a node; those of a lost one keep their values, but a risk only where it
    was high.
    """
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
    snapshot: Snapshot
    devices: tuple[FleetDevice, ...]
    # Every field that devices depend on, except used bytes.
    description: Description


def read_node(now: Snapshot, before: NodeDevices | None = None) -> NodeDevices:
    """Return the devices of a node, as `read_devices`.

    From one sample to the next mostly only used bytes change: with the result `before` only those are read.
    """
    description = _describe(now)
    if before is None or description != before.description or not _is_alike(before.snapshot, now):
        return NodeDevices(now, read_devices(now), description)
    if now.sample is None or any(map(_has_times, before.devices)):
        return NodeDevices(now, read_devices(now), description)
    used = [device.memory.used_bytes for device in now.sample.devices]
    devices = [
        known if known.used_bytes == used_bytes else replace(known, used_bytes=used_bytes)
        for known, used_bytes in zip(before.devices, used, strict=True)
    ]
    return NodeDevices(now, tuple(devices), description)


def _has_times(device: FleetDevice) -> bool:
    """Return whether something that is said of a device changes as time passes."""
    return device.oom_in_s is not None or device.trend in ("rising", "filling")


def _is_alike(before: Snapshot, now: Snapshot) -> bool:
    """Return whether there is no new finding or assessment."""
    is_same = before.findings is now.findings and before.assessments is now.assessments
    return is_same and before.connection == now.connection and before.node == now.node


def _describe(snapshot: Snapshot) -> Description:
    """Return the fields whose change forces a full re-read: all but used bytes; ages only of devices that are
    not well.
    """
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
    owners = [it.find_owners() for it in devices]
    return sample.node, *facts, allocators, ages, owners


def _read_device(
    device: DeviceSample,
    snapshot: Snapshot,
    sample: Sample,
    ranks: Sequence[RankSample],
    known: Sequence[Assessment],
) -> FleetDevice:
    risk = assess_risk(device, snapshot.findings, known, sample.ranks)
    is_lost = snapshot.connection == "lost"
    is_doubted = is_lost and LEVELS.index(risk.level) < _GRAVE
    trend = None if is_lost else risk.trend
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
        reason="its node was lost" if is_doubted else risk.reason,
        oom_in_s=None if is_doubted else risk.time_left_s(sample.time_s),
        probability=None if is_doubted else max(chances, default=None),
        device_trend=None if trend is None else bring_forward(trend, sample.time_s),
        kinds=_list_kinds(device, snapshot.findings) if snapshot.findings else (),
        jobs=_list_jobs(ranks),
        owners=device.find_owners(),
        rank=place.rank if place else None,
        tp=place.tp if place else None,
        pp=place.pp if place else None,
        dp=place.dp if place else None,
    )


def _list_kinds(device: DeviceSample, findings: Sequence[Finding]) -> tuple[str, ...]:
    about = (it for it in findings if it.is_open and it.device_uuid == device.uuid)
    return tuple(sorted({finding.kind for finding in about}))


def _list_jobs(ranks: Sequence[RankSample]) -> tuple[str, ...]:
    """Return the jobs that train on a device, mostly one."""
    if len(ranks) == 1:
        return () if ranks[0].job is None else (ranks[0].job,)
    return tuple(sorted({rank.job for rank in ranks if rank.job is not None}))


def _find_place(device: DeviceSample, ranks: Sequence[RankSample]) -> RankCoordinates | None:
    """Return the coordinates of its process; None where it has none, or several that differ."""
    if len(ranks) == 1:
        return ranks[0].coordinates or device.rank
    places = [rank.coordinates for rank in ranks if rank.coordinates is not None]
    if not places:
        return device.rank
    return places[0] if all(place.rank == places[0].rank for place in places) else None


# Groups of the devices of a fleet: all of them, or those that pass a filter.


def group_fleet(
    picture: FleetPicture, grouping: Grouping, sort: FleetSort, wanted: Sequence[FleetDevice] | None = None
) -> list[FleetGroup]:
    """Return groups in order, as `group_devices`; a node without devices has one where no filter is set."""
    if wanted is not None:
        return group_devices(wanted, grouping, sort)
    if grouping != "node":
        return group_devices(picture.devices, grouping, sort)
    # A group a node, sorted by the counts of each: their devices need not be looked at.
    groups = [FleetGroup(name, devices, name) for name, devices in picture.nodes.items()]
    counted = picture.counted
    if sort == "used":
        groups.sort(key=lambda group: -counted[group.name].fullest_share)
    elif sort == "risk":
        groups.sort(key=lambda group: -counted[group.name].need)
    return groups
