"""The report of several nodes: how evenly memory is used, which node has most, and what threatens them."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from ...analyzers.balance import BOTTLENECK_FACTOR, UNEVEN_BELOW, Scope, find_bottlenecks, measure_balance
from ...analyzers.sentence import count
from ...engine.model import DeviceSample
from ...engine.units import GIB, format_age, format_bytes
from ...engine.wire.messages import NodeReport
from ..status.guard import JobOverNodes
from ..text import show_number
from .frame import ReportEvidence, ReportFinding
from .log import add_known

if TYPE_CHECKING:
    from ...engine.cluster.distributed import NodeRoll  # which loads ZeroMQ

DISTRIBUTED_SCHEMA: Final = "vramscope.distributed/1"
METHOD = (
    "Balance is 1 minus the coefficient of variation of the used share of all devices; a bottleneck is a "
    f"node whose devices are on average {BOTTLENECK_FACTOR} times as full as all devices. In sync means that "
    "every node has a current report; a node without one for longer than the timeout is a communication "
    "error. Events are out-of-memory errors, forecast or met, each reported once by the analyzers of its "
    "node."
)
SyncStatus = Literal["in_sync", "out_of_sync", "communication_error", "unknown"]


class DeviceShare(msgspec.Struct, frozen=True, kw_only=True):
    """One device now, in GiB; None is unmeasured."""

    total_gb: float | None
    used_gb: float | None
    free_gb: float | None
    utilization_percent: float | None
    """Share of time in which its processors worked."""
    usage_ratio: float | None
    """Share of its memory that is used, 0 to 1."""


class NodeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """All devices of a node; sums leave out what is not known."""

    total_memory_gb: float | None
    used_memory_gb: float | None
    free_memory_gb: float | None
    average_utilization: float | None


class NodeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """One node now."""

    node_id: str
    timestamp: float
    """Its own wall clock, in seconds since the epoch."""
    devices: dict[str, DeviceShare]
    node_summary: NodeSummary


class NoNodeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was seen of a node yet."""

    error: str


class MasterInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster, as the node that gathers sees it."""

    cluster_id: str
    master_node: str
    total_nodes: int
    active_nodes: int
    inactive_nodes: int
    active_node_list: list[str]
    inactive_node_list: list[str]
    left_node_list: list[str]
    """Inactive nodes that ended their watch and said so."""
    node_ages_s: dict[str, float]
    """Seconds since the newest report of each node."""
    total_gpus: int
    last_sync_time: float | None
    """When the newest report of another node came, seconds since the epoch; None before the first."""
    global_step: int | None
    """The least step of the nodes that are there, as their probes count."""
    memory_balance_ratio: float | None
    sync_status: SyncStatus
    bottleneck_nodes: list[str]
    total_memory_usage_gb: float | None
    refused_reports: int
    """Reports of nodes beyond the most that one gathers."""
    duplicate_reports: int
    """Reports under the name of another, present node."""
    turned_away: int
    """Addresses that knock with a key that is not allowed."""
    rejected_messages: int
    """Messages that were no reports, or of keys that may not report."""


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A node that reports to a master, or to none."""

    role: str
    node_id: str
    master_address: str | None
    master_node: str | None
    """Name of the node that answered; None where none has."""
    is_connected: bool
    """Whether the newest report was answered in time."""
    last_answer_age_s: float | None
    """Seconds since the newest answer; None where there was none."""
    total_nodes: int | None
    """Nodes that the other knows, as of that answer."""
    trouble: str | None
    """Why reports are not accepted now, in one sentence."""


class MemoryAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """How memory is used over the nodes that are there."""

    memory_balance_ratio: float | None
    sync_status: SyncStatus
    bottleneck_nodes: list[str]
    total_memory_usage_gb: float | None
    global_step: int | None


class ClusterOomEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An out-of-memory error, forecast or met."""

    timestamp: str
    node_id: str
    device_id: int | None
    oom_type: Scope
    affected_nodes: list[str]
    recovery_actions: list[str]
    kind: str
    severity: str
    title: str


class DistributedReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `DistributedMemoryMonitor.generate_distributed_report` returns."""

    schema: Literal["vramscope.distributed/1"] = DISTRIBUTED_SCHEMA
    timestamp: str
    report_type: Literal["distributed_memory_monitoring"] = "distributed_memory_monitoring"
    cluster_info: MasterInfo | WorkerInfo
    node_details: NodeDetails | NoNodeDetails
    nodes: dict[str, NodeDetails]
    """Every node that is there, this one included."""
    memory_analysis: MemoryAnalysis
    oom_events: list[ClusterOomEvent]
    recommendations: list[str]
    method: str = METHOD
    evidence: ReportEvidence
    findings: tuple[ReportFinding, ...]
    jobs: tuple[JobOverNodes, ...] = ()
    """Jobs of two ranks or more whose probes report: their stages, and the rank that grew away first."""


def describe_node(report: NodeReport | None) -> NodeDetails | NoNodeDetails:
    return NoNodeDetails(error="No memory data available") if report is None else detail_node(report)


def detail_node(report: NodeReport) -> NodeDetails:
    known = report.sample.devices
    return NodeDetails(
        node_id=report.node_id,
        timestamp=report.sample.time_s,
        devices={_key_of(it, known): _describe_device(it) for it in known},
        node_summary=NodeSummary(
            total_memory_gb=_sum_gib(it.memory.total_bytes for it in known),
            used_memory_gb=_sum_gib(it.memory.used_bytes for it in known),
            free_memory_gb=_sum_gib(it.memory.free_bytes for it in known),
            average_utilization=_mean([it.utilization_percent for it in known]),
        ),
    )


def analyze_nodes(reports: Sequence[NodeReport], sync_status: SyncStatus) -> MemoryAnalysis:
    ratios = {
        it.node_id: [ratio for device in it.sample.devices if (ratio := _find_ratio(device)) is not None]
        for it in reports
    }
    steps = [it.step for it in reports if it.step is not None]
    return MemoryAnalysis(
        memory_balance_ratio=measure_balance([ratio for its in ratios.values() for ratio in its]),
        sync_status=sync_status,
        bottleneck_nodes=list(find_bottlenecks(ratios)),
        total_memory_usage_gb=_sum_gib(
            it.memory.used_bytes for node in reports for it in node.sample.devices
        ),
        global_step=min(steps, default=None),
    )


def judge_sync(roll: "NodeRoll", own_id: str) -> SyncStatus:
    """Return whether the values of all nodes are of one moment; unknown for a single node."""
    if not set(roll.find("here", "late", "silent")) - {own_id}:
        return "unknown"
    if roll.find("silent"):
        return "communication_error"
    return "out_of_sync" if roll.find("late") else "in_sync"


def recommend(
    analysis: MemoryAnalysis,
    silent_s: Mapping[str, float],
    events: Sequence[ClusterOomEvent],
    *,
    doubt: str | None = None,
    whole: str = "the cluster",
) -> list[str]:
    """Return what to do, in sentences; the most severe first.

    Args:
        doubt: Why the balance of all nodes cannot be judged, in a sentence; None where it can.
    """
    said = list(dict.fromkeys(f"{it.node_id}: {action}" for it in events for action in it.recovery_actions))
    if silent_s:
        nodes = ", ".join(f"{node} for {format_age(age_s)}" for node, age_s in silent_s.items())
        said.append(f"No report from {nodes}: check whether the node and its watch still run")
    if analysis.bottleneck_nodes:
        said.append(
            f"Bottleneck nodes detected: {', '.join(analysis.bottleneck_nodes)}; move load away from them"
        )
    if analysis.memory_balance_ratio is not None and analysis.memory_balance_ratio < UNEVEN_BELOW:
        said.append("Memory usage is unbalanced across devices: redistribute layers or adjust batch sizes")
    if doubt is not None:
        said.append(doubt)
    if not said and analysis.memory_balance_ratio is not None:
        said.append(f"Memory usage is well balanced across {whole}")
    return said


def doubt_balance(present: int, known: int, turned_away: int) -> str | None:
    """Return why the balance of the nodes cannot be judged at the master; None where it can.

    Args:
        turned_away: Messages and connections that were refused: each may be a node that is missing here.
    """
    verb = "reports" if present == 1 else "report"
    refused = f", with {count(turned_away, 'refusal')}" if turned_away else ""
    if present < 2:
        return f"{present} of {count(known, 'node')} {verb}{refused}: the balance between nodes is unknown"
    if present < known or turned_away:
        return f"{present} of {count(known, 'node')} {verb}{refused}: the balance of all nodes is unknown"
    return None


def _key_of(device: DeviceSample, others: Sequence[DeviceSample]) -> str:
    """Return its index, or its label where another device has the same index, as partitions of one GPU do."""
    is_shared = sum(it.index == device.index for it in others) > 1
    return device.label if is_shared else str(device.index)


def _describe_device(device: DeviceSample) -> DeviceShare:
    memory = device.memory
    return DeviceShare(
        total_gb=_sum_gib([memory.total_bytes]),
        used_gb=_sum_gib([memory.used_bytes]),
        free_gb=_sum_gib([memory.free_bytes]),
        utilization_percent=device.utilization_percent,
        usage_ratio=_find_ratio(device),
    )


def _find_ratio(device: DeviceSample) -> float | None:
    used = device.memory.used_bytes
    total = device.memory.total_bytes
    return used / total if total and used is not None else None


def _sum_gib(values: Iterable[int | None]) -> float | None:
    total = add_known(values)
    return None if total is None else total / GIB


def _mean(values: Sequence[float | None]) -> float | None:
    known = [it for it in values if it is not None]
    return math.fsum(known) / len(known) if known else None


# The report of several nodes as text: a row a device, then how evenly memory is used and who is missing.


def tabulate_nodes(report: DistributedReport) -> list[tuple[str, ...]]:
    """Return the head and a row for each device of each node that is there."""
    rows: list[tuple[str, ...]] = [("node", "device", "used", "total", "share", "busy")]
    for node_id, node in report.nodes.items():
        for key, device in node.devices.items():
            rows.append(
                (
                    node_id,
                    key,
                    show_number(device.used_gb, ",.1f", " GiB"),
                    show_number(device.total_gb, ",.1f", " GiB"),
                    show_number(
                        None if device.usage_ratio is None else 100 * device.usage_ratio, ".1f", " %"
                    ),
                    show_number(device.utilization_percent, ".1f", " %"),
                )
            )
    return rows


def list_cluster_remarks(report: DistributedReport) -> list[str]:
    """Return remarks on the nodes together, in sentences."""
    info = report.cluster_info
    said = list(_list_master(info) if isinstance(info, MasterInfo) else _list_worker(info))
    said += [f"{it.node_id}: {it.severity}, {it.title}" for it in report.oom_events]
    said += [sentence for job in report.jobs for sentence in _list_job(job)]
    return said + report.recommendations


def _list_job(job: JobOverNodes) -> Iterator[str]:
    peaks = {it.stage: it.peak_bytes for it in job.stages}
    for stage in job.bottleneck_stages:
        yield (
            f"job {job.job}: stage {stage} of {len(peaks)} peaks at {format_bytes(peaks[stage])}, "
            f"{peaks[stage] * len(peaks) / sum(peaks.values()):.2f} times the mean of all stages"
        )
    if job.first_diverging is not None:
        yield f"job {job.job}: {job.first_diverging} grew away from its peers first"


def _list_master(info: MasterInfo) -> Iterator[str]:
    used = show_number(info.total_memory_usage_gb, ",.1f", " GiB")
    yield (
        f"{info.active_nodes} of {count(info.total_nodes, 'node')} present, "
        f"{count(info.total_gpus, 'device')}, {used} used, "
        f"balance {_describe_balance(info)}, {info.sync_status.replace('_', ' ')}"
    )
    for node in info.inactive_node_list:
        state = "left" if node in info.left_node_list else "silent"
        yield f"{node}: {state}, last report {format_age(info.node_ages_s[node])} ago"
    if info.duplicate_reports:
        yield f"ignored {count(info.duplicate_reports, 'report')} under the name of another node"
    if info.turned_away:
        yield f"{count(info.turned_away, 'host')} rejected: `vramscope keys allow` accepts a key"
    if info.refused_reports or info.rejected_messages:
        others = info.refused_reports + info.rejected_messages
        yield f"rejected {count(others, 'message')}: not from a node, not allowed, or from too many nodes"


def _describe_balance(info: MasterInfo) -> str:
    is_whole = info.active_nodes == info.total_nodes and info.active_nodes > 1
    return show_number(info.memory_balance_ratio, ".2f") if is_whole else "unknown"


def _list_worker(info: WorkerInfo) -> Iterator[str]:
    if info.master_node is not None:
        state = "connected" if info.is_connected else "not connected"
        answered = (
            "" if info.last_answer_age_s is None else f", answered {format_age(info.last_answer_age_s)} ago"
        )
        yield f"master {info.master_node} at {info.master_address}: {state}{answered}"
    if info.trouble is not None:
        yield info.trouble
