"""What every report has: when it was made, what it rests on, how it concludes, and the findings."""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Literal

import msgspec

from ...engine.model import Severity
from .log import FindingTrail, RunLog

InputSource = Literal["agent", "driver", "process", "input"]
"""`agent`: the hub of this node; `driver`: sampled by the process that reports; `process`: the allocator of
the process that reports too; `input`: a file."""

KINDS: dict[str, frozenset[str] | None] = {
    "profile": None,
    "oom": frozenset({"oom", "oom_met", "retries", "pressure", "capacity", "threshold"}),
    "leak": frozenset({"leak", "host_leak"}),
    "fragment": frozenset({"fragmentation"}),
}
"""Kinds of findings in each report; None for all."""


class EvidenceValue(msgspec.Struct, frozen=True):
    """One figure behind a finding."""

    value: float | int | str | None
    unit: str


class ReportFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding as reports print it, with times in the clock of what was watched."""

    id: str
    kind: str
    device: int | None
    """Index of the device as in the input; None for the node as a whole."""
    device_uuid: str | None
    """None if the input has none."""
    device_label: str | None
    node: str
    severity: Severity
    gravest_severity: Severity
    """The highest that it has been while it was watched."""
    opened_s: float
    closed_s: float | None
    updated_s: float
    title: str
    advice: str
    method: str
    evidence: dict[str, EvidenceValue]


class ReportEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a report rests on."""

    source: InputSource
    input: str | None = None
    """File that was read."""
    format: str | None = None
    node: str | None = None
    clock: Literal["wall", "trace"] | None = None
    """`wall`: times are seconds since the epoch; `trace`: the input's own."""
    first_s: float | None = None
    last_s: float | None = None
    samples: int = 0
    interval_s: float | None = None
    """Seconds from one sample to the next."""
    pid: int | None = None
    """Only this process, where one was asked for."""
    job: str | None = None
    notes: tuple[str, ...] = ()


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Where samples come from, which a report states."""

    source: InputSource
    input: str | None = None
    format: str | None = None
    pid: int | None = None
    job: str | None = None
    notes: tuple[str, ...] = ()
    real_uuid: Callable[[str], str | None] | None = None
    """Returns whether a UUID is from the input, not a placeholder; None if all are real."""
    label: Callable[[str], str] | None = None
    """A device as the input wrote it."""

    def uuid_of(self, uuid: str | None) -> str | None:
        """Return a UUID if it is from the input, else None."""
        if uuid is None or self.real_uuid is None:
            return uuid
        return self.real_uuid(uuid)


def describe_evidence(log: RunLog, provenance: Provenance) -> ReportEvidence:
    last = log.last
    notes = () if last is None else last.notes
    return ReportEvidence(
        source=provenance.source,
        input=provenance.input,
        format=provenance.format,
        node=None if last is None else last.node,
        clock=None if last is None else last.clock,
        first_s=log.first_s,
        last_s=None if last is None else last.time_s,
        samples=log.samples,
        interval_s=None if last is None else last.interval_s,
        pid=provenance.pid,
        job=provenance.job,
        notes=tuple(dict.fromkeys((*notes, *provenance.notes))),
    )


def describe_findings(
    log: RunLog, provenance: Provenance, kinds: Collection[str] | None
) -> tuple[ReportFinding, ...]:
    """Return the findings of some kinds as of the newest sample, in the order in which they opened."""
    found = (trail for trail in log.findings.values() if kinds is None or trail.finding.kind in kinds)
    ordered = sorted(found, key=lambda trail: (trail.finding.opened_s, trail.finding.id))
    return tuple(_describe(trail, log, provenance) for trail in ordered)


def _describe(trail: FindingTrail, log: RunLog, provenance: Provenance) -> ReportFinding:
    finding = log.renew(trail.finding)
    device = log.devices.get(finding.device_uuid or "")
    return ReportFinding(
        id=finding.id,
        kind=finding.kind,
        device=_find_index(finding.device) if device is None else device.index,
        device_uuid=provenance.uuid_of(finding.device_uuid),
        device_label=finding.device,
        node=finding.node,
        severity=finding.severity,
        gravest_severity=trail.gravest,
        opened_s=finding.opened_s,
        closed_s=finding.closed_s,
        updated_s=finding.updated_s,
        title=finding.title,
        advice=finding.advice,
        method=finding.method,
        evidence={it.name: EvidenceValue(it.value, it.unit) for it in finding.evidence},
    )


def _find_index(label: str | None) -> int | None:
    """Return the index that the label of a device begins with, for one that is gone by now."""
    head = (label or "").partition(":")[0].removeprefix("sim")
    return int(head) if head.isdecimal() else None


def stamp_now() -> str:
    """Return the time of this moment as reports print it: ISO 8601, local, without a zone."""
    return datetime.now().isoformat()


def stamp(time_s: float, clock: str | None) -> str | None:
    """Return a time of the samples as ISO 8601, or None where their clock has no dates."""
    if clock != "wall":
        return None
    try:
        return datetime.fromtimestamp(time_s).isoformat()
    except (OverflowError, OSError, ValueError):
        return None
