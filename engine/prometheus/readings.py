"""The newest values of every device, process and host of one node, each with its time."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar, get_args

import msgspec

from ..model import SEVERITIES, Assessment, Finding, RiskLevel, Sample, make_finding_id, order_findings
from ..model.sample import ThrottleReason
from ..wire.stores import assessment_key

# Several exporters may report one device: then agents of vramscope have precedence over dcgm-exporter, and
# that over nvidia_gpu_exporter. Names of dcgm-exporter are those of its `default-counters.csv`, of
# nvidia_gpu_exporter the fields of `nvidia-smi --query-gpu`.

MIB = 1 << 20
Exporter = Literal["vramscope", "dcgm-exporter", "nvidia_gpu_exporter"]
Subjects = Literal["device", "rank", "host", "risk", "finding"]
# The known exporters, the better one first.
EXPORTERS: tuple[Exporter, ...] = ("vramscope", "dcgm-exporter", "nvidia_gpu_exporter")


class Meaning(NamedTuple):
    exporter: Exporter
    of: Subjects
    field: str
    factor: float = 1.0


def _list_all(
    exporter: Exporter, of: Subjects, pattern: str, **fields: str | tuple[str, float]
) -> dict[str, Meaning]:
    """Return metrics by name; `fields` maps each ending of a name to a field, and its factor."""
    found = {}
    for ending, field in fields.items():
        name, factor = (field, 1.0) if isinstance(field, str) else field
        found[pattern.format(ending)] = Meaning(exporter, of, name, factor)
    return found


# Fields that are sets of states: each state is a field of its own, named by a label.
LEVEL = "level"
THROTTLED = "throttled"
_STATE_LABELS: dict[str, tuple[str, frozenset[str]]] = {
    LEVEL: ("level", frozenset(get_args(RiskLevel))),
    THROTTLED: ("reason", frozenset(get_args(ThrottleReason))),
}


METRICS: dict[str, Meaning] = {
    **_list_all(
        "vramscope",
        "device",
        "vramscope_device_{}",
        used_bytes="used",
        used_min_bytes="used_min",
        used_max_bytes="used_max",
        free_bytes="free",
        capacity_bytes="total",
        utilization_ratio=("utilization", 100.0),
        temperature_celsius="temperature",
        power_watts="power",
        up="up",
        info="info",
        memory_bandwidth_ratio=("memory_bandwidth", 100.0),
        sm_clock_hertz=("sm_clock", 1e-6),
        memory_clock_hertz=("memory_clock", 1e-6),
        performance_state="performance_state",
        throttled=THROTTLED,
        pcie_sent_bytes_per_second="pcie_sent",
        pcie_received_bytes_per_second="pcie_received",
        nvlink_sent_bytes_per_second="nvlink_sent",
        nvlink_received_bytes_per_second="nvlink_received",
        xgmi_sent_bytes_per_second="xgmi_sent",
        xgmi_received_bytes_per_second="xgmi_received",
        power_limit_watts="power_limit",
        fan_ratio=("fan", 100.0),
        ecc_corrected_errors_total="ecc_corrected",
        ecc_uncorrected_errors_total="ecc_uncorrected",
        retired_pages="retired_pages",
        remapped_rows="remapped_rows",
        repair_pending="repair_pending",
        driver_info="info",
    ),
    **_list_all(
        "vramscope",
        "device",
        "vramscope_allocator_{}",
        allocated_bytes="allocated",
        allocated_max_bytes="allocated_max",
        reserved_bytes="reserved",
        retries_total="retries",
        ooms_total="ooms",
    ),
    **_list_all("vramscope", "device", "vramscope_training_{}", steps_total="step"),
    **_list_all(
        "vramscope",
        "host",
        "vramscope_host_memory_{}",
        capacity_bytes="total",
        used_bytes="used",
    ),
    **_list_all(
        "vramscope",
        "rank",
        "vramscope_rank_{}",
        allocated_bytes="allocated",
        allocated_max_bytes="allocated_max",
        reserved_bytes="reserved",
        requested_bytes="requested",
        active_bytes="active",
        inactive_split_bytes="inactive_split",
        capacity_bytes="capacity",
        retries_total="retries",
        ooms_total="ooms",
        steps_total="step",
        step_floor_bytes="floor",
        step_peak_bytes="peak",
        step_duration_seconds="duration",
        up="up",
        info="info",
    ),
    **_list_all(
        "vramscope",
        "risk",
        "vramscope_oom_{}",
        risk_level=LEVEL,
        probability_ratio="probability",
        horizon_seconds="horizon",
        in_seconds="in",
        in_low_seconds="in_low",
        in_high_seconds="in_high",
    ),
    "vramscope_findings": Meaning("vramscope", "finding", "count"),
    **_list_all(
        "dcgm-exporter",
        "device",
        "DCGM_FI_DEV_{}",
        FB_USED=("used", MIB),
        FB_FREE=("free", MIB),
        FB_RESERVED=("reserved_by_driver", MIB),
        FB_TOTAL=("total", MIB),
        GPU_UTIL="utilization",
        GPU_TEMP="temperature",
        POWER_USAGE="power",
        MEM_COPY_UTIL="memory_bandwidth",
        SM_CLOCK="sm_clock",
        MEM_CLOCK="memory_clock",
        XID_ERRORS="xid",
    ),
    **_list_all(
        "nvidia_gpu_exporter",
        "device",
        "nvidia_smi_{}",
        memory_used_bytes="used",
        memory_free_bytes="free",
        memory_reserved_bytes="reserved_by_driver",
        memory_total_bytes="total",
        utilization_gpu_ratio=("utilization", 100.0),
        temperature_gpu="temperature",
        power_draw_watts="power",
        index="index",
        gpu_info="info",
    ),
}

# All of them in one expression.
SELECTOR = '{__name__=~"' + "|".join(METRICS) + '"}'
LOOKED_FOR = "vramscope_device_used_bytes, DCGM_FI_DEV_FB_USED and nvidia_smi_memory_used_bytes"
# Their times say when the memory of a device was read.
MEMORY_FIELDS = ("used", "free", "total", "allocated")


# Labels that name a node, the better one first.
NODE_LABELS: dict[Exporter, tuple[str, ...]] = {
    "vramscope": ("node", "exported_node", "instance"),
    "dcgm-exporter": ("Hostname", "hostname", "kubernetes_node", "node", "instance"),
    "nvidia_gpu_exporter": ("hostname", "node", "instance"),
}
UUID_LABELS = ("uuid", "UUID")
NO_NODE = "unnamed node"
# UUID of the device, kind and severity.
FindingKey = tuple[str, str, str]


MAX_DIGITS = 18
# Devices without room that are counted.
MOST_LEFT_OUT = 100_000
Key = TypeVar("Key")


class Point(NamedTuple):
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
        """Store a value; of an info metric its labels count."""
        meaning = point.meaning
        self.labels[meaning.exporter] = point.labels
        if meaning.field == "info":
            self.info.update(point.labels)
        self._figures.setdefault(meaning.field, {})[meaning.exporter] = (point.time_s, point.value)

    def read(self, field: str, since_s: float) -> float | None:
        """Return a value that is not older than a moment, of the best exporter that has one."""
        found = self._figures.get(field, {})
        for exporter in EXPORTERS:
            if exporter in found and found[exporter][0] >= since_s:
                return found[exporter][1]
        return None

    def read_bytes(self, field: str, since_s: float) -> int | None:
        """As a whole number."""
        value = self.read(field, since_s)
        return None if value is None else round(value)

    def newest_s(self, fields: Iterable[str]) -> float | None:
        times = (time_s for field in fields for time_s, _ in self._figures.get(field, {}).values())
        return max(times, default=None)

    def is_older(self, before_s: float) -> bool:
        return (self.newest_s(tuple(self._figures)) or 0.0) < before_s

    def label(self, *names: str) -> str | None:
        """Return the first of some labels that exists and is not empty."""
        for exporter in EXPORTERS:
            for name in names:
                if value := self.labels.get(exporter, {}).get(name):
                    return value
        return None


class Room:
    """How many more devices, and other subjects, there may be, of all nodes together."""

    def __init__(self, devices: int, others: int) -> None:
        self._devices = devices
        self._others = others
        # Node and UUID of devices without room.
        self.left_out: set[tuple[str, str]] = set()

    @property
    def is_full(self) -> bool:
        return self._devices <= 0

    def find(self, subjects: dict[Key, Subject], key: Key) -> Subject | None:
        """Return a process, risk or finding, a new one if there is room; else None."""
        found = subjects.get(key)
        if found is None and self._others > 0:
            self._others -= 1
            found = subjects[key] = Subject()
        return found

    def find_device(self, subjects: dict[str, Subject], node: str, uuid: str) -> Subject | None:
        """Return a device, a new one if there is room; else None."""
        found = subjects.get(uuid)
        if found is None and self._devices > 0:
            self._devices -= 1
            found = subjects[uuid] = Subject()
        elif found is None and len(self.left_out) < MOST_LEFT_OUT:
            self.left_out.add((node, uuid))
        return found

    def give_back(self, devices: int = 0, others: int = 0) -> None:
        """Free the room of subjects that are forgotten."""
        self._devices = self._devices + devices
        self._others = self._others + others


class NodeReadings:
    def __init__(self, room: Room) -> None:
        self._room = room
        # By UUID; a MIG instance by the UUID of its GPU and its own number.
        self.devices: dict[str, Subject] = {}
        # By process id.
        self.ranks: dict[str, Subject] = {}
        # The agent's risks of each process, or of a device: by UUID and process id.
        self.risks: dict[tuple[str, str], Subject] = {}
        # How many findings the agent counts, by UUID of the device, kind and severity.
        self.findings: dict[FindingKey, Subject] = {}
        # When each of them was first counted since it was last gone.
        self.first_s: dict[FindingKey, float] = {}
        self.host = Subject()

    def note(self, point: Point) -> None:
        if point.meaning.of == "host":
            self.host.note(point)
        elif point.meaning.of == "rank":
            self._note(self._room.find(self.ranks, point.labels.get("pid", "")), point)
        elif point.meaning.of == "risk":
            key = point.labels.get("uuid", ""), point.labels.get("pid", "")
            self._note(self._room.find(self.risks, key), point)
        elif point.meaning.of == "finding":
            self._note_finding(point)
        elif uuid := name_device(point.labels):
            self._note(self._room.find_device(self.devices, point.node, uuid), point)

    @staticmethod
    def _note(subject: Subject | None, point: Point) -> None:
        named = _name_state(point)
        if subject is not None and named is not None:
            subject.note(named)

    def _note_finding(self, point: Point) -> None:
        names = ("uuid", "kind", "severity")
        uuid, kind, severity = (point.labels.get(name, "") for name in names)
        subject = self._room.find(self.findings, (uuid, kind, severity))
        if subject is not None:
            subject.note(point)
            self.first_s.setdefault((uuid, kind, severity), point.time_s)

    def forget_devices(self, before_s: float) -> None:
        """Forget devices without a value since a moment."""
        gone = [uuid for uuid, it in self.devices.items() if it.is_older(before_s)]
        for uuid in gone:
            del self.devices[uuid]
        self._room.give_back(devices=len(gone))

    def forget(self) -> None:
        """Free the room of the node, which itself is forgotten."""
        self._room.give_back(len(self.devices), len(self.ranks) + len(self.risks) + len(self.findings))

    def forget_findings(self, before_s: float) -> None:
        """Forget findings that are not counted any more."""
        gone = [key for key, it in self.findings.items() if (it.newest_s(("count",)) or 0.0) < before_s]
        for key in gone:
            del self.findings[key], self.first_s[key]
        self._room.give_back(others=len(gone))

    def forget_ranks(self, before_s: float) -> None:
        """Forget processes, and their risks, without a value since a moment."""
        gone = {pid for pid, rank in self.ranks.items() if (rank.newest_s(("up",)) or 0.0) < before_s}
        risks = [key for key, risk in self.risks.items() if key[1] in gone or risk.is_older(before_s)]
        for pid in gone:
            del self.ranks[pid]
        for key in risks:
            del self.risks[key]
        self._room.give_back(others=len(gone) + len(risks))


def name_state(field: str, state: str) -> str:
    """Return the field of one state of a set: those that hold are 1, all others are 0."""
    return f"{field} {state}"


def _name_state(point: Point) -> Point | None:
    """Make a field of each state of a set; None for an unknown state."""
    found = _STATE_LABELS.get(point.meaning.field)
    if found is None:
        return point
    label, states = found
    state = point.labels.get(label, "")
    if state not in states:
        return None
    return point._replace(meaning=point.meaning._replace(field=name_state(point.meaning.field, state)))


def name_device(labels: Mapping[str, str]) -> str | None:
    """Return the key of a device; None if its labels have none."""
    uuid = next((labels[name] for name in UUID_LABELS if labels.get(name)), None)
    if uuid is None:
        return None
    instance = labels.get("GPU_I_ID")
    # nvidia_gpu_exporter leaves out what stands before the number.
    uuid = f"GPU-{uuid}" if "UUID" not in labels and len(uuid) == 36 and uuid[8:9] == "-" else uuid
    return f"{uuid}/{instance}" if instance else uuid


def name_node(exporter: Exporter, labels: Mapping[str, str]) -> str:
    for name in NODE_LABELS[exporter]:
        if value := labels.get(name):
            return strip_port(value) if name == "instance" else value
    return NO_NODE


def strip_port(instance: str) -> str:
    host, colon, port = instance.rpartition(":")
    return host.strip("[]") if colon and port.isdecimal() else instance


def parse_whole(text: str | None) -> int | None:
    """Parse a whole number in a label; None if it is none, or larger than any."""
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > MAX_DIGITS:
        return None
    return int(text)


def meaning_of(labels: Mapping[str, str]) -> Meaning | None:
    return METRICS.get(labels.get("__name__", ""))


METHOD = "counted by its agent (vramscope_findings); its opening time is only known to within a scrape"
ADVICE = "open `vramscope` on that node: it shows the evidence and what to do"


def read_finding(sample: Sample, key: FindingKey, subject: Subject, first_s: float) -> Finding | None:
    """Return what an agent counts as a finding of (UUID, kind, severity); None if its severity is unknown."""
    uuid, kind, named = key
    severity = next((it for it in SEVERITIES if it == named), None)
    if severity is None or not subject.read("count", 0.0):
        return None
    label = subject.label("device")
    where = f" on GPU {label}" if label else ""
    return Finding(
        make_finding_id(f"{kind} {severity}", sample.node, uuid or None, first_s),
        kind,
        sample.node,
        uuid or None,
        label,
        severity,
        f"{kind}{where}, reported by the agent of {sample.node}",
        first_s,
        sample.time_s,
        method=METHOD,
        advice=ADVICE,
    )


def join_findings(found: Iterable[Finding], counted: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return what was found here, and what agents count that was not found here too."""
    found = list(found)
    known = {(it.kind, it.device_uuid) for it in found if it.is_open}
    return order_findings([*found, *(it for it in counted if (it.kind, it.device_uuid) not in known)])


SAID = "reported by its agent"
LEVELS: tuple[RiskLevel, ...] = get_args(RiskLevel)


def read_assessment(
    node: str, key: tuple[str, str], subject: Subject, time_s: float, since_s: float
) -> Assessment | None:
    """Return an agent's risk of (UUID, pid or empty) at a moment; None if it is not current."""
    uuid, pid = key
    level = next((it for it in LEVELS if subject.read(name_state(LEVEL, it), since_s) == 1), None)
    if level is None or (pid and parse_whole(pid) is None):
        return None
    return Assessment(
        node,
        uuid or None,
        subject.label("device"),
        time_s,
        level,
        SAID,
        pid=parse_whole(pid),
        rank=parse_whole(subject.label("rank")),
        memory_source="allocator" if pid else "device",
        horizon_s=subject.read("horizon", since_s),
        probability=subject.read("probability", since_s),
        oom_in_s=subject.read("in", since_s),
        oom_in_low_s=subject.read("in_low", since_s),
        oom_in_high_s=subject.read("in_high", since_s),
    )


def prefer_reported(found: Iterable[Assessment], reported: Sequence[Assessment]) -> tuple[Assessment, ...]:
    """Return the assessments made here, replaced by those of agents if there are any."""
    known = {assessment_key(it): it for it in found}
    for assessment in reported:
        key = assessment_key(assessment)
        known[key] = _amend(known[key], assessment) if key in known else assessment
    return tuple(known.values())


def _amend(found: Assessment, reported: Assessment) -> Assessment:
    """Replace the forecast by the agent's, and keep the levels of memory that were found here."""
    return msgspec.structs.replace(
        found,
        level=reported.level,
        reason=found.reason if found.level == reported.level else reported.reason,
        confidence=None,
        horizon_s=reported.horizon_s,
        probability=reported.probability,
        steps_ahead=None,
        probability_within_steps=None,
        oom_in_s=reported.oom_in_s,
        oom_in_low_s=reported.oom_in_low_s,
        oom_in_high_s=reported.oom_in_high_s,
    )
