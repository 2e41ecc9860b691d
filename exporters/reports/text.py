"""Reports as text for people: a table of the devices, the findings with what to do, what it rests on."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias, Union

from ...analyzers.finding_words import name_kind
from ...analyzers.floors.rate import LEAST_MOMENTS
from ...analyzers.sentence import count
from ...engine.model.finding import BELIEVED
from ...engine.text import make_printable
from ...engine.units import format_age, format_bytes, format_left
from ..stack_text import cut_middle
from ..text import MARKS, UNKNOWN, format_rows, show_number, wrap
from .distributed import DistributedReport, list_cluster_remarks, tabulate_nodes
from .fragment import FragmentDevice, FragmentReport, FragmentTrend
from .frame import ReportEvidence, ReportFinding
from .leak import LeakReport
from .oom import MemoryTrends, OomReport, RiskAssessment
from .profile import ProfileReport

# Any report of the suite.

Report: TypeAlias = Union[ProfileReport, OomReport, LeakReport, FragmentReport, DistributedReport]  # noqa: UP007 - an alias
"""What a verb of the suite prints."""


Rows = list[tuple[str, ...]]


def describe_report(report: Report, width: int) -> str:
    """Return a report as lines of a width, with a newline at the end."""
    rows, alignment = _tabulate(report)
    lines = wrap(_headline(report.evidence), width)
    lines += ["", *format_rows(rows, alignment, width)] if len(rows) > 1 else ["", "  no device found"]
    lines += [line for remark in _list_remarks(report) for line in wrap(remark, width, "  ")]
    if isinstance(report, ProfileReport) and report.phases:
        lines += ["", *format_rows(_tabulate_phases(report, width), "llrrrrr", width)]
    lines += ["", *_list_findings(report.findings, width, report.evidence.clock)]
    lines += _list_recommendations(report, width)
    if isinstance(report, LeakReport) and report.tracking.requested:
        lines += ["", *_list_tracking(report, width)]
    for note in report.evidence.notes:
        lines += wrap(note, width, "  ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _headline(evidence: ReportEvidence) -> str:
    where = {
        "agent": "from the agent of this node",
        "driver": "from the driver, device memory alone",
        "process": "from the driver and the allocator of this process",
        "input": f"from {evidence.input} ({evidence.format})",
    }[evidence.source]
    span_s = (
        0.0 if evidence.first_s is None or evidence.last_s is None else evidence.last_s - evidence.first_s
    )
    return f"{count(evidence.samples, 'sample')} over {format_age(span_s)} {where}"


def _tabulate(report: Report) -> tuple[Rows, str]:
    if isinstance(report, ProfileReport):
        return _tabulate_profile(report), "lrrrrrrl"
    if isinstance(report, OomReport):
        return _tabulate_oom(report), "llrrr"
    if isinstance(report, LeakReport):
        return _tabulate_leak(report), "llrrrrl"
    if isinstance(report, DistributedReport):
        return tabulate_nodes(report), "llrrrr"
    return _tabulate_fragment(report), "llrlrrl"


def _list_remarks(report: Report) -> list[str]:
    """Return remarks on devices: why a risk is at its level, why nothing was measured."""
    said: dict[str, list[str]] = {}
    if isinstance(report, DistributedReport):
        return list_cluster_remarks(report)
    if isinstance(report, OomReport | LeakReport | ProfileReport):
        for key, trend in ((key, it.device_trend) for key, it in report.devices.items()):
            if trend is not None:
                said.setdefault(f"used memory {trend.text}", []).append(key)
    if isinstance(report, OomReport):
        for key, device in report.devices.items():
            risk = device.risk_assessment
            alone = f"; {risk.risk_level} by usage alone" if risk.basis == "threshold" else ""
            said.setdefault(f"{risk.reason}{alone}", []).append(key)
    elif isinstance(report, ProfileReport):
        for key, text in _list_headroom(report):
            said.setdefault(text, []).append(key)
    elif isinstance(report, FragmentReport):
        for key, told in report.devices.items():
            if told.current_metrics.reason is not None:
                said.setdefault(told.current_metrics.reason, []).append(key)
    return [f"{', '.join(keys)}: {text}" for text, keys in said.items()]


def _list_headroom(report: ProfileReport) -> Iterator[tuple[str, str]]:
    """Yield devices with what would fit on them."""
    for key, processes in report.headroom.items():
        for process in processes:
            who = f"rank {process.rank}" if process.rank is not None else f"process {process.pid}"
            for estimate in process.estimates:
                yield key, f"{who}: {estimate.sentence}"


def _tabulate_profile(report: ProfileReport) -> Rows:
    rows: Rows = [("device", "allocated", "total", "used", "peak", "average", "fragmented", "of")]
    for key, device in report.devices.items():
        now = device.current_memory
        all_ = device.statistics
        # The peak and the share may be of different memory: live bytes, and all that the device has in use.
        measure = device.utilization_of or "used"
        peak = device.peak_memory
        peak_of = "used" if device.memory_source == "device" else "allocated"
        rows.append(
            (
                key,
                format_bytes(now.allocated),
                format_bytes(now.total),
                show_number(now.utilization, ".1f", " %" if measure == "used" else f" % {measure}"),
                UNKNOWN if peak is None else f"{format_bytes(peak)} {peak_of}",
                show_number(all_.avg_utilization, ".1f", f" % {measure}"),
                _share(all_.avg_fragmentation),
                device.memory_source,
            )
        )
    return rows


def _tabulate_phases(report: ProfileReport, width: int) -> Rows:
    """Return the named parts of each program: the newest call, and the peak of all."""
    rows: Rows = [("phase", "of", "peak", "before", "after", "change", "calls")]
    for phase in report.phases:
        who = f"device {phase.device_id}" if phase.pid is None else f"process {phase.pid}"
        change = phase.difference_allocated
        sign = "" if change is None else "-" if change < 0 else "+"
        is_bound = phase.peak_allocated is not None and not phase.is_peak_exact
        rows.append(
            (
                cut_middle(make_printable(phase.phase), max(8, width // 4)),
                f"rank {phase.rank}" if phase.rank is not None else who,
                ("≥ " if is_bound else "") + format_bytes(phase.peak_allocated),
                format_bytes(phase.before_allocated),
                format_bytes(phase.after_allocated),
                sign + format_bytes(None if change is None else abs(change)),
                f"{phase.calls:,}",
            )
        )
    return rows


def _tabulate_oom(report: OomReport) -> Rows:
    rows: Rows = [("device", "risk", "used", "growth", "error in")]
    for key, device in report.devices.items():
        risk = device.risk_assessment
        trend = device.memory_trends
        # By usage alone only thresholds that the user gave make a level; else the live view has none either.
        level = risk.risk_level if report.is_threshold_given else risk.forecast
        peaks = risk.peak_growth_rate_mb_per_sec
        rows.append(
            (
                key,
                f"{MARKS.risks[level]} {level}",
                show_number(risk.current_usage_percent, ".1f", " %"),
                f"{peaks:+,.2f} MiB/s (peaks)"
                if peaks
                else _growth(
                    risk.growth_rate_mb_per_sec,
                    "MiB/s",
                    trend.data_points if isinstance(trend, MemoryTrends) else 0,
                ),
                _interval(risk.predicted_oom_time_low_seconds, risk.predicted_oom_time_high_seconds)
                + (" if it goes on" if _is_doubted(risk) else ""),
            )
        )
    return rows


def _tabulate_leak(report: LeakReport) -> Rows:
    # No word of risk: the rule behind `leak_risk` also counts what the driver shows, and a cache that fills.
    over = f"over {report.threshold_mb_per_min:g} MiB/min"
    rows: Rows = [("device", over, "from", "to", "growth", "leaks", "host growth")]
    for key, device in report.devices.items():
        gpu = device.gpu_memory
        host = device.python_memory
        rows.append(
            (
                key,
                {"high": "yes", "low": "no"}.get(device.leak_risk or "", "unknown"),
                show_number(gpu.start_mb, ",.1f", " MiB"),
                show_number(gpu.end_mb, ",.1f", " MiB"),
                _growth(gpu.growth_rate_mb_per_min, "MiB/min", device.data_points),
                str(device.open_leaks),
                show_number(host.growth_rate_mb_per_min, "+,.2f", " MiB/min"),
            )
        )
    return rows


def _tabulate_fragment(report: FragmentReport) -> Rows:
    rows: Rows = [("device", "level", "ratio", "of", "stranded", "cached", "trend")]
    for key, device in report.devices.items():
        now = device.current_metrics
        rows.append(
            (
                key,
                now.fragmentation_level or "not measured",
                _share(now.fragmentation_ratio),
                now.measure or UNKNOWN,
                show_number(now.stranded_mb, ",.1f", " MiB"),
                show_number(now.cached_mb, ",.1f", " MiB"),
                _word_trend(device),
            )
        )
    return rows


def _word_trend(device: FragmentDevice) -> str:
    """Return how the ratio went; with the name of its measure if that differs."""
    trend = device.trend_analysis
    if not isinstance(trend, FragmentTrend) or device.current_metrics.fragmentation_ratio is None:
        return UNKNOWN
    is_same = trend.measure == device.current_metrics.measure
    return trend.trend_description if is_same else f"{trend.trend_description} ({trend.measure})"


def _list_findings(findings: Sequence[ReportFinding], width: int, clock: str | None) -> list[str]:
    if not findings:
        return ["no findings"]
    lines = [count(len(findings), "finding")]
    for finding in findings:
        state = "" if finding.closed_s is None else ", closed"
        mark = MARKS.risks[finding.severity]
        head = f"{mark} {finding.severity} {name_kind(finding.kind)}{state}: {finding.title}"
        lines += wrap(head, width, "  ")
        if finding.advice and finding.closed_s is None:
            lines += wrap(finding.advice, width, "      ")
    return lines


def _list_recommendations(report: Report, width: int) -> list[str]:
    """Return what the report recommends beyond the advice of its findings."""
    said: dict[str, list[str]] = {}
    if isinstance(report, FragmentReport):
        for key, device in report.devices.items():
            if device.current_metrics.reason is None:
                for text in device.recommendations.recommendations:
                    said.setdefault(text, []).append(key)
    elif isinstance(report, OomReport | LeakReport):
        said = {text: [] for text in report.recommendations}
    known = {finding.advice for finding in report.findings if finding.closed_s is None}
    lines = [
        f"{', '.join(keys)}: {text}" if keys else text for text, keys in said.items() if text not in known
    ]
    if not lines:
        return []
    return ["", "what to do", *(line for text in lines for line in wrap(text, width, "  "))]


def _list_tracking(report: LeakReport, width: int) -> list[str]:
    tracking = report.tracking
    lines = wrap(f"tracking: {tracking.reason}", width) if tracking.reason else ["tracking"]
    for source in tracking.sources:
        share = "" if source.share is None else f", {100 * source.share:.0f} % of the growth"
        lines += wrap(f"{source.place} kept {format_bytes(source.grown_bytes)}{share}", width, "  ")
    return lines


def _share(value: float | None) -> str:
    return show_number(None if value is None else 100 * value, ".1f", " %")


def _growth(value: float | None, unit: str, samples: int) -> str:
    """Return a rate, or why there is none: two samples always fit a line."""
    is_short = value is None and 0 < samples < LEAST_MOMENTS
    return f"{count(samples, 'sample')}: no rate" if is_short else show_number(value, "+,.2f", f" {unit}")


def _is_doubted(risk: RiskAssessment) -> bool:
    """Return whether growth is not believed to go on until the error that is forecast."""
    has_time = risk.predicted_oom_time_seconds is not None
    return has_time and risk.confidence is not None and risk.confidence < BELIEVED


def _interval(low_s: float | None, high_s: float | None) -> str:
    if low_s is None:
        return UNKNOWN
    return format_left(low_s) if high_s is None else f"{format_left(low_s)}–{format_left(high_s)}"
