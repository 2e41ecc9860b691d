"""How near a device is to running out of memory, as far as known."""

import math
from collections.abc import Iterable, Sequence

import msgspec

from ..engine.model import (
    SEVERITIES,
    AllocatorReading,
    Assessment,
    DeviceSample,
    DeviceTrend,
    Finding,
    RankSample,
    RiskLevel,
    Sample,
)
from ..engine.units import format_age
from .findings.evidence import JOB, TIME_LEFT, read_process
from .findings.lifecycle import grade_time_left
from .out_of_memory import KINDS as MET
from .out_of_memory import OOM_MET, RETRIES
from .replay_capacity import KIND as CAPACITY
from .trend_words import NO_ALLOCATOR_DATA

# Kinds of findings that are about running out of memory.
DECISIVE = ("oom", CAPACITY, OOM_MET, RETRIES)
# Kinds that are about memory that grows.
GROWTH = ("leak", "divergence")
# Severities from which a finding on fragmentation says that steps may find no room.
ENDANGERED = ("high", "critical")
# From the least to the most worrying: unknown outweighs known to be low.
LEVELS: tuple[RiskLevel, ...] = ("low", "unknown", *SEVERITIES[1:])

_UNKNOWN = LEVELS.index("unknown")


class Risk(msgspec.Struct, frozen=True):
    """Risk of running out of memory, with its reason."""

    level: RiskLevel
    # A few words for a person; where it comes from a finding, the finding's own sentence.
    reason: str
    # When memory is expected to run out, in the samples' own clock; None without a forecast.
    oom_s: float | None = None
    # How used memory goes, where the level is unknown because nothing but that is known.
    trend: DeviceTrend | None = None

    @property
    def lacks_probe(self) -> bool:
        """Whether it is unknown for want of a process that reports its allocator."""
        return self.level == "unknown" and self.reason == NO_ALLOCATOR_DATA

    def time_left_s(self, now_s: float) -> float | None:
        """Return the whole seconds that are left; None below medium risk and without a forecast."""
        if self.oom_s is None or LEVELS.index(self.level) <= _UNKNOWN:
            return None
        return float(max(0, round(self.oom_s - now_s)))


def assess_risks(
    devices: Iterable[DeviceSample],
    findings: Iterable[Finding],
    assessments: Iterable[Assessment] = (),
    ranks: Sequence[RankSample] = (),
) -> dict[str, Risk]:
    """Return the out-of-memory risk of each device by its UUID, as `assess_risk`.

    Each finding and assessment is looked at once, and not once for every device: there may be thousands.
    """
    found: dict[str | None, list[Finding]] = {}
    for finding in findings:
        found.setdefault(finding.device_uuid, []).append(finding)
    words: dict[str | None, list[Assessment]] = {}
    for assessment in assessments:
        words.setdefault(assessment.device_uuid, []).append(assessment)
    return {it.uuid: assess_risk(it, found.get(it.uuid, ()), words.get(it.uuid, ()), ranks) for it in devices}


def assess_risk(
    device: DeviceSample,
    findings: Sequence[Finding],
    assessments: Sequence[Assessment] = (),
    ranks: Sequence[RankSample] = (),
) -> Risk:
    """Return the out-of-memory risk of one device.

    A forecast is an assessment, or an open finding of kind `oom`. Recorded use above the capacity that was
    asked about (`capacity`), an error that was met (`oom_met`) and a device that refused its allocator memory
    (`retries`) are facts and count as much; the most severe counts. Without any the level is `unknown`,
    because a caching allocator fills a device in healthy jobs too; and so it is where the values are old,
    unless the last assessment was severe. A low or missing risk gives way to an open finding that contradicts
    it: on growth, or on fragmentation that leaves steps no room.
    What a job met that has ended counts only until another trains on the device.

    Args:
        ranks: The training processes of its node; without them none is known to have ended.
    """
    if device.state == "lost":
        return Risk("unknown", "device lost")
    findings = _leave_out_ended(device, findings, ranks)
    risk = _assess_by_words(device, findings, assessments, ranks)
    if device.state == "ended" or _weigh(risk.level) > _UNKNOWN or not findings:
        return risk
    growth = _find_growth(device, findings)
    return growth if growth is not None and _is_contradicted(risk, growth) else risk


def _assess_by_words(
    device: DeviceSample,
    findings: Sequence[Finding],
    assessments: Sequence[Assessment],
    ranks: Sequence[RankSample],
) -> Risk:
    fact = _gravest_finding(device, findings)
    word = _gravest_assessment(device, assessments)
    oom_s = None if word is None else _find_end(word)
    if fact is not None and (word is None or _weigh(fact.severity) >= _weigh(word.level)):
        return Risk(fact.severity, fact.title, oom_s)
    is_told = word is not None and (device.state in ("ok", "unsupported") or _weigh(word.level) > _UNKNOWN)
    if word is not None and is_told:
        return Risk(word.level, word.reason, oom_s, word.device_trend if device.state == "ok" else None)
    if device.state == "ended":
        return Risk("unknown", "ended" if device.age_s is None else f"ended {format_age(device.age_s)} ago")
    return Risk("unknown", _explain_unknown(device, ranks))


def _find_end(word: Assessment) -> float | None:
    """Return when memory is expected to run out; None where growth is not believed to go on until then."""
    return None if word.oom_in_s is None or word.is_doubted else word.time_s + word.oom_in_s


def is_of_ended_job(finding: Finding, ranks: Sequence[RankSample]) -> bool:
    """Return whether the process that a finding names is gone, and no other of its job lives."""
    pid, started_s = read_process(finding)
    if pid is None:
        return False
    job = JOB.read(finding)
    return not any(
        (rank.pid, rank.started_s) == (pid, started_s) or (job is not None and rank.job == job)
        for rank in ranks
        if rank.state != "ended"
    )


def _leave_out_ended(
    device: DeviceSample, findings: Sequence[Finding], ranks: Sequence[RankSample]
) -> Sequence[Finding]:
    """Leave out the errors of jobs that have ended, where somebody trains on the device."""
    if not any(it.kind in MET and it.is_open for it in findings):
        return findings
    if not any(rank.device_uuid == device.uuid and rank.state != "ended" for rank in ranks):
        return findings
    return [it for it in findings if it.kind not in MET or not is_of_ended_job(it, ranks)]


def find_assessments(device: DeviceSample, assessments: Sequence[Assessment]) -> list[Assessment]:
    """Return the assessments of the processes on a device, or of the device as a whole.

    An assessment of the whole device from before a process there began to report is no longer valid.
    """
    found = [assessment for assessment in assessments if assessment.device_uuid == device.uuid]
    told_s = max((it.time_s for it in found if it.pid is not None), default=None)
    return found if told_s is None else [it for it in found if it.pid is not None or it.time_s >= told_s]


def doubt_silent(sample: Sample, assessments: Sequence[Assessment]) -> tuple[Assessment, ...]:
    """Return assessments as of a sample without ended processes; of silent ones only severe ones."""
    ended = {(rank.pid, rank.started_s) for rank in sample.ranks if rank.state == "ended"}
    assessments = [it for it in assessments if (it.pid, it.started_s) not in ended or it.pid is None]
    silent = {(rank.pid, rank.started_s) for rank in sample.ranks if rank.state == "stale"}
    if not silent:
        return tuple(assessments)
    return tuple(
        msgspec.structs.replace(assessment, level="unknown", reason="its process does not report")
        if (assessment.pid, assessment.started_s) in silent and _weigh(assessment.level) < _UNKNOWN
        else assessment
        for assessment in assessments
    )


def _weigh(level: RiskLevel) -> int:
    return LEVELS.index(level)


def _gravest_assessment(device: DeviceSample, assessments: Sequence[Assessment]) -> Assessment | None:
    """Return the assessment that counts: the most severe, of those the one with the soonest forecast."""
    if device.state == "ended":
        return None
    found = find_assessments(device, assessments)
    if len(found) == 1:
        return found[0]
    return max(
        found,
        key=lambda it: (
            _weigh(it.level),
            -(math.inf if it.oom_in_s is None else it.time_s + it.oom_in_s),
        ),
        default=None,
    )


def _gravest_finding(device: DeviceSample, findings: Sequence[Finding]) -> Finding | None:
    forecasts = [
        finding
        for finding in findings
        if finding.kind in DECISIVE and finding.is_open and finding.device_uuid == device.uuid
    ]
    return max(forecasts, key=lambda finding: SEVERITIES.index(finding.severity), default=None)


def _find_growth(device: DeviceSample, findings: Sequence[Finding]) -> Risk | None:
    found = [
        Risk(_grade_growth(finding), finding.title)
        for finding in findings
        if finding.is_open and finding.device_uuid == device.uuid and _endangers(finding)
    ]
    return max(found, key=lambda risk: _weigh(risk.level), default=None)


def _endangers(finding: Finding) -> bool:
    is_fragmented = finding.kind == "fragmentation" and finding.severity in ENDANGERED
    return finding.kind in GROWTH or is_fragmented


def _grade_growth(finding: Finding) -> RiskLevel:
    """Return the level of a finding on growth: a leak is as severe as a forecast of the same time left.

    It is never more severe than its finding, which knows how much has grown.
    """
    if finding.kind != "leak":
        return finding.severity
    left_s = TIME_LEFT.read_number(finding)
    level = (None if left_s is None else grade_time_left(left_s)) or "low"
    return min(level, finding.severity, key=SEVERITIES.index)


def _is_contradicted(risk: Risk, growth: Risk) -> bool:
    """Return whether growth is more severe than a low risk, or the risk denies that there is any."""
    return _weigh(growth.level) > _weigh(risk.level) or (risk.level == "low" and risk.oom_s is None)


def _explain_unknown(device: DeviceSample, ranks: Sequence[RankSample]) -> str:
    if device.state == "stale":
        return "stale" if device.age_s is None else f"stale {format_age(device.age_s)}"
    if device.state == "unsupported":
        return "memory not readable"
    if any(_has_figures(it.allocator) for it in ranks if it.device_uuid == device.uuid):
        return "no forecast from allocator data"
    if not _has_figures(device.allocator):
        return NO_ALLOCATOR_DATA
    allocator = device.allocator
    is_recorded = device.kind == "trace"
    missing = []
    if allocator is not None and allocator.reserved_bytes is None:
        missing.append("reserved bytes")
    if device.memory.total_bytes is None:
        missing.append("capacity")
    if not missing:
        return "no forecast from allocator data"
    return f"{' and '.join(missing)} not {'recorded' if is_recorded else 'known'}"


def _has_figures(allocator: AllocatorReading | None) -> bool:
    return allocator is not None and (allocator.allocated_bytes, allocator.reserved_bytes) != (None, None)
