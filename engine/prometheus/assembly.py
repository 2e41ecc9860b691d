"""Samples made of what a Prometheus server scraped: one a node at each moment at which it was scraped."""

import math
from collections.abc import Iterable, Iterator

from ..model import Assessment, DeviceSample, Finding, HostSample, Sample
from .devices import read_device
from .findings import read_finding
from .metrics import LOOKED_FOR, MEMORY_FIELDS
from .ranks import read_rank
from .readings import NodeReadings, Point, meaning_of, name_node
from .risks import read_assessment
from .server import Series

STALE_INTERVALS = 2.5
"""A figure that is older than this many scrapes is not of the present."""
LEAST_STALE_S = 1.0
LIMIT = 2.0**62
"""No figure of a device is as large, or below zero; what says so is left out."""
FORGOTTEN_S = 600.0
"""A device that has not been told of for so long is not there any more."""


class Assembler:
    """Makes samples of series, in order of time; one that is handed in again is passed over.

    Args:
        interval_s: Seconds from one scrape to the next.
    """

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._nodes: dict[str, NodeReadings] = {}
        self._told_s: dict[str, float] = {}
        self._seq: dict[str, int] = {}

    @property
    def told_s(self) -> dict[str, float]:
        """Time of the newest sample of each node."""
        return dict(self._told_s)

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

    def add(self, series: Iterable[Series]) -> Iterator[Sample]:
        """Yield a sample for each moment and node that is newer than what was told of the node."""
        points = sorted(_read_points(series), key=lambda point: point.time_s)
        at = 0
        while at < len(points):
            time_s, nodes = points[at].time_s, set()
            while at < len(points) and points[at].time_s == time_s:
                point = points[at]
                self._nodes.setdefault(point.node, NodeReadings()).note(point)
                nodes.add(point.node)
                at += 1
            for node in sorted(nodes):
                if time_s > self._told_s.get(node, -math.inf):
                    yield self._tell(node, time_s)

    def _tell(self, node: str, time_s: float) -> Sample:
        readings = self._nodes[node]
        since_s = self._find_since(time_s)
        devices = (
            read_device(key, subject, time_s, since_s)
            for key, subject in sorted(readings.devices.items())
            if (subject.newest_s((*MEMORY_FIELDS, "up")) or 0.0) > time_s - FORGOTTEN_S
        )
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


def _read_points(series: Iterable[Series]) -> Iterator[Point]:
    for each in series:
        meaning = meaning_of(each.metric)
        if meaning is None:
            continue
        node = name_node(meaning.exporter, each.metric)
        for time_s, text in each.values or ([each.value] if each.value else []):
            value = _read_number(text)
            if value is not None and 0 <= value * meaning.factor < LIMIT:
                yield Point(node, time_s, meaning, each.metric, value * meaning.factor)


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
