"""The status object (`vramscope.status/1`): the newest state of a node as scripts see it."""

import csv
from collections.abc import Sequence
from io import StringIO
from typing import Final, Literal

import msgspec

from ...analyzers.fleet.model import FleetDevice, FleetNode, FleetSort, Grouping
from ...analyzers.growth_renewal import renew_findings
from ...engine.model import STATUS_SCHEMA, AdviceAction, Assessment, Finding, NodeStatus, Sample
from ...engine.text import make_csv_cell, make_printable
from ...engine.viewer.snapshot import Snapshot
from ...engine.wire.messages import Advised


def describe_sample(
    sample: Sample,
    findings: Sequence[Finding] = (),
    *,
    assessments: Sequence[Assessment] = (),
    notes: Sequence[str] = (),
) -> NodeStatus:
    return NodeStatus(
        schema=STATUS_SCHEMA,
        time=sample.time_s,
        node=sample.node,
        host=sample.host,
        devices=sample.devices,
        ranks=sample.ranks,
        findings=tuple(renew_findings(findings, assessments, sample.time_s)),
        notes=tuple(dict.fromkeys((*sample.notes, *notes))),
        assessments=tuple(assessments),
        devices_left_out=sample.devices_left_out,
        servers=sample.servers,
    )


def describe_snapshot(snapshot: Snapshot) -> NodeStatus | None:
    """Return the status object of a hub's snapshot, or None before its first sample."""
    sample = snapshot.sample
    if sample is None:
        return None
    notes = list(sample.notes)
    if snapshot.connection == "lost":
        notes.append(f"The agent is lost, this is its last data: {snapshot.reason or 'no reason given'}")
    status = describe_sample(sample, snapshot.findings, assessments=snapshot.assessments)
    return msgspec.structs.replace(status, notes=tuple(notes), agent=snapshot.hub)


# A fleet as it is seen: every device as a row of a table, and all of it with its nodes as JSON.

FLEET_SCHEMA: Final = "vramscope.fleet/1"
COLUMNS = (
    *("node", "label", "name", "uuid", "model", "state", "is_old", "is_node_lost", "is_simulated"),
    *("used_bytes", "total_bytes", "level", "reason", "oom_in_s", "probability", "kinds", "jobs"),
    *("rank", "tp", "pp", "dp", "trend", "full_in_s", "pods", "namespaces", "users"),
)
"""Fields of `FleetDevice`, in the order of the table's columns."""


class FleetExport(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet at one moment."""

    schema: Literal["vramscope.fleet/1"] = FLEET_SCHEMA
    time: float
    """Wall clock here, in seconds since the epoch."""
    grouping: Grouping
    sort: FleetSort
    filter: str
    """The filter as it was typed; empty where every device is shown."""
    nodes: tuple[FleetNode, ...]
    """All known nodes, including those without a shown device."""
    devices: tuple[FleetDevice, ...]
    """Devices that are shown, in their order."""
    findings: tuple[Finding, ...]
    """Findings open across nodes; times are from this machine's clock."""


def write_fleet_table(devices: Sequence[FleetDevice]) -> bytes:
    """Return devices as CSV, a row each; what was not measured is empty, lists have blanks."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_word(getattr(device, name)) for name in COLUMNS] for device in devices)
    return text.getvalue().encode("utf-8", "replace")


def _word(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return make_csv_cell(" ".join(map(str, value)))
    return make_csv_cell(value) if isinstance(value, str) else value


# What a training process made of an advice, as a line of text and as JSON.

ADVICE_SCHEMA = "vramscope.advice/1"


class AdviceReport(msgspec.Struct, frozen=True):
    """One advice and what became of it."""

    pid: int
    action: AdviceAction
    is_obeyed: bool
    outcome: str
    freed_bytes: int | None
    node: str | None = None
    """As it was named; None for this one."""
    schema: str = ADVICE_SCHEMA


def describe_advice(action: AdviceAction, advised: Advised, node: str | None) -> AdviceReport:
    """Return the report of an advice on `node`; None for this node."""
    return AdviceReport(
        advised.pid, action, advised.is_obeyed, advised.outcome, advised.freed_bytes, node=node
    )


def word_advice(report: AdviceReport) -> str:
    where = "" if report.node is None else f" on {report.node}"
    return make_printable(f"process {report.pid}{where} {report.outcome}")
