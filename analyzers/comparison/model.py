"""What a comparison of two runs says. None is unmeasured; differences are B less A."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from ..sentence import Sentence

DIFFERENCE_SCHEMA = "vramscope.difference/1"
Alignment = Literal["step", "time"]
Figure = Literal["allocated_peak", "allocated_floor", "allocated_mean", "reserved", "used", "used_mean"]
FIGURE_WORDS: Mapping[Figure, str] = {
    "allocated_peak": "allocated peak",
    "allocated_floor": "allocated floor",
    "allocated_mean": "mean allocated",
    "reserved": "reserved",
    "used": "device used",
    "used_mean": "mean device used",
}
"""What sentences call them; of figures that part at one step the first in this order is told."""


class FigureDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one rank or device in both runs."""

    figure: Figure
    parts_at: float | None
    """First step, or second since the start, from which the runs differ for good; None where they do not."""
    is_from_start: bool = False
    """Whether they differ from the first steps that both have."""
    a_bytes: int
    """Median of run A over the steps after they part; over all that both have where they do not."""
    b_bytes: int
    difference_bytes: int
    """Median of B less A over the same steps."""
    difference_percent: float | None
    """Of `a_bytes`; None where that is 0."""
    final_a_bytes: int
    """Median of run A over the last steps that both have."""
    final_b_bytes: int
    final_difference_bytes: int
    noise_bytes: int
    """Differences up to this are taken for noise."""


class SubjectDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One rank or device in both runs."""

    name: str
    """What people call it: `rank 3`, `GPU 0`."""
    rank: int | None
    device_a: str
    """Label of its device in run A, after its node where there are several."""
    device_b: str
    aligned_by: Alignment
    compared: int
    """Bins of steps or of time that both runs have; 0 where nothing can be compared."""
    from_position: float | None
    """First step or second of them."""
    to_position: float | None
    parting: Figure | None
    """Figure that parts first."""
    figures: tuple[FigureDifference, ...]
    a_step_s: float | None
    """Median duration of a step; where steps tell none, the mean time from one to the next."""
    b_step_s: float | None

    def of(self, figure: Figure | None) -> FigureDifference | None:
        """Return one figure; None where it was not compared."""
        return next((each for each in self.figures if each.figure == figure), None)

    @property
    def shown(self) -> FigureDifference | None:
        """The figure that says most: the one that parts first, else the first that was compared."""
        parted = self.of(self.parting)
        return parted if parted is not None else next(iter(self.figures), None)

    @property
    def capital_bytes(self) -> int:
        """The largest difference of a figure that parts, in bytes, either way; 0 where none does."""
        return max((size_of(each) for each in self.figures if each.parts_at is not None), default=0)


class FoundOnce(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened in one run only."""

    kind: str
    """Kind of the finding; `oom_met` for an out-of-memory error."""
    subject: str | None
    """Rank or device; None for the node as a whole."""
    at: float | None
    """Step, or seconds since the start; None where it cannot be placed."""
    title: str


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two runs."""

    file: str
    format: str
    samples: int
    duration_s: float
    subjects: int
    """Ranks and devices."""
    first_step: int | None
    last_step: int | None
    restarts: int
    """Times that the number of a step fell: the job was started again. Counted for the rank with most."""
    notes: tuple[str, ...] = ()
    """Sentences about what limits its figures."""
    is_simulated: bool = False
    """Whether devices of it are modelled, or of a recorded simulation: their figures are not measured."""


class RunDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when two runs part."""

    schema: str = DIFFERENCE_SCHEMA
    verdict: str
    """It all in one sentence."""
    aligned_by: Alignment
    aligned_because: str | None
    """Why by time, where it is by time."""
    bin_width: float
    """Steps, or seconds, that were taken together because there are many; 1 step where each stands alone."""
    a: RunFacts
    b: RunFacts
    parts: bool
    """Whether they differ for good."""
    first: str | None
    """Rank or device that parts first."""
    most: str | None
    """Rank or device that parts most."""
    subjects: tuple[SubjectDifference, ...]
    only_in_a: tuple[str, ...]
    """Ranks and devices without a counterpart."""
    only_in_b: tuple[str, ...]
    found_only_in_a: tuple[FoundOnce, ...] = ()
    found_only_in_b: tuple[FoundOnce, ...] = ()


@dataclass(frozen=True)
class Curves:
    """Both runs of one subject over steps or time, for a picture; None is unmeasured."""

    positions: tuple[float, ...]
    """Where each bin begins."""
    a: Mapping[Figure, tuple[float | None, ...]]
    b: Mapping[Figure, tuple[float | None, ...]]


@dataclass(frozen=True)
class Comparison:
    """What is said of two runs, and what can be drawn."""

    difference: RunDifference
    curves: tuple[Curves, ...]
    """One for each of the difference's subjects."""
    verdict: Sentence
    """The same as `difference.verdict`, to be fitted to a width."""


def size_of(figure: FigureDifference) -> int:
    """Return how many bytes a figure is apart, either way: after they part, or at the end if that is more."""
    return max(abs(figure.difference_bytes), abs(figure.final_difference_bytes))
