"""What a viewer draws: one frozen picture of a node."""

from typing import TYPE_CHECKING, Literal

import msgspec

from ..alerts.state import AlertState
from ..model import AdviceAction, Assessment, Finding, HubStatus, Sample, SegmentMap, Severity
from ..model.sample import ModuleMemory
from ..wire.messages import Advised

if TYPE_CHECKING:
    from ..replay.simulated_run import TraceComparison


MarkKind = Literal["finding", "oom", "error", "step"]


class ReplayOverview(msgspec.Struct, frozen=True):
    """The fullest device of a node, in spans of one length from the first minute to the last."""

    # Begin of the first span, in the samples' own clock.
    start_s: float
    step_s: float
    # Most used memory of the fullest device in each span, from 0 to 1; None was not measured.
    shares: tuple[float | None, ...]
    # 1 is the capacity of a device; else it is the most that any of them ever used.
    is_of_capacity: bool


class ReplayMark(msgspec.Struct, frozen=True):
    """A moment that can be jumped to."""

    # In the samples' own clock.
    time_s: float
    kind: MarkKind
    text: str
    # Severity of a finding.
    severity: Severity | None = None
    node: str = ""


class ReplayWord(msgspec.Struct, frozen=True):
    # Different for every message.
    number: int
    text: str
    # The node to show with it; None leaves the one that is shown.
    node: str | None = None


class ReplayPart(msgspec.Struct, frozen=True, kw_only=True):
    """The present one of several runs that follow one another, such as the configurations of a sweep."""

    # Its place among those that can be played, from 1.
    number: int
    total: int
    # Such as `TP 8 PP 64`.
    name: str
    # Its outcome, in a word or two.
    state: str
    # Most allocated, on the rank that used most.
    peak_bytes: int | None = None
    # By a formula.
    theoretical_bytes: int | None = None
    # Parameters, gradients and optimizer states, if they were logged.
    static_bytes: int | None = None

    @property
    def error(self) -> float | None:
        """How much more the theory says than was used, as a share; None if either is unknown."""
        if not self.peak_bytes or self.theoretical_bytes is None:
            return None
        return self.theoretical_bytes / self.peak_bytes - 1


class ReplayState(msgspec.Struct, frozen=True):
    # Time of the first sample of all nodes, in the samples' own clock.
    start_s: float
    end_s: float
    # The moment that is shown: of a single node the time of its sample.
    position_s: float
    clock: Literal["wall", "trace"]
    speed: float
    is_paused: bool
    is_looping: bool
    # Graphs and verdicts of this moment are still being worked out.
    is_catching_up: bool
    # Findings are those of the recording.
    is_as_recorded: bool
    # Findings and out-of-memory errors, in order of time.
    marks: tuple[ReplayMark, ...] = ()
    # The newest message.
    word: ReplayWord | None = None
    # Memory of the node over the whole of its recording; None if it is not known, or not yet.
    overview: ReplayOverview | None = None
    # The simulated run to compare this real one with.
    comparison: "TraceComparison | None" = None
    # Which of several runs it is; None if there is one.
    part: ReplayPart | None = None
    # First and last moment of the part of the time that the viewer has zoomed into; None for all.
    window: tuple[float, float] | None = None


class SegmentsRefused(msgspec.Struct, frozen=True):
    pid: int
    reason: str


class RankModules(msgspec.Struct, frozen=True):
    """State of this viewer's newest question for the modules of a process."""

    pid: int
    # Different for every answer.
    number: int
    # The newest profile; None before the first.
    memory: ModuleMemory | None = None
    # Why the newest question was refused, in one sentence.
    refusal: str | None = None


class RankAdvice(msgspec.Struct, frozen=True):
    """Outcome of an advice from this viewer to a process."""

    pid: int
    # Different for every advice.
    number: int
    action: AdviceAction
    # The process's answer; None if it was refused.
    advised: Advised | None = None
    # Why it was not even considered, in one sentence.
    refusal: str | None = None


class RankAttachment(msgspec.Struct, frozen=True):
    """Outcome of this viewer's wish to attach to a process, or to detach from it."""

    pid: int
    # Different for every wish.
    number: int
    verb: Literal["attach", "detach"]
    # What was done, in one sentence; may be empty.
    outcome: str = ""
    # Why it was not done, in one sentence; None if it was.
    refusal: str | None = None


class DecisionRefused(msgspec.Struct, frozen=True):
    """Why a decision of this viewer about a finding was not carried out."""

    # Different for every question.
    number: int
    reason: str


class Snapshot(msgspec.Struct, frozen=True):
    """The newest state of a node as one viewer knows it."""

    # `lost`: the hub is silent or gone; the sample is the last one it sent.
    connection: Literal["connecting", "live", "lost"] = "connecting"
    # Why the connection is not live, in one sentence.
    reason: str | None = None
    # Seconds since the hub's last message, while the connection is lost.
    silent_s: float | None = None
    sample: Sample | None = None
    # Open findings first, then recently closed ones, newest first within each.
    findings: tuple[Finding, ...] = ()
    hub: HubStatus | None = None
    # Samples that never reached this viewer.
    samples_dropped: int = 0
    # Newest map of each process, whoever asked for it, newest first; a few at most.
    segment_maps: tuple[SegmentMap, ...] = ()
    # For this viewer's own questions; gone when a map arrives.
    segments_refused: tuple[SegmentsRefused, ...] = ()
    # Memory by module of the processes that this viewer asked, the newest answer first; a few at most.
    modules: tuple[RankModules, ...] = ()
    # Advice sent by this viewer, newest first; a few at most.
    advice: tuple[RankAdvice, ...] = ()
    # Wishes of this viewer to attach or detach that were answered, newest first; a few at most.
    attachments: tuple[RankAttachment, ...] = ()
    # How near each process is to running out of memory, by device and process.
    assessments: tuple[Assessment, ...] = ()
    # Decisions of people about findings, and the state of each alert.
    alerts: AlertState = AlertState()
    # This viewer's newest decision, if it was refused.
    decision_refused: DecisionRefused | None = None
    # None if the samples are live.
    replay: ReplayState | None = None
    # Name of the node if its feed has several; else "".
    node: str = ""
    # Nothing more will come of this node, as if it had never been: a relay no longer knows it.
    is_gone: bool = False
