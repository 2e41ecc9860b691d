"""The newest figures of every device, process and host of one node, each with its time."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from .metrics import EXPORTERS, METRICS, Exporter, Meaning

NODE_LABELS: dict[Exporter, tuple[str, ...]] = {
    "vramscope": ("node", "exported_node", "instance"),
    "dcgm-exporter": ("Hostname", "hostname", "kubernetes_node", "node", "instance"),
    "nvidia_gpu_exporter": ("hostname", "node", "instance"),
}
"""Labels by which a node is known, the better one first."""
UUID_LABELS = ("uuid", "UUID")
NO_NODE = "unnamed node"
FindingKey = tuple[str, str, str]
"""UUID of the device, kind and severity."""


MAX_DIGITS = 18
MOST_LEFT_OUT = 100_000
"""Devices without room that are counted."""
Key = TypeVar("Key")


class Point(NamedTuple):
    """One figure of one series."""

    node: str
    time_s: float
    meaning: Meaning
    labels: Mapping[str, str]
    value: float


class Subject:
    """What is known of one device, process or host."""

    def __init__(self) -> None:
        self.labels: dict[Exporter, Mapping[str, str]] = {}
        self.info: dict[str, str] = {}
        self._figures: dict[str, dict[Exporter, tuple[float, float]]] = {}

    def note(self, point: Point) -> None:
        """Take a figure; of an info metric its labels are what is told."""
        meaning = point.meaning
        self.labels[meaning.exporter] = point.labels
        if meaning.field == "info":
            self.info.update(point.labels)
        self._figures.setdefault(meaning.field, {})[meaning.exporter] = (point.time_s, point.value)

    def read(self, field: str, since_s: float) -> float | None:
        """Return a figure that is not older than a moment, of the best exporter that has one."""
        found = self._figures.get(field, {})
        for exporter in EXPORTERS:
            if exporter in found and found[exporter][0] >= since_s:
                return found[exporter][1]
        return None

    def read_bytes(self, field: str, since_s: float) -> int | None:
        """Return a figure as a whole number."""
        value = self.read(field, since_s)
        return None if value is None else round(value)

    def newest_s(self, fields: Iterable[str]) -> float | None:
        """Return when any of some fields was last told; None where none ever was."""
        times = (time_s for field in fields for time_s, _ in self._figures.get(field, {}).values())
        return max(times, default=None)

    def is_older(self, before_s: float) -> bool:
        """Return whether nothing was told since a moment."""
        return (self.newest_s(tuple(self._figures)) or 0.0) < before_s

    def label(self, *names: str) -> str | None:
        """Return the first of some labels that is there and not empty."""
        for exporter in EXPORTERS:
            for name in names:
                if value := self.labels.get(exporter, {}).get(name):
                    return value
        return None


class Room:
    """How many devices, and other subjects, there may be yet, of all nodes together.

    Args:
        devices: Devices that are shown.
        others: Processes, risks and findings.
    """

    def __init__(self, devices: int, others: int) -> None:
        self._devices = devices
        self._others = others
        self.left_out: set[tuple[str, str]] = set()
        """Node and UUID of devices for which there was no room."""

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another device."""
        return self._devices <= 0

    def find(self, subjects: dict[Key, Subject], key: Key) -> Subject | None:
        """Return what is known of a process, risk or finding, a new one where there is room; else None."""
        found = subjects.get(key)
        if found is None and self._others > 0:
            self._others -= 1
            found = subjects[key] = Subject()
        return found

    def find_device(self, subjects: dict[str, Subject], node: str, uuid: str) -> Subject | None:
        """Return what is known of a device, a new one where there is room; else None."""
        found = subjects.get(uuid)
        if found is None and self._devices > 0:
            self._devices -= 1
            found = subjects[uuid] = Subject()
        elif found is None and len(self.left_out) < MOST_LEFT_OUT:
            self.left_out.add((node, uuid))
        return found

    def give_back(self, devices: int = 0, others: int = 0) -> None:
        """Make room for others in place of subjects that are forgotten."""
        self._devices = self._devices + devices
        self._others = self._others + others


class NodeReadings:
    """Everything known of one node.

    Args:
        room: For how much there is room.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self.devices: dict[str, Subject] = {}
        """By UUID; of a MIG instance by that of its GPU and its own number."""
        self.ranks: dict[str, Subject] = {}
        """By process id."""
        self.risks: dict[tuple[str, str], Subject] = {}
        """What its agent says of each process, or of a device: by UUID and process id."""
        self.findings: dict[FindingKey, Subject] = {}
        """Findings that its agent counts, by UUID of the device, kind and severity."""
        self.first_s: dict[FindingKey, float] = {}
        """When each of them was first counted since it was last gone."""
        self.host = Subject()

    def note(self, point: Point) -> None:
        """Take a figure."""
        if point.meaning.of == "host":
            self.host.note(point)
        elif point.meaning.of == "rank":
            self._note(self._room.find(self.ranks, point.labels.get("pid", "")), point)
        elif point.meaning.of == "risk":
            key = point.labels.get("uuid", ""), point.labels.get("pid", "")
            self._note(self._room.find(self.risks, key), _name_level(point))
        elif point.meaning.of == "finding":
            self._note_finding(point)
        elif uuid := name_device(point.labels):
            self._note(self._room.find_device(self.devices, point.node, uuid), point)

    @staticmethod
    def _note(subject: Subject | None, point: Point) -> None:
        if subject is not None:
            subject.note(point)

    def _note_finding(self, point: Point) -> None:
        names = ("uuid", "kind", "severity")
        uuid, kind, severity = (point.labels.get(name, "") for name in names)
        subject = self._room.find(self.findings, (uuid, kind, severity))
        if subject is not None:
            subject.note(point)
            self.first_s.setdefault((uuid, kind, severity), point.time_s)

    def forget_devices(self, before_s: float) -> None:
        """Forget devices of which nothing was said since a moment."""
        gone = [uuid for uuid, it in self.devices.items() if it.is_older(before_s)]
        for uuid in gone:
            del self.devices[uuid]
        self._room.give_back(devices=len(gone))

    def forget(self) -> None:
        """Make room: the node itself is forgotten."""
        self._room.give_back(len(self.devices), len(self.ranks) + len(self.risks) + len(self.findings))

    def forget_findings(self, before_s: float) -> None:
        """Forget findings that are not counted any more."""
        gone = [key for key, it in self.findings.items() if (it.newest_s(("count",)) or 0.0) < before_s]
        for key in gone:
            del self.findings[key], self.first_s[key]
        self._room.give_back(others=len(gone))

    def forget_ranks(self, before_s: float) -> None:
        """Forget processes, and what was said of them, of which nothing was told since a moment."""
        gone = {pid for pid, rank in self.ranks.items() if (rank.newest_s(("up",)) or 0.0) < before_s}
        risks = [key for key, risk in self.risks.items() if key[1] in gone or risk.is_older(before_s)]
        for pid in gone:
            del self.ranks[pid]
        for key in risks:
            del self.risks[key]
        self._room.give_back(others=len(gone) + len(risks))


def _name_level(point: Point) -> Point:
    """Make a field of its own of each level: of a set of states one is 1 and all others are 0."""
    if point.meaning.field != "level":
        return point
    field = f"level {point.labels.get('level', '')}"
    return point._replace(meaning=point.meaning._replace(field=field))


def name_device(labels: Mapping[str, str]) -> str | None:
    """Return by what a device is known; None where its labels do not tell."""
    uuid = next((labels[name] for name in UUID_LABELS if labels.get(name)), None)
    if uuid is None:
        return None
    instance = labels.get("GPU_I_ID")
    # nvidia_gpu_exporter leaves out what stands before the number.
    uuid = f"GPU-{uuid}" if "UUID" not in labels and _is_bare(uuid) else uuid
    return f"{uuid}/{instance}" if instance else uuid


def _is_bare(uuid: str) -> bool:
    return len(uuid) == 36 and uuid[8:9] == "-"


def name_node(exporter: Exporter, labels: Mapping[str, str]) -> str:
    """Return the name of the node of a series; a port says nothing of it."""
    for name in NODE_LABELS[exporter]:
        if value := labels.get(name):
            return strip_port(value) if name == "instance" else value
    return NO_NODE


def strip_port(instance: str) -> str:
    """Return the host of an instance label."""
    host, colon, port = instance.rpartition(":")
    return host.strip("[]") if colon and port.isdecimal() else instance


def parse_whole(text: str | None) -> int | None:
    """Return a whole number that a label spells; None where it is none, or larger than any."""
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > MAX_DIGITS:
        return None
    return int(text)


def meaning_of(labels: Mapping[str, str]) -> Meaning | None:
    """Return what a series is; None where that is not known."""
    return METRICS.get(labels.get("__name__", ""))
