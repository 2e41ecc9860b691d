"""Findings that agents serve as counts: what they are about is known, the evidence is with the agent."""

from collections.abc import Iterable, Sequence

from ..model import SEVERITIES, Finding, Sample, make_finding_id, order_findings
from .readings import FindingKey, Subject

METHOD = "counted by its agent (vramscope_findings); when it opened is known to the scrape alone"
ADVICE = "open `vramscope` on that node: it tells the evidence and what to do"


def read_finding(sample: Sample, key: FindingKey, subject: Subject, first_s: float) -> Finding | None:
    """Return what an agent counts as a finding; None where its severity is none.

    Args:
        sample: The newest sample of the node.
        key: UUID of the device, kind and severity.
        subject: The count.
        first_s: When it was first counted.
    """
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
        f"{kind}{where}, says the agent of {sample.node}",
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
