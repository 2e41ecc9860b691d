"""Samples made of what a Prometheus server scraped: one a node at each moment at which it was scraped."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType

from ..model import Assessment, DeviceSample, Finding, HostSample, Sample
from ..soundness import LATEST_S
from .devices import read_device
from .findings import read_finding
from .metrics import LOOKED_FOR, MEMORY_FIELDS
from .ranks import read_rank
from .readings import NodeReadings, Point, Room, meaning_of, name_node
from .risks import read_assessment
from .server import Series

STALE_INTERVALS = 2.5
"""A figure that is older than this many scrapes is not of the present."""
LEAST_STALE_S = 1.0
LIMIT = 2.0**62
"""No figure of a device is as large, or below zero; what says so is left out."""
FORGOTTEN_S = 600.0
"""A device that has not been told of for so long is not there any more."""
MOST_NODES, MOST_DEVICES, MOST_OTHERS = 1024, 8192, 65_536
"""Nodes, devices, and processes, risks and findings that are followed; more are counted and left out."""
MOST_DEVICES_A_POINT = 2
"""Devices that are shown for each figure that came; where every figure has a moment of its own, as no scrape
makes them, older moments are left out."""


class Assembler:
    """Makes samples of series, in order of time; one that is handed in again is passed over.

    Args:
        interval_s: Seconds from one scrape to the next.
    """

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._nodes: dict[str, NodeReadings] = {}
        self._room = Room(MOST_DEVICES, MOST_OTHERS)
        self._silent: list[str] | None = None
        """Nodes that may be forgotten, the one last that was silent longest; None before that is known."""
        self._nodes_left_out: set[str] = set()
        self.figures = self.figures_left_out = 0
        """Values that were handed in last, and those of them that are none or at times that cannot be."""
        self.moments_left_out = 0
        """Samples that were not made of them, because every value had a moment of its own."""
        self._told_s: dict[str, float] = {}
        self._seq: dict[str, int] = {}

    @property
    def nodes(self) -> Collection[str]:
        """Names of the nodes that are followed."""
        return self._nodes.keys()

    @property
    def told_s(self) -> Mapping[str, float]:
        """Time of the newest sample of each node."""
        return MappingProxyType(self._told_s)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out of what a server told, in sentences."""
        devices, nodes = len(self._room.left_out), len(self._nodes_left_out)
        counts = (
            (nodes, f"nodes beyond {MOST_NODES:,}"),
            (devices, f"devices beyond {MOST_DEVICES:,}"),
            (self.figures_left_out, "values that are no number, or at times that cannot be"),
            (self.moments_left_out, "moments: every value had one of its own"),
        )
        told = [f"{count:,} {what}" for count, what in counts if count]
        return (f"left out of what Prometheus answered: {'; '.join(told)}",) if told else ()

    def list_assessments(self, sample: Sample) -> tuple[Assessment, ...]:
        """Return what agents say of the risk at the newest sample of a node; nothing of older ones."""
        if self._told_s.get(sample.node) != sample.time_s:
            return ()
        since_s, risks = self._find_since(sample.time_s), self._nodes[sample.node].risks
        found = (
            read_assessment(sample.node, key, risk, sample.time_s, since_s) for key, risk in risks.items()
        )
        return tuple(it for it in found if it is not None)

    def list_findings(self, sample: Sample) -> tuple[Finding, ...]:
        """Return the findings that agents count at the newest sample of a node; nothing of older ones."""
        if self._told_s.get(sample.node) != sample.time_s:
            return ()
        readings = self._nodes[sample.node]
        readings.forget_findings(self._find_since(sample.time_s))
        found = (
            read_finding(sample, key, subject, readings.first_s[key])
            for key, subject in sorted(readings.findings.items())
        )
        return tuple(it for it in found if it is not None)

    def _find_since(self, time_s: float) -> float:
        """Return from when on a figure is of the present."""
        return time_s - max(STALE_INTERVALS * self.interval_s, LEAST_STALE_S)

    def add(self, series: Iterable[Series], *, latest_s: float = LATEST_S) -> Iterator[Sample]:
        """Yield a sample for each moment and node that is newer than what was told of the node.

        Args:
            series: What a server answered.
            latest_s: A figure of a later time was not scraped.
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
                if time_s <= self._told_s.get(node, -math.inf):
                    continue
                most_devices -= len(self._nodes[node].devices) + len(self._nodes[node].ranks)
                if most_devices < 0 and time_s < newest_s[node]:
                    self.moments_left_out += 1
                else:
                    yield self._tell(node, time_s)

    def _note(self, point: Point) -> bool:
        """Take a figure; return whether its node is followed."""
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
            gone = [node for node in self._nodes if self._told_s.get(node, math.inf) < since_s]
            self._silent = sorted(gone, key=lambda node: -self._told_s[node])
        if not self._silent:
            return False
        node = self._silent.pop()
        self._nodes.pop(node).forget()
        del self._told_s[node], self._seq[node]
        return True

    def _read_points(self, series: Iterable[Series], latest_s: float) -> Iterator[Point]:
        """Yield the figures that can be; others are counted."""
        for each in series:
            meaning = meaning_of(each.metric)
            if meaning is None:
                continue
            node = name_node(meaning.exporter, each.metric)
            for time_s, text in each.values or ([each.value] if each.value else []):
                value, self.figures = _read_number(text), self.figures + 1
                is_figure = value is not None and 0 <= value * meaning.factor < LIMIT
                if value is not None and is_figure and 0 <= time_s <= latest_s:
                    yield Point(node, time_s, meaning, each.metric, value * meaning.factor)
                elif text != "NaN":  # which exporters serve of what they have not measured
                    self.figures_left_out += 1

    def _tell(self, node: str, time_s: float) -> Sample:
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
        self._told_s[node] = time_s
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
    """Return where a device stands: its MIG instances after itself."""
    return device.index, -1 if device.mig_index is None else device.mig_index, device.uuid


def _read_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _list_notes(readings: NodeReadings, since_s: float) -> tuple[str, ...]:
    """Return what limits the figures, and what a driver reported."""
    notes = []
    subjects = readings.devices.values()
    if not any(subject.read("used", since_s) is not None for subject in subjects):
        notes.append(f"no device memory of this node is in the answer; looked for {LOOKED_FOR}")
    for key, subject in sorted(readings.devices.items()):
        xid = subject.read("xid", since_s)
        if xid:
            name = subject.label("gpu", "device") or key
            notes.append(
                f"GPU {name}: the last error that DCGM was told is XID {round(xid)}; it never resets that, "
                "and does not say when it was"
            )
    return tuple(notes)
