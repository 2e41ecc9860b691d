"""The rows of the alerts screen: findings with what was decided about them, filtered and sorted."""

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

from ...analyzers.finding_words import name_kind
from ...engine.alerts.state import AlertState, Mute
from ...engine.model import SEVERITIES, Finding, RankSample, Sample
from ...engine.viewer.snapshot import Snapshot

AlertColumn = Literal["time", "severity", "kind", "device"]
ALERT_COLUMNS: tuple[AlertColumn, ...] = get_args(AlertColumn)
"""Columns by which alerts can be sorted, left to right."""
Stage = Literal["open", "acknowledged", "muted", "closed"]
PROCESS_NAMES = ("process", "pid")
"""Evidence that is the number of a process."""


class AlertRow(NamedTuple):
    """One finding as the list shows it."""

    finding: Finding
    stage: Stage
    """What is to be done about it; a closed one is closed, whatever was decided about it."""
    kind: str
    """In words."""
    where: str
    """Such as `GPU 5`, `GPU 5 rank 5`, `rank 5`, `node03`."""
    mute: Mute | None = None

    @property
    def is_dimmed(self) -> bool:
        """Whether nobody needs to look at it now."""
        return self.stage != "open"


class AlertOrder(NamedTuple):
    """By what the rows are sorted, and whether the other way round; open ones always come first."""

    column: AlertColumn = "time"
    is_inverted: bool = False

    def shifted(self, places: int) -> "AlertOrder":
        """Return the order by the column that many places to the right; stops at the edges."""
        index = ALERT_COLUMNS.index(self.column) + places
        return AlertOrder(ALERT_COLUMNS[max(0, min(len(ALERT_COLUMNS) - 1, index))])


SortKey = tuple[float | str, ...]
_KEYS: dict[AlertColumn, Callable[[AlertRow], SortKey]] = {
    "time": lambda row: (-row.finding.opened_s,),
    "severity": lambda row: (-SEVERITIES.index(row.finding.severity),),
    "kind": lambda row: (row.kind,),
    "device": lambda row: _natural(row.where),
}


def collect_rows(snapshot: Snapshot) -> list[AlertRow]:
    """Return every finding that a snapshot tells of, in its order."""
    sample = snapshot.sample
    alerts = snapshot.alerts
    ranks = {rank.pid: rank for rank in sample.ranks} if sample else {}
    return [_make_row(finding, alerts, sample, ranks) for finding in snapshot.findings]


def filter_rows(rows: Sequence[AlertRow], text: str) -> list[AlertRow]:
    """Return the rows that contain every word, ignoring case; a whole phrase where one field has it.

    Words are looked for in kind, severity, device (`gpu5`), what was decided, and the sentences.
    """
    words = text.lower().split()
    phrase = " ".join(words)
    terms = [phrase] if any(_contains(row, phrase) for row in rows) else words
    return [row for row in rows if all(_contains(row, term) for term in terms)]


def sort_rows(rows: Sequence[AlertRow], order: AlertOrder) -> list[AlertRow]:
    """Return the rows sorted: open ones first, the newest first among equals."""
    newest = sorted(rows, key=_KEYS["time"])
    chosen = sorted(newest, key=_KEYS[order.column], reverse=order.is_inverted)
    return sorted(chosen, key=lambda row: not row.finding.is_open)


def count_stages(rows: Sequence[AlertRow]) -> dict[Stage, int]:
    """Return how many rows there are of each stage."""
    return {stage: sum(row.stage == stage for row in rows) for stage in get_args(Stage)}


def _make_row(
    finding: Finding, alerts: AlertState, sample: Sample | None, ranks: dict[int, RankSample]
) -> AlertRow:
    mute = alerts.mute_of(finding)
    stage: Stage = "open"
    if not finding.is_open:
        stage = "closed"
    elif mute is not None:
        stage = "muted"
    elif alerts.is_acknowledged(finding):
        stage = "acknowledged"
    return AlertRow(finding, stage, name_kind(finding.kind), _place(finding, sample, ranks), mute)


def _place(finding: Finding, sample: Sample | None, ranks: dict[int, RankSample]) -> str:
    """Return the device and, where a finding is about one process that reports, its rank."""
    if finding.device is None:
        return finding.node
    if sample is not None and sample.clock == "trace":
        return f"rank {finding.device}"
    place = f"GPU {finding.device}"
    pid = next((found.value for found in finding.evidence if found.name in PROCESS_NAMES), None)
    rank = ranks.get(pid) if isinstance(pid, int) else None
    known = None if rank is None or rank.coordinates is None else rank.coordinates.rank
    return place if known is None else f"{place} rank {known}"


def _contains(row: AlertRow, term: str) -> bool:
    finding = row.finding
    fields = (
        *(row.kind, finding.kind, finding.severity, row.stage, row.where, row.where.replace(" ", "")),
        *(finding.title, finding.advice),
    )
    return any(term in field.lower() for field in fields)


def _natural(text: str) -> SortKey:
    """Return by what a place is sorted, so that `GPU 10` comes after `GPU 2`."""
    return tuple(f"{int(part):08d}" if part.isdigit() else part for part in re.split(r"(\d+)", text))
