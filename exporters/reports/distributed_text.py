"""The report of several nodes as text: a row a device, then how evenly memory is used and who is missing."""

from collections.abc import Iterator

from ...engine.units import format_age, format_bytes
from ..status.job_over_nodes import JobOverNodes
from ..text_table import count
from .distributed import DistributedReport, MasterInfo, WorkerInfo

UNKNOWN = "—"


def tabulate_nodes(report: DistributedReport) -> list[tuple[str, ...]]:
    """Return the head and a row for each device of each node that is there."""
    rows: list[tuple[str, ...]] = [("node", "device", "used", "total", "share", "busy")]
    for node_id, node in report.nodes.items():
        for key, device in node.devices.items():
            rows.append(
                (
                    node_id,
                    key,
                    _gib(device.used_gb),
                    _gib(device.total_gb),
                    _percent(None if device.usage_ratio is None else 100 * device.usage_ratio),
                    _percent(device.utilization_percent),
                )
            )
    return rows


def list_cluster_remarks(report: DistributedReport) -> list[str]:
    """Return what is to be said of the nodes together, in sentences."""
    info = report.cluster_info
    said = list(_list_master(info) if isinstance(info, MasterInfo) else _list_worker(info))
    said += [f"{it.node_id}: {it.severity}, {it.title}" for it in report.oom_events]
    said += [sentence for job in report.jobs for sentence in _list_job(job)]
    return said + report.recommendations


def _list_job(job: JobOverNodes) -> Iterator[str]:
    """Yield what limits a job over several nodes."""
    peaks = {it.stage: it.peak_bytes for it in job.stages}
    for stage in job.bottleneck_stages:
        yield (
            f"job {job.job}: stage {stage} of {len(peaks)} peaks at {format_bytes(peaks[stage])}, "
            f"{peaks[stage] * len(peaks) / sum(peaks.values()):.2f} times the mean of all stages"
        )
    if job.first_diverging is not None:
        yield f"job {job.job}: {job.first_diverging} grew away from its peers first"


def _list_master(info: MasterInfo) -> Iterator[str]:
    yield (
        f"{info.active_nodes} of {count(info.total_nodes, 'node')} there, "
        f"{count(info.total_gpus, 'device')}, {_gib(info.total_memory_usage_gb)} used, "
        f"balance {_describe_balance(info)}, {info.sync_status.replace('_', ' ')}"
    )
    for node in info.inactive_node_list:
        state = "left" if node in info.left_node_list else "silent"
        yield f"{node}: {state}, last heard of {format_age(info.node_ages_s[node])} ago"
    if info.duplicate_reports:
        yield f"{count(info.duplicate_reports, 'report')} under the name of another node left out"
    if info.turned_away:
        yield f"{count(info.turned_away, 'host')} turned away: `vramscope keys allow` lets a key in"
    if info.refused_reports or info.rejected_messages:
        others = info.refused_reports + info.rejected_messages
        yield f"{count(others, 'message')} refused: none of a node, or not allowed, or of too many nodes"


def _describe_balance(info: MasterInfo) -> str:
    is_whole = info.active_nodes == info.total_nodes and info.active_nodes > 1
    return _ratio(info.memory_balance_ratio) if is_whole else "not judged"


def _list_worker(info: WorkerInfo) -> Iterator[str]:
    if info.master_node is not None:
        state = "connected" if info.is_connected else "not connected"
        answered = (
            "" if info.last_answer_age_s is None else f", answered {format_age(info.last_answer_age_s)} ago"
        )
        yield f"master {info.master_node} at {info.master_address}: {state}{answered}"
    if info.trouble is not None:
        yield info.trouble


def _gib(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.1f} GiB"


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f} %"


def _ratio(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"
