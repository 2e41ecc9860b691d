"""What a viewer draws of a replay: where it is, how it plays, and what can be jumped to."""

from typing import TYPE_CHECKING, Literal

import msgspec

from ..model import Severity
from .overview import ReplayOverview

if TYPE_CHECKING:
    from .trace_comparison import TraceComparison

MarkKind = Literal["finding", "oom", "step"]


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
