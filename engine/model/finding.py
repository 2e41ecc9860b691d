"""Findings: what an analyzer concluded, with the evidence and the advice."""

from collections.abc import Iterable
from typing import Literal

import msgspec

Severity = Literal["low", "medium", "high", "critical"]
SEVERITIES: tuple[Severity, ...] = ("low", "medium", "high", "critical")
"""Severities from mild to grave."""


class Evidence(msgspec.Struct, frozen=True):
    """One measured number behind a finding."""

    name: str
    value: float | int | str | None
    unit: str = ""


class Finding(msgspec.Struct, frozen=True):
    """One conclusion: opens once per crossing, is updated, and closes."""

    id: str
    kind: str
    """What it is about: `pressure`, later `oom`, `leak`, `fragmentation`, …"""
    node: str
    device_uuid: str | None
    device: str | None
    """Label of the device (`DeviceSample.label`)."""
    severity: Severity
    title: str
    """The finding in one sentence."""
    opened_s: float
    """Time of the sample that opened it, in the samples' own clock."""
    updated_s: float
    closed_s: float | None = None
    evidence: tuple[Evidence, ...] = ()
    method: str = ""
    """How it was concluded, in one sentence."""
    advice: str = ""
    """What to do, in one sentence."""

    @property
    def is_open(self) -> bool:
        """Whether it still holds."""
        return self.closed_s is None


CLOSED_BECAUSE = "closed because"
FOLLOWED_BY = "followed by process"
"""Evidence that a closed finding has."""
PROCESS_ENDED = "the process has ended"


def is_last_word(finding: Finding) -> bool:
    """Return whether it is closed and still the last that is known of its device.

    So is an error that ended its process, until another process trains there.
    """
    found = {evidence.name: evidence.value for evidence in finding.evidence}
    is_error = finding.kind == "oom_met" and found.get(CLOSED_BECAUSE) == PROCESS_ENDED
    return not finding.is_open and is_error and FOLLOWED_BY not in found


def order_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return open findings first, then last words, then other closed ones; newest first within each."""
    return tuple(sorted(findings, key=lambda f: (not f.is_open, not is_last_word(f), -f.opened_s)))


def make_finding_id(kind: str, node: str, device_uuid: str | None, opened_s: float) -> str:
    """Return the id of a finding: the same facts give the same id in every process.

    Args:
        kind: Kind of the finding.
        node: Node it is about.
        device_uuid: Device it is about, or None for the node as a whole.
        opened_s: Time of the sample that opened it.
    """
    import hashlib  # loads OpenSSL, 3 MiB that a hub, which makes no findings, does without

    text = f"{kind}\n{node}\n{device_uuid or ''}\n{opened_s:.6f}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]
