"""What a viewer draws from: one frozen picture of a node."""

from typing import Literal

import msgspec

from ..alerts.state import AlertState
from ..model import AdviceAction, Assessment, Finding, HubStatus, Sample, SegmentMap
from ..model.module_memory import ModuleMemory
from ..wire.messages import Advised
from .replay_state import ReplayState


class SegmentsRefused(msgspec.Struct, frozen=True):
    """Why there is no segment map of a process that one was asked of."""

    pid: int
    reason: str


class RankModules(msgspec.Struct, frozen=True):
    """What became of this viewer's newest question for the modules of a process."""

    pid: int
    number: int
    """Another one for every answer."""
    memory: ModuleMemory | None = None
    """The newest profile that came; None where none has yet."""
    refusal: str | None = None
    """Why the newest question was refused, in one sentence."""


class RankAdvice(msgspec.Struct, frozen=True):
    """What became of an advice that this viewer gave to a process."""

    pid: int
    number: int
    """Another one for every advice."""
    action: AdviceAction
    advised: Advised | None = None
    """What the process made of it; None where it was refused."""
    refusal: str | None = None
    """Why it was not even considered, in one sentence."""


class DecisionRefused(msgspec.Struct, frozen=True):
    """Why what this viewer decided about a finding was not carried out."""

    number: int
    """Another one for every question."""
    reason: str


class Snapshot(msgspec.Struct, frozen=True):
    """The newest state of a node as one viewer knows it."""

    connection: Literal["connecting", "live", "lost"] = "connecting"
    """`lost`: the hub is silent or gone; the sample is the last one it sent."""
    reason: str | None = None
    """Why the connection is not live, in one sentence."""
    silent_s: float | None = None
    """Seconds since the hub last spoke, while the connection is lost."""
    sample: Sample | None = None
    findings: tuple[Finding, ...] = ()
    """Open findings first, then recently closed ones, newest first within each."""
    hub: HubStatus | None = None
    samples_dropped: int = 0
    """Samples that never reached this viewer."""
    segment_maps: tuple[SegmentMap, ...] = ()
    """Newest map of each process that anybody asked for one, newest first; a few at most."""
    segments_refused: tuple[SegmentsRefused, ...] = ()
    """What became of this viewer's own questions for one; gone when a map arrives."""
    modules: tuple[RankModules, ...] = ()
    """Memory by module of the processes that this viewer asked, the newest answer first; a few at most."""
    advice: tuple[RankAdvice, ...] = ()
    """What became of the newest advice that this viewer gave, newest first; a few at most."""
    assessments: tuple[Assessment, ...] = ()
    """How near each process is to running out of memory, by device and process."""
    alerts: AlertState = AlertState()
    """What people decided about findings, and what became of each."""
    decision_refused: DecisionRefused | None = None
    """What became of this viewer's newest decision, where it was refused."""
    replay: ReplayState | None = None
    """Where a replay is; None where the samples are of the present."""
    node: str = ""
    """Of which node it is, where its feed can tell of several; else empty."""
    is_gone: bool = False
    """Whether nothing more will be told of this node, as if it had never been: a relay knows it no longer."""
