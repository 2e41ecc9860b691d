"""The report of `vramscope leak`: growth of device and host memory, and each leak once."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from ...analyzers.findings.evidence import GROWN, PROCESS, RATE, SOURCE, read_process
from ...engine.model import Finding
from ...engine.model.finding import CLOSED_BECAUSE, PROCESS_ENDED
from ...engine.units import MIB, format_age, format_bytes, format_left
from .frame import (
    KINDS,
    EvidenceValue,
    Provenance,
    ReportEvidence,
    ReportFinding,
    describe_evidence,
    describe_findings,
    stamp,
    stamp_now,
)
from .growth import (
    WINDOW,
    UsedTrend,
    describe_used,
    find_rate,
    find_time_to_full,
    fit_floors,
    list_assessments,
)
from .log import DeviceLog, MemorySource, RunLog, add_known

# How much the memory of a device, or of the processes on it, has grown.


class MemoryGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """Growth over the snapshots that are kept, in MiB; None where it was not measured."""

    start_mb: float | None
    end_mb: float | None
    growth_rate_mb_per_min: float | None
    """That of the analyzers, as the live view has it; else that of floors of the newest snapshots."""
    total_growth_mb: float | None


def measure_growth(
    log: RunLog,
    device: DeviceLog,
    window: int,
    what: MemorySource | Literal["resident"],
    *,
    since_s: float | None = None,
) -> MemoryGrowth:
    """Return how one value of a device has grown.

    Args:
        window: Newest snapshots that the rate is fitted to, where the analyzers have none.
        since_s: Look at snapshots from then on only, and fit the rate to these.
    """
    kept = (it for it in device.snapshots if since_s is None or it.time_s >= since_s)
    figures = ((it.time_s, it.resident_bytes if what == "resident" else it.taken_bytes(what)) for it in kept)
    known = [(time_s, float(value)) for time_s, value in figures if value is not None]
    if not known:
        return MemoryGrowth(start_mb=None, end_mb=None, growth_rate_mb_per_min=None, total_growth_mb=None)
    is_of_device = what == device.memory_source and since_s is None
    rate = find_rate(log, device, window) if is_of_device else fit_floors(known[-window:])
    return MemoryGrowth(
        start_mb=known[0][1] / MIB,
        end_mb=known[-1][1] / MIB,
        growth_rate_mb_per_min=None if rate is None else rate * 60.0 / MIB,
        total_growth_mb=(known[-1][1] - known[0][1]) / MIB,
    )


class LeakFigures(NamedTuple):
    """One leak; None if the finding does not have it."""

    leaked_mib: float | None
    rate_mib_per_min: float | None
    sources: tuple[str, ...]


def read_figures(finding: Finding) -> LeakFigures:
    """Return how much has leaked, how fast, and from where."""
    grown = GROWN.read_number(finding)
    rate = RATE.read_number(finding)
    source = SOURCE.read(finding)
    sources = () if source is None else (str(source),)
    return LeakFigures(
        None if grown is None else grown / MIB, None if rate is None else rate * 60.0 / MIB, sources
    )


LEAK_SCHEMA: Final = "vramscope.leak/1"
METHOD = (
    "A leak is growth of live memory at step ends, over several spans at once and by more than it "
    "fluctuates; each is counted once. `leak_risk` is a simple rule, the slope of floors above --threshold "
    "MiB a minute; findings do not depend on it."
)
GROWN_BY_SOURCE = "kept while watched"
"""Evidence of a leak: bytes that its source kept while allocations were recorded."""
MOST_EVENTS = 20
LEAST_SNAPSHOTS = 10
LEAST_SPAN_S = 45.0
"""Below these no slope is reported: a few seconds give no rate a minute."""

LeakSeverity = Literal["medium", "high", "critical"]


class TrackedSource(msgspec.Struct, frozen=True, kw_only=True):
    """One place that kept memory while allocations were recorded."""

    pid: int | None = None
    """The process; None for the one that reports."""
    place: str
    """What a sentence calls it: `evaluate() at train.py:212`, or a type of objects and who holds it."""
    file: str | None
    line: int | None
    function: str | None
    grown_bytes: int | None
    blocks: int | None
    share: float | None
    """Part of all that has grown, 0 to 1."""


class Tracking(msgspec.Struct, frozen=True, kw_only=True):
    """What became of `--enable-tracking`."""

    requested: bool = False
    active: bool = False
    """Whether any process could be asked."""
    reason: str | None = None
    """Why it could not be done, or how it was done."""
    pids: tuple[int, ...] = ()
    sources: tuple[TrackedSource, ...] = ()


class LeakDevice(msgspec.Struct, frozen=True, kw_only=True):
    device_id: int
    device_uuid: str | None
    memory_source: MemorySource
    duration_minutes: float
    data_points: int
    gpu_memory: MemoryGrowth
    python_memory: MemoryGrowth
    """Resident host memory of the processes on it that report."""
    leak_risk: Literal["high", "low"] | None
    """None before ten snapshots and 45 s."""
    open_leaks: int
    device_trend: UsedTrend | None = None
    """How device used goes, where no allocator reports."""


class LeakEvent(msgspec.Struct, frozen=True, kw_only=True):
    timestamp: str | None
    """When it was found; None where the input has no dates."""
    time_s: float
    device_id: int | None
    severity: LeakSeverity
    """By the rate: critical above five times the threshold, high above twice, else medium."""
    leaked_memory_mb: float | None
    leak_rate_mb_per_min: float | None
    potential_sources: list[str]


class RecentLeak(msgspec.Struct, frozen=True, kw_only=True):
    timestamp: float
    device_id: int | None
    severity: LeakSeverity
    leaked_memory_mb: float | None
    leak_rate_mb_per_min: float | None


class LeakSummary(msgspec.Struct, frozen=True, kw_only=True):
    """All devices together; each leak counts once."""

    monitoring_duration_hours: float
    total_leaks_detected: int
    total_leaked_memory_mb: float | None
    leaks_by_device: dict[str, int]
    severity_distribution: dict[str, int]
    leak_rate_per_hour: float | None
    """Leaks found an hour of watching."""
    recent_leak_events: list[RecentLeak]


class LeakReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramscope leak` prints."""

    schema: Literal["vramscope.leak/1"] = LEAK_SCHEMA
    timestamp: str
    monitoring_summary: LeakSummary
    devices: dict[str, LeakDevice]
    leak_events: list[LeakEvent]
    threshold_mb_per_min: float
    """Growth above which `leak_risk` is high."""
    is_threshold_given: bool
    """Whether the user gave it; then `--fail-on` counts a high `leak_risk` as a finding of that severity."""
    recommendations: list[str]
    tracking: Tracking
    method: str = METHOD
    evidence: ReportEvidence
    findings: tuple[ReportFinding, ...]


class LeakRule(msgspec.Struct, frozen=True):
    threshold_mib_per_min: float = 10.0
    window: int = WINDOW
    """Newest snapshots that a rate is fitted to, where the analyzers have none."""
    is_given: bool = False
    """Whether the user gave the threshold."""


def build_leak(
    log: RunLog, provenance: Provenance, rule: LeakRule, tracking: Tracking | None = None
) -> LeakReport:
    leaks = list_leaks(log)
    tracking = tracking or Tracking()
    events = [_describe_event(it, log, rule, tracking) for it in leaks]
    described = describe_findings(log, provenance, KINDS["leak"])
    findings = tuple(_add_sources(it, tracking) for it in described)
    return LeakReport(
        timestamp=stamp_now(),
        monitoring_summary=summarize_leaks(log, rule),
        devices={log.key_of(it): _describe(log, it, provenance, rule) for it in log.devices.values()},
        leak_events=events[-MOST_EVENTS:],
        threshold_mb_per_min=rule.threshold_mib_per_min,
        is_threshold_given=rule.is_given,
        recommendations=_recommend(log, rule, findings, tracking),
        tracking=tracking,
        evidence=describe_evidence(log, provenance),
        findings=findings,
    )


def list_leaks(log: RunLog) -> list[Finding]:
    """Return the leaks of a period, each once, in the order in which they were found."""
    kinds = KINDS["leak"] or frozenset()
    found = (log.renew(it.finding) for it in log.findings.values() if it.finding.kind in kinds)
    return sorted(found, key=lambda finding: (finding.opened_s, finding.id))


def summarize_leaks(log: RunLog, rule: LeakRule) -> LeakSummary:
    leaks = list_leaks(log)
    figures = [read_figures(leak) for leak in leaks]
    hours = log.span_s / 3600.0
    severities = Counter(judge_rate(it, rule) for it in figures)
    return LeakSummary(
        monitoring_duration_hours=hours,
        total_leaks_detected=len(leaks),
        total_leaked_memory_mb=add_known([it.leaked_mib for it in figures]) if leaks else 0.0,
        leaks_by_device=dict(Counter(_key_of(log, leak) for leak in leaks)),
        severity_distribution={name: severities[name] for name in ("medium", "high", "critical")},
        leak_rate_per_hour=len(leaks) / hours if hours > 0 else None,
        recent_leak_events=[
            RecentLeak(
                timestamp=leak.opened_s,
                device_id=_index_of(log, leak),
                severity=judge_rate(figure, rule),
                leaked_memory_mb=figure.leaked_mib,
                leak_rate_mb_per_min=figure.rate_mib_per_min,
            )
            for leak, figure in list(zip(leaks, figures, strict=True))[-MOST_EVENTS:]
        ],
    )


def judge_rate(figures: LeakFigures, rule: LeakRule) -> LeakSeverity:
    """Return the severity on the scale of the original reports, which is the rate over the threshold."""
    rate = figures.rate_mib_per_min or 0.0
    if rate > 5.0 * rule.threshold_mib_per_min:
        return "critical"
    return "high" if rate > 2.0 * rule.threshold_mib_per_min else "medium"


def _describe(log: RunLog, device: DeviceLog, provenance: Provenance, rule: LeakRule) -> LeakDevice:
    gpu = measure_growth(log, device, rule.window, device.memory_source)
    span_s = 0.0 if device.first_s is None or device.last_s is None else device.last_s - device.first_s
    open_leaks = [it for it in list_leaks(log) if it.is_open and it.device_uuid == device.uuid]
    risk: Literal["high", "low"] | None = None
    if device.count >= LEAST_SNAPSHOTS and span_s >= LEAST_SPAN_S and gpu.growth_rate_mb_per_min is not None:
        risk = "high" if gpu.growth_rate_mb_per_min > rule.threshold_mib_per_min else "low"
    return LeakDevice(
        device_id=device.index,
        device_uuid=provenance.uuid_of(device.uuid),
        memory_source=device.memory_source,
        duration_minutes=span_s / 60.0,
        data_points=device.count,
        gpu_memory=gpu,
        python_memory=measure_growth(log, device, rule.window, "resident"),
        leak_risk=risk,
        open_leaks=len(open_leaks),
        device_trend=describe_used(log, device),
    )


def _describe_event(leak: Finding, log: RunLog, rule: LeakRule, tracking: Tracking) -> LeakEvent:
    figures = read_figures(leak)
    process, _ = read_process(leak)
    tracked = [source.place for source in _sources_of(leak.kind, process, tracking)]
    return LeakEvent(
        timestamp=stamp(leak.opened_s, None if log.last is None else log.last.clock),
        time_s=leak.opened_s,
        device_id=_index_of(log, leak),
        severity=judge_rate(figures, rule),
        leaked_memory_mb=figures.leaked_mib,
        leak_rate_mb_per_min=figures.rate_mib_per_min,
        potential_sources=list(dict.fromkeys((*figures.sources, *tracked))),
    )


def _sources_of(kind: str, process: object, tracking: Tracking) -> list[TrackedSource]:
    """Return what tracking found about one leak: of its process, and of device memory only."""
    return [it for it in tracking.sources if kind == "leak" and it.pid in (None, process)]


def _add_sources(finding: ReportFinding, tracking: Tracking) -> ReportFinding:
    """Return a finding whose evidence names the source that tracking found, unless it has one."""
    process = finding.evidence.get(PROCESS.name)
    sources = _sources_of(finding.kind, None if process is None else process.value, tracking)
    if not sources or SOURCE.name in finding.evidence:
        return finding
    named = {
        SOURCE.name: EvidenceValue(sources[0].place, ""),
        GROWN_BY_SOURCE: EvidenceValue(sources[0].grown_bytes, "bytes"),
    }
    return msgspec.structs.replace(finding, evidence={**finding.evidence, **named})


def describe_seen_growth(log: RunLog, device: DeviceLog, rule: LeakRule) -> list[str]:
    """Return in sentences what grows on a device and is not a proven leak: how fast, and what is unknown.

    Args:
        rule: Growth below its threshold is left out.
    """
    leaking = {
        leak.kind for leak in list_leaks(log) if leak.is_open and leak.device_uuid in (device.uuid, None)
    }
    span_s = 0.0 if device.first_s is None or device.last_s is None else device.last_s - device.first_s
    name = f"device {log.key_of(device)}"
    said = []
    gpu = measure_growth(log, device, rule.window, device.memory_source)
    trend = describe_used(log, device)
    if "leak" not in leaking and trend is not None and trend.rate_mb_per_min is not None:
        said.append(f"The used memory of {name} is {trend.text}. {_doubt(device, span_s)}")
    elif "leak" not in leaking and _is_above(gpu, rule):
        what = "live memory" if device.memory_source == "allocator" else "used memory"
        said.append(
            f"The {what} of {name} grows by {_describe_rate(gpu)}, {_describe_way(gpu)} in "
            f"{format_age(span_s)}{_describe_end(log, device, gpu)}. {_doubt(device, span_s)}"
        )
    host = measure_growth(log, device, rule.window, "resident")
    if "host_leak" not in leaking and _is_above(host, rule) and span_s >= LEAST_SPAN_S:
        said.append(
            f"The host memory of the processes on {name} grows by {_describe_rate(host)}, "
            f"{_describe_way(host)} in {format_age(span_s)}: not yet a proven leak. Watch longer; look "
            "for lists that keep batches or results, and for unbounded caches"
        )
    return said


def _is_above(growth: MemoryGrowth, rule: LeakRule) -> bool:
    rate = growth.growth_rate_mb_per_min
    total = growth.total_growth_mb
    return rate is not None and total is not None and rate > rule.threshold_mib_per_min and total > 0


def _describe_rate(growth: MemoryGrowth) -> str:
    return f"{growth.growth_rate_mb_per_min or 0.0:,.0f} MiB a minute"


def _describe_way(growth: MemoryGrowth) -> str:
    ends = (format_bytes(round((value or 0.0) * MIB)) for value in (growth.start_mb, growth.end_mb))
    return "from {} to {}".format(*ends)


def _describe_end(log: RunLog, device: DeviceLog, growth: MemoryGrowth) -> str:
    """Return when memory runs out by the forecast; without one, when the device would be full."""
    ends = [it.oom_in_s for it in list_assessments(log, device) if it.oom_in_s is not None]
    if ends:
        return f"; out of memory in {format_left(min(ends))} if it goes on"
    rate = growth.growth_rate_mb_per_min
    full_s = find_time_to_full(log, device, None if rate is None else rate * MIB / 60.0)
    return "" if full_s is None else f"; at this rate the device is full in {format_left(full_s)}"


def _doubt(device: DeviceLog, span_s: float) -> str:
    """Return what is unknown about growth, and how to find out."""
    if span_s < LEAST_SPAN_S:
        return "The job may still be starting: watch for some minutes"
    if device.memory_source == "device":
        return (
            "Device memory alone cannot distinguish a leak from a filling cache: start the job with "
            "`vramscope run` (or `vramscope attach PID`) to see what is live at the end of each step"
        )
    return (
        "It is not yet a proven leak: watch longer, and find the line that keeps the memory with "
        "--enable-tracking; look for losses kept without .item() and for lists of tensors"
    )


def _recommend(
    log: RunLog, rule: LeakRule, findings: Sequence[ReportFinding], tracking: Tracking
) -> list[str]:
    said = [it.advice for it in findings if it.advice and not _has_stopped(it)]
    said += [text for device in log.devices.values() for text in describe_seen_growth(log, device, rule)]
    said += [f"Look at {source.place}: memory allocated there is not freed" for source in tracking.sources]
    return list(dict.fromkeys(said))


def _has_stopped(finding: ReportFinding) -> bool:
    """Return whether growth has ended although its process goes on: then there is nothing to look for."""
    because = finding.evidence.get(CLOSED_BECAUSE)
    return finding.closed_s is not None and (because is None or because.value != PROCESS_ENDED)


def _index_of(log: RunLog, leak: Finding) -> int | None:
    device = log.devices.get(leak.device_uuid or "")
    return None if device is None else device.index


def _key_of(log: RunLog, leak: Finding) -> str:
    device = log.devices.get(leak.device_uuid or "")
    return (leak.device or "host") if device is None else log.key_of(device)
