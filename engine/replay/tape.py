"""What can be played to any moment: the samples of one node, each newer than the one before."""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, Protocol

from ..model import Sample
from ..recording import Told
from ..viewer.replay_state import ReplayMark, ReplayOverview

if TYPE_CHECKING:
    from .trace_comparison import TraceComparison

LOOK_BACK_TICKS = 8
"""How far back the sample before a moment is looked for at first; then eight times as far, and so on."""


class Tape(Protocol):
    """Samples that can be read from any moment on, the same whichever way it was reached."""

    node: str
    """Name of the node that the samples are of."""
    clock: Literal["wall", "trace"]
    start_s: float
    """Time of the first sample, in the samples' own clock."""
    end_s: float
    interval_s: float
    """Nominal seconds from one sample to the next."""
    window_s: float
    """How much before a moment graphs and analyzers are fed after a jump."""

    @property
    def comparison(self) -> "TraceComparison | None":
        """The simulated run that stands beside a real one."""
        ...

    def samples(self, start_s: float, end_s: float = math.inf) -> Iterator[Sample]:
        """Yield the samples of a span, ends included, in order of time; the last of all has `is_last`."""
        ...

    def marks(self) -> list[ReplayMark]:
        """Return the findings and out-of-memory errors that are recorded, in order of time."""
        ...

    def told(self) -> list[Told]:
        """Return what analyzers said, in order of time; a bounded number of words."""
        ...

    def overview(self) -> ReplayOverview | None:
        """Return memory over the whole of it; None where that is not known without reading all samples."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


def find_newest(tape: Tape, time_s: float, count: int) -> list[Sample]:
    """Return the newest samples that are not after a moment, oldest first; fewer where there are no more.

    Args:
        tape: Whose.
        time_s: The moment, in the samples' own clock.
        count: How many at most.
    """
    reach_s = (LOOK_BACK_TICKS + count) * tape.interval_s
    while True:
        found = _keep_last(tape.samples(time_s - reach_s, time_s), count)
        if len(found) == count or time_s - reach_s <= tape.start_s:
            return found
        reach_s *= 8


def _keep_last(samples: Iterable[Sample], count: int) -> list[Sample]:
    return list(deque(samples, maxlen=count))
