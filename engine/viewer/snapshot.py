"""What a viewer draws from: one frozen picture of a node."""

from typing import TYPE_CHECKING, Literal

import msgspec

from ..alerts.state import AlertState
from ..model import AdviceAction, Assessment, Finding, HubStatus, Sample, SegmentMap, Severity
from ..model.sample import ModuleMemory
from ..wire.messages import Advised

if TYPE_CHECKING:
    from ..replay.trace_comparison import TraceComparison


MarkKind = Literal["finding", "oom", "step"]


class ReplayOverview(msgspec.Struct, frozen=True):
    """The fullest device of a node, in spans of one length from the first minute to the last."""

    start_s: float
    """Where the first span begins, in the samples' own clock."""
    step_s: float
    shares: tuple[float | None, ...]
    """Most that was used of the fullest device in each span, from 0 to 1; None was not measured."""
    is_of_capacity: bool
    """Whether 1 is the capacity of a device; else it is the most that any of them ever used."""


class ReplayMark(msgspec.Struct, frozen=True):
    """A moment that can be jumped to."""

    time_s: float
    """In the samples' own clock."""
    kind: MarkKind
    text: str
    severity: Severity | None = None
    """Of a finding."""
    node: str = ""
    """Of which it is told."""


class ReplayWord(msgspec.Struct, frozen=True):
    """Something that a person should read once."""

    number: int
    """Another one for every word."""
    text: str
    node: str | None = None
    """The node that is to be shown with it; None leaves the one that is shown."""


class ReplayPart(msgspec.Struct, frozen=True, kw_only=True):
    """The one that plays of several runs that follow one another, such as the configurations of a sweep."""

    number: int
    """Its place among those that can be played, counted from 1."""
    total: int
    name: str
    """Such as `TP 8 PP 64`."""
    state: str
    """What became of it, in a word or two."""
    peak_bytes: int | None = None
    """Most that was allocated, on the rank that held most."""
    theoretical_bytes: int | None = None
    """What a formula said that it would be."""
    static_bytes: int | None = None
    """Parameters, gradients and optimizer states, where they were logged."""

    @property
    def error(self) -> float | None:
        """How much more the theory says than was held, as a share; None where either is unknown."""
        if not self.peak_bytes or self.theoretical_bytes is None:
            return None
        return self.theoretical_bytes / self.peak_bytes - 1


class ReplayState(msgspec.Struct, frozen=True):
    """A replay at one moment."""

    start_s: float
    """Time of the first sample of all nodes, in the samples' own clock."""
    end_s: float
    position_s: float
    """The moment that is shown: of a single node the time of its sample."""
    clock: Literal["wall", "trace"]
    speed: float
    is_paused: bool
    is_looping: bool
    is_catching_up: bool
    """Whether graphs and verdicts of this moment are still being worked out."""
    is_as_recorded: bool
    """Whether findings are those of the recording, not found again."""
    marks: tuple[ReplayMark, ...] = ()
    """Findings and out-of-memory errors, in order of time."""
    word: ReplayWord | None = None
    """The newest thing to say."""
    overview: ReplayOverview | None = None
    """Memory of the node over the whole of its recording; None where that is not known, or not yet."""
    comparison: "TraceComparison | None" = None
    """The simulated run that stands beside this real one."""
    part: ReplayPart | None = None
    """Which of several runs it is; None where there is one."""


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
