"""The bodies that travel: what hubs publish, what workers report, what viewers ask."""

from typing import Literal

import msgspec

from ..alerts.state import AlertState, FindingDecision
from ..history import HistoryBlock
from ..model import Assessment, Finding, HubStatus, Sample

TOPIC_SAMPLE = b"sample/"
"""Followed by the node's name."""
TOPIC_FINDING = b"finding/"
TOPIC_HUB = b"hub/"
TOPIC_SEGMENTS = b"segments/"
TOPIC_VIEWER = b"viewer/"
"""Nothing is published under it: a subscription says that a viewer is there, its end that none is left."""
TO_WHOM_IT_CONCERNS = 0
"""Number of a refusal that answers no request: this end is told nothing more."""


class FindingBatch(msgspec.Struct, frozen=True):
    """Findings that opened, changed or closed, and how near each process is to running out of memory."""

    findings: tuple[Finding, ...]
    assessments: tuple[Assessment, ...] | None = None
    """All that stand; None where none has changed."""


class WorkerReport(msgspec.Struct, frozen=True):
    """What a worker tells its hub: every few seconds, and at once when findings changed."""

    name: str
    pid: int
    seen_seq: int
    """Newest sample that was analyzed."""
    samples_dropped: int
    analyzers: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    """Findings that opened, changed or closed since the last report."""
    open_ids: tuple[str, ...] | None = None
    """After catching up with the ring: every finding this worker holds open; others are over."""
    reason: str | None = None
    """An analyzer that failed and was set aside, in one sentence."""
    assessments: tuple[Assessment, ...] = ()
    """Those that changed since the last report."""


class Request(msgspec.Struct, frozen=True):
    """What a viewer or worker asks of a hub."""

    verb: Literal["join", "segments", "detach", "history", "modules", "decide"]
    """`join`: everything the hub knows. `decide`: what a person decided about a finding. The others are
    passed on to the training process `pid`: a segment map, please; let go of the process; record allocations
    with their stacks, or stop; profile modules for a few steps."""
    request_id: int
    pid: int | None = None
    is_on: bool = True
    """For `history`."""
    seconds: float | None = None
    """For `history`: how long at most. For the others: how long to wait for the end of a step."""
    decision: FindingDecision | None = None
    """For `decide`."""
    topics: tuple[str, ...] = ()
    """For `join` over tcp: the beginnings of topics that are sent from the answer on; over ipc, subscriptions
    say it."""


class Welcome(msgspec.Struct, frozen=True):
    """Everything a hub knows, for whoever attaches late or missed something."""

    request_id: int
    sample: Sample | None
    findings: tuple[Finding, ...]
    hub: HubStatus
    history: HistoryBlock
    first_seq: int | None = None
    """First sample this hub ever published."""
    history_first_seq: int | None = None
    """First sample that `history` still holds; those before it are forgotten."""
    alerts: AlertState = AlertState()
    assessments: tuple[Assessment, ...] = ()


class Done(msgspec.Struct, frozen=True):
    """What was asked has come about; a segment map, or what was decided, comes with the stream."""

    request_id: int


class ModulesAnswer(msgspec.Struct, frozen=True):
    """A profile by module that was asked for; it goes to those who asked for it alone."""

    request_id: int
    pid: int
    data: bytes
    """The zlib-compressed text of a `module_memory.jsonl`, as the probe packed it."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a request was not answered."""

    request_id: int
    reason: str
