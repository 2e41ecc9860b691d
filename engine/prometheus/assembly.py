"""Samples from what a Prometheus server scraped: one a node at each moment of a scrape."""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import cast, get_args

from ..model import (
    AllocatorReading,
    Assessment,
    Backend,
    DeviceActivity,
    DeviceHardware,
    DeviceKind,
    DeviceSample,
    Finding,
    HostSample,
    MemoryReading,
    RankCoordinates,
    RankSample,
    Sample,
    StepReading,
)
from ..model.sample import ComputeMode, DeviceState, ThrottleReason
from ..soundness import LATEST_S
from .readings import (
    LOOKED_FOR,
    MEMORY_FIELDS,
    THROTTLED,
    NodeReadings,
    Point,
    Room,
    Subject,
    meaning_of,
    name_node,
    name_state,
    parse_whole,
    read_assessment,
    read_finding,
)
from .server import Series

# A value that is older than this many scrapes is not current.
STALE_INTERVALS = 2.5
LEAST_STALE_S = 1.0
# No value of a device is as large, or below zero; such a value is left out.
LIMIT = 2.0**62
# A device without values for so long no longer exists.
FORGOTTEN_S = 600.0
MOST_NODES = 1024
MOST_DEVICES = 8192
# Nodes, devices, and processes, risks and findings that are followed; more are counted and left out.
MOST_OTHERS = 65_536
# Devices that are shown for each value that came; if every value has a moment of its own, as no scrape makes
# them, older moments are left out.
MOST_DEVICES_A_POINT = 2


class Assembler:
    """Makes samples of series, in order of time; a value that comes twice is ignored."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._nodes: dict[str, NodeReadings] = {}
        self._room = Room(MOST_DEVICES, MOST_OTHERS)
        # Nodes that may be forgotten, the longest silent last; None before that is known.
        self._silent: list[str] | None = None
        self._nodes_left_out: set[str] = set()
        # Values of the last batch, and how many of them are no numbers or have impossible times.
        self.figures = self.figures_left_out = 0
        # Samples that were not made, because every value had a moment of its own.
        self.moments_left_out = 0
        self._newest_s: dict[str, float] = {}
        self._seq: dict[str, int] = {}

    @property
    def nodes(self) -> Collection[str]:
        return self._nodes.keys()

    @property
    def newest_s(self) -> Mapping[str, float]:
        """Time of the newest sample of each node."""
        return MappingProxyType(self._newest_s)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out of a server's answers, in sentences."""
        devices = len(self._room.left_out)
        nodes = len(self._nodes_left_out)
        counts = (
            (nodes, f"nodes beyond {MOST_NODES:,}"),
            (devices, f"devices beyond {MOST_DEVICES:,}"),
            (self.figures_left_out, "values that are not numbers or have impossible times"),
            (self.moments_left_out, "moments: each value had a different time"),
        )
        left_out = [f"{count:,} {what}" for count, what in counts if count]
        return (f"left out of Prometheus's answer: {'; '.join(left_out)}",) if left_out else ()

    def list_assessments(self, sample: Sample) -> tuple[Assessment, ...]:
        """Return the agent's risks at the newest sample of a node; nothing for older ones."""
        if self._newest_s.get(sample.node) != sample.time_s:
            return ()
        since_s = self._find_since(sample.time_s)
        risks = self._nodes[sample.node].risks
        found = (
            read_assessment(sample.node, key, risk, sample.time_s, since_s) for key, risk in risks.items()
        )
        return tuple(it for it in found if it is not None)

    def list_findings(self, sample: Sample) -> tuple[Finding, ...]:
        """Return the findings the agent counts at the newest sample of a node; nothing for older ones."""
        if self._newest_s.get(sample.node) != sample.time_s:
            return ()
        readings = self._nodes[sample.node]
        readings.forget_findings(self._find_since(sample.time_s))
        found = (
            read_finding(sample, key, subject, readings.first_s[key])
            for key, subject in sorted(readings.findings.items())
        )
        return tuple(it for it in found if it is not None)

    def _find_since(self, time_s: float) -> float:
        return time_s - max(STALE_INTERVALS * self.interval_s, LEAST_STALE_S)

    def add(self, series: Iterable[Series], *, latest_s: float = LATEST_S) -> Iterator[Sample]:
        """Yield a sample for each moment and node that is newer than the node's last one.

        Args:
            latest_s: A value of a later time was not scraped.
        """
        self.figures = self.figures_left_out = self.moments_left_out = 0
        self._silent = None
        self._nodes_left_out.clear()
        self._room.left_out.clear()
        points = sorted(self._read_points(series, latest_s), key=attrgetter("time_s"))
        has_room = not (points and self._room.is_full)
        while not has_room and self._forget_one(points[-1].time_s):
            pass
        newest_s = {point.node: point.time_s for point in points}
        most_devices = MOST_DEVICES_A_POINT * len(points) + MOST_DEVICES
        for time_s, group in groupby(points, attrgetter("time_s")):
            nodes = {point.node for point in group if self._note(point)}
            for node in sorted(nodes):
                if time_s <= self._newest_s.get(node, -math.inf):
                    continue
                most_devices -= len(self._nodes[node].devices) + len(self._nodes[node].ranks)
                if most_devices < 0 and time_s < newest_s[node]:
                    self.moments_left_out += 1
                else:
                    yield self._make_sample(node, time_s)

    def _note(self, point: Point) -> bool:
        """Store a value; return whether its node is followed."""
        readings = self._nodes.get(point.node)
        if readings is None:
            if len(self._nodes) >= MOST_NODES and not self._forget_one(point.time_s):
                self._nodes_left_out.add(point.node)
                return False
            readings = self._nodes[point.node] = NodeReadings(self._room)
        readings.note(point)
        return True

    def _forget_one(self, time_s: float) -> bool:
        """Forget the node that was silent longest, if one is gone; return whether one was."""
        if self._silent is None:
            since_s = time_s - FORGOTTEN_S
            gone = [node for node in self._nodes if self._newest_s.get(node, math.inf) < since_s]
            self._silent = sorted(gone, key=lambda node: -self._newest_s[node])
        if not self._silent:
            return False
        node = self._silent.pop()
        self._nodes.pop(node).forget()
        del self._newest_s[node], self._seq[node]
        return True

    def _read_points(self, series: Iterable[Series], latest_s: float) -> Iterator[Point]:
        """Yield the possible values; others are counted."""
        for each in series:
            meaning = meaning_of(each.metric)
            if meaning is None:
                continue
            node = name_node(meaning.exporter, each.metric)
            for time_s, text in each.values or ([each.value] if each.value else []):
                value = _read_number(text)
                self.figures = self.figures + 1
                is_figure = value is not None and 0 <= value * meaning.factor < LIMIT
                if value is not None and is_figure and 0 <= time_s <= latest_s:
                    yield Point(node, time_s, meaning, each.metric, value * meaning.factor)
                elif text != "NaN":  # which exporters serve of what they have not measured
                    self.figures_left_out += 1

    def _make_sample(self, node: str, time_s: float) -> Sample:
        readings = self._nodes[node]
        since_s = self._find_since(time_s)
        devices = (
            read_device(key, subject, time_s, since_s)
            for key, subject in sorted(readings.devices.items())
            if (subject.newest_s((*MEMORY_FIELDS, "up")) or 0.0) > time_s - FORGOTTEN_S
        )
        readings.forget_devices(time_s - FORGOTTEN_S)
        readings.forget_ranks(time_s - FORGOTTEN_S)
        ranks = (read_rank(pid, subject, time_s, since_s) for pid, subject in sorted(readings.ranks.items()))
        self._newest_s[node] = time_s
        self._seq[node] = self._seq.get(node, -1) + 1
        total, used = (readings.host.read_bytes(name, since_s) for name in ("total", "used"))
        found = [device for device in devices if device is not None]
        return Sample(
            node=node,
            seq=self._seq[node],
            time_s=time_s,
            interval_s=self.interval_s,
            devices=tuple(sorted(found, key=_place_of)),
            host=None if total is None and used is None else HostSample(total_bytes=total, used_bytes=used),
            ranks=tuple(rank for rank in ranks if rank is not None),
            notes=_list_notes(readings, since_s),
        )


def _place_of(device: DeviceSample) -> tuple[int, int, str]:
    """Sort key of a device: its MIG instances after itself."""
    return device.index, -1 if device.mig_index is None else device.mig_index, device.uuid


def _read_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _list_notes(readings: NodeReadings, since_s: float) -> tuple[str, ...]:
    """Return what limits the values, and what a driver reported."""
    notes = []
    subjects = readings.devices.values()
    if not any(subject.read("used", since_s) is not None for subject in subjects):
        notes.append(f"the answer has no device memory of this node; looked for {LOOKED_FOR}")
    for key, subject in sorted(readings.devices.items()):
        xid = subject.read("xid", since_s)
        if xid:
            name = subject.label("gpu", "device") or key
            notes.append(
                f"GPU {name}: the last error in DCGM is XID {round(xid)}; DCGM never resets it and "
                "does not record its time"
            )
    return tuple(notes)


_BACKENDS = ("cuda", "rocm", "xpu", "mps", "cpu")


def read_rank(pid: str, subject: Subject, time_s: float, since_s: float) -> RankSample | None:
    """Return a process at a moment; None if it is gone, or its id is not a number."""
    up = subject.read("up", since_s)
    number = parse_whole(pid)
    if up is None or number is None:
        return None
    backend = subject.info.get("backend")
    return RankSample(
        pid=number,
        job=subject.info.get("run") or None,
        device_uuid=subject.label("uuid"),
        backend=cast(Backend, backend) if backend in _BACKENDS else None,
        is_simulated=subject.info.get("simulated") == "true",
        coordinates=_read_coordinates(subject),
        state="ok" if up else "stale",
        reason=None if up else "its agent has not received data from it for a while",
        age_s=max(0.0, time_s - (subject.newest_s(("allocated",)) or time_s)),
        allocator=read_allocator(subject, since_s),
        capacity_bytes=subject.read_bytes("capacity", since_s),
        step=_read_step(subject, time_s, since_s),
    )


def _read_coordinates(subject: Subject) -> RankCoordinates | None:
    rank = parse_whole(subject.label("rank"))
    if rank is None:
        return None
    names = ("world_size", "tp", "pp", "dp")
    world_size, tp, pp, dp = (parse_whole(subject.info.get(name)) for name in names)
    cp = parse_whole(subject.info.get("cp"))
    ep = parse_whole(subject.info.get("ep"))
    return RankCoordinates(rank, world_size, tp=tp, pp=pp, dp=dp, cp=cp, ep=ep)


def _read_step(subject: Subject, time_s: float, since_s: float) -> StepReading | None:
    """Return the newest step; when it ended within the scrape is not known, so its scrape counts."""
    index = subject.read_bytes("step", since_s)
    if index is None:
        return None
    floor, peak = (subject.read_bytes(name, since_s) for name in ("floor", "peak"))
    return StepReading(index, time_s, subject.read("duration", since_s), floor, peak)


_NUMBER = re.compile(r"(\d{1,9})(?::(\d{1,9}))?$", re.ASCII)
_KINDS: dict[str, DeviceKind] = {
    kind: kind for kind in ("gpu", "mig", "unified", "vgpu", "trace", "simulated", "cpu")
}
_COMPUTE_MODES: dict[str, ComputeMode] = {it: it for it in get_args(ComputeMode)}
_REASONS: tuple[ThrottleReason, ...] = get_args(ThrottleReason)
_EVER = -1.0


def read_device(key: str, subject: Subject, time_s: float, since_s: float) -> DeviceSample | None:
    """Return a device at a moment; None if nothing but its name is known."""
    newest_s = subject.newest_s(MEMORY_FIELDS)
    up = subject.read("up", since_s)
    if newest_s is None and up is None:
        return None
    age_s = None if newest_s is None else max(0.0, time_s - newest_s)
    state, reason = _judge(newest_s, up, since_s, age_s)
    # A device that does not answer keeps its last values, with their age.
    memory_since_s = since_s if state == "ok" else _EVER
    index, mig_index = _read_place(subject)
    return DeviceSample(
        uuid=key,
        index=index,
        name=subject.info.get("name") or subject.label("modelName", "model"),
        kind="mig" if subject.label("GPU_I_ID") else _KINDS.get(subject.info.get("kind", ""), "gpu"),
        parent_uuid=subject.info.get("parent_uuid") or (key.rpartition("/")[0] or None),
        mig_index=mig_index,
        state=state,
        reason=reason,
        age_s=age_s,
        memory=_read_memory(subject, memory_since_s),
        allocator=read_allocator(subject, since_s),
        utilization_percent=subject.read("utilization", since_s),
        temperature_c=subject.read("temperature", since_s),
        power_w=subject.read("power", since_s),
        step=subject.read_bytes("step", since_s),
        activity=_read_activity(subject, since_s),
        hardware=_read_hardware(subject, since_s),
    )


def _read_activity(subject: Subject, since_s: float) -> DeviceActivity | None:
    reasons = {it: subject.read(name_state(THROTTLED, it), since_s) for it in _REASONS}
    is_known = any(value is not None for value in reasons.values())
    found = DeviceActivity(
        memory_bandwidth_percent=subject.read("memory_bandwidth", since_s),
        sm_clock_mhz=subject.read_bytes("sm_clock", since_s),
        memory_clock_mhz=subject.read_bytes("memory_clock", since_s),
        performance_state=subject.read_bytes("performance_state", since_s),
        throttle_reasons=tuple(it for it, value in reasons.items() if value) if is_known else None,
        pcie_sent_bytes_per_s=subject.read("pcie_sent", since_s),
        pcie_received_bytes_per_s=subject.read("pcie_received", since_s),
        nvlink_sent_bytes_per_s=subject.read("nvlink_sent", since_s),
        nvlink_received_bytes_per_s=subject.read("nvlink_received", since_s),
        xgmi_sent_bytes_per_s=subject.read("xgmi_sent", since_s),
        xgmi_received_bytes_per_s=subject.read("xgmi_received", since_s),
    )
    return None if found == DeviceActivity() else found


def _read_hardware(subject: Subject, since_s: float) -> DeviceHardware | None:
    is_repair_pending = subject.read("repair_pending", since_s)
    found = DeviceHardware(
        driver_version=subject.info.get("driver_version") or None,
        cuda_version=subject.info.get("cuda_version") or None,
        power_limit_w=subject.read("power_limit", since_s),
        fan_percent=subject.read("fan", since_s),
        compute_mode=_COMPUTE_MODES.get(subject.info.get("compute_mode", "")),
        ecc_corrected=subject.read_bytes("ecc_corrected", since_s),
        ecc_uncorrected=subject.read_bytes("ecc_uncorrected", since_s),
        retired_pages=subject.read_bytes("retired_pages", since_s),
        remapped_rows=subject.read_bytes("remapped_rows", since_s),
        is_repair_pending=None if is_repair_pending is None else bool(is_repair_pending),
    )
    return None if found == DeviceHardware() else found


def read_allocator(subject: Subject, since_s: float) -> AllocatorReading | None:
    names = (
        "allocated",
        "allocated_max",
        "reserved",
        "requested",
        "active",
        "inactive_split",
        "retries",
        "ooms",
    )
    values = [subject.read_bytes(name, since_s) for name in names]
    return None if all(value is None for value in values) else AllocatorReading(*values)


def _judge(
    newest_s: float | None, up: float | None, since_s: float, age_s: float | None
) -> tuple[DeviceState, str | None]:
    if up == 0:
        return "lost", "it does not answer its agent"
    if newest_s is None:
        return "unsupported", "its memory is unknown"
    if newest_s < since_s:
        return "stale", f"its exporter has not reported it for {age_s or 0:.0f} s, but reports other devices"
    return "ok", None


def _read_memory(subject: Subject, since_s: float) -> MemoryReading:
    """Return memory; neither used nor free includes what the driver reserved for itself."""
    used, free = (subject.read_bytes(name, since_s) for name in ("used", "free"))
    total = subject.read_bytes("total", since_s)
    if total is None and used is not None and free is not None:
        total = used + free + (subject.read_bytes("reserved_by_driver", since_s) or 0)
    least, most = (subject.read_bytes(name, since_s) for name in ("used_min", "used_max"))
    return MemoryReading(
        total_bytes=total,
        used_bytes=used,
        free_bytes=free,
        used_min_bytes=used if least is None else least,
        used_max_bytes=used if most is None else most,
    )


def _read_place(subject: Subject) -> tuple[int, int | None]:
    """Return the number of a device, and that of its MIG instance."""
    numbers = _NUMBER.search(subject.label("gpu", "device", "minor_number") or "")
    index = subject.read_bytes("index", _EVER)
    if index is None:
        index = int(numbers[1]) if numbers else 0
    mig = subject.label("GPU_I_ID") or (numbers[2] if numbers else None)
    return index, parse_whole(mig)
