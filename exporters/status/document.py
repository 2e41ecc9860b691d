"""The status object (`vramscope.status/1`): the newest state of a node as scripts see it."""

from collections.abc import Sequence

from ...engine.model import STATUS_SCHEMA, Assessment, Finding, NodeStatus, Sample
from ...engine.viewer.snapshot import Snapshot


def describe_sample(
    sample: Sample,
    findings: Sequence[Finding] = (),
    *,
    assessments: Sequence[Assessment] = (),
    notes: Sequence[str] = (),
) -> NodeStatus:
    """Return the status object of one sample.

    Args:
        sample: What was measured.
        findings: Findings of the node as of this sample.
        assessments: How near each process is to running out of memory.
        notes: Sentences to put after the sample's own.
    """
    return NodeStatus(
        schema=STATUS_SCHEMA,
        time=sample.time_s,
        node=sample.node,
        host=sample.host,
        devices=sample.devices,
        ranks=sample.ranks,
        findings=tuple(findings),
        notes=tuple(dict.fromkeys((*sample.notes, *notes))),
        assessments=tuple(assessments),
        devices_left_out=sample.devices_left_out,
    )


def describe_snapshot(snapshot: Snapshot) -> NodeStatus | None:
    """Return the status object of what a hub told, or None before its first sample."""
    sample = snapshot.sample
    if sample is None:
        return None
    notes = list(sample.notes)
    if snapshot.connection == "lost":
        notes.append(f"The agent is lost, the figures are its last: {snapshot.reason or 'no reason given'}")
    return NodeStatus(
        schema=STATUS_SCHEMA,
        time=sample.time_s,
        node=sample.node,
        host=sample.host,
        devices=sample.devices,
        ranks=sample.ranks,
        findings=snapshot.findings,
        notes=tuple(notes),
        agent=snapshot.hub,
        assessments=snapshot.assessments,
        devices_left_out=sample.devices_left_out,
    )
