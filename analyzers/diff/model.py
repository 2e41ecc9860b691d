"""Result of a comparison of two runs. None is unmeasured; differences are B less A."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from ...engine.units import format_age, format_bytes, format_seconds
from ..sentence import Sentence

OUT_OF_MEMORY = "oom_met"

DIFFERENCE_SCHEMA = "vramscope.difference/1"
Alignment = Literal["step", "time"]
Figure = Literal["allocated_peak", "allocated_floor", "allocated_mean", "reserved", "used", "used_mean"]
# Names in sentences; where several part at one step the first in this order is named.
FIGURE_WORDS: Mapping[Figure, str] = {
    "allocated_peak": "allocated peak",
    "allocated_floor": "allocated floor",
    "allocated_mean": "mean allocated",
    "reserved": "reserved",
    "used": "device used",
    "used_mean": "mean device used",
}


class FigureDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One value of one rank or device in both runs."""

    figure: Figure
    parts_at: float | None
    """First step, or second since the start, from which the runs differ for good; None where they do not."""
    is_from_start: bool = False
    """Whether they differ from the first steps that both have."""
    a_bytes: int
    """Median of run A over the steps after they diverge; over all common steps where they do not."""
    b_bytes: int
    difference_bytes: int
    """Median of B less A over the same steps."""
    difference_percent: float | None
    """Difference in percent of `a_bytes`; None where that is 0."""
    final_a_bytes: int
    """Median of run A over the last common steps."""
    final_b_bytes: int
    final_difference_bytes: int
    noise_bytes: int
    """Differences up to this count as noise."""


class SubjectDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One rank or device in both runs."""

    name: str
    """Its name for people: `rank 3`, `GPU 0`."""
    rank: int | None
    device_a: str
    """Label of its device in run A, preceded by its node where there are several."""
    device_b: str
    aligned_by: Alignment
    compared: int
    """Bins of steps or of time that both runs have; 0 where nothing can be compared."""
    from_position: float | None
    """First step or second of them."""
    to_position: float | None
    parting: Figure | None
    """Value that diverges first."""
    figures: tuple[FigureDifference, ...]
    a_step_s: float | None
    """Median duration of a step; where steps have none, the mean time from one to the next."""
    b_step_s: float | None

    def of(self, figure: Figure | None) -> FigureDifference | None:
        return next((each for each in self.figures if each.figure == figure), None)

    @property
    def shown(self) -> FigureDifference | None:
        """The most important value: the one that parts first, else the first that was compared."""
        parted = self.of(self.parting)
        return parted if parted is not None else next(iter(self.figures), None)

    @property
    def capital_bytes(self) -> int:
        """The largest difference of a value that parts, in bytes, either way; 0 where none does."""
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
    ended_s: float | None
    """Time of the newest sample, seconds since the epoch; None where times count from the start."""
    subjects: int
    """Ranks and devices."""
    first_step: int | None
    last_step: int | None
    restarts: int
    """Times that the number of a step fell: the job was started again. Counted for the rank with most."""
    notes: tuple[str, ...] = ()
    """Sentences about what limits its values."""
    is_simulated: bool = False
    """Whether its devices are modelled or from a recorded simulation, so that values are not measured."""


class RunDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when two runs diverge."""

    schema: str = DIFFERENCE_SCHEMA
    verdict: str
    """The result in one sentence."""
    aligned_by: Alignment
    aligned_because: str | None
    """Why runs are compared by time and not by step; empty where they are compared by step."""
    bin_width: float
    """Steps or seconds in one compared bin; 1 step where each is compared by itself."""
    a: RunFacts
    b: RunFacts
    parts: bool
    """Whether they differ for good."""
    first: str | None
    """Rank or device that diverges first."""
    most: str | None
    """Rank or device that diverges most."""
    subjects: tuple[SubjectDifference, ...]
    only_in_a: tuple[str, ...]
    """Ranks and devices without a counterpart."""
    only_in_b: tuple[str, ...]
    found_only_in_a: tuple[FoundOnce, ...] = ()
    found_only_in_b: tuple[FoundOnce, ...] = ()


@dataclass(frozen=True)
class Curves:
    """Both runs of one subject over steps or time, for a picture; None is unmeasured."""

    # Where each bin begins.
    positions: tuple[float, ...]
    a: Mapping[Figure, tuple[float | None, ...]]
    b: Mapping[Figure, tuple[float | None, ...]]


@dataclass(frozen=True)
class Comparison:
    """The difference of two runs, and what can be drawn of it."""

    difference: RunDifference
    # One for each of the difference's subjects.
    curves: tuple[Curves, ...]
    # The same as `difference.verdict`, to be fitted to a width.
    verdict: Sentence


def size_of(figure: FigureDifference) -> int:
    """Return how many bytes a value is apart, either way: after they part, or at the end if that is more."""
    return max(abs(figure.difference_bytes), abs(figure.final_difference_bytes))


# A comparison in sentences.

# From so many times on a percentage says nothing; above so many the number itself says nothing, as the first
# run had next to nothing.
LEAST_TIMES, MOST_TIMES = 10, 1_000


def say_position(position: float | None, alignment: Alignment) -> str:
    """Name a place in a run: `step 312`, `12.5 s`, `3 m 20 s`; a dash where it is unknown."""
    if position is None:
        return "—"
    if alignment == "step":
        return f"step {position:,.0f}"
    return format_seconds(position) if position < 60 else format_age(position)


def say_signed(value_bytes: int) -> str:
    """Format a difference with its sign: `+4.2 GiB`."""
    sign = "+" if value_bytes > 0 else "-" if value_bytes < 0 else ""
    return f"{sign}{format_bytes(abs(value_bytes))}"


def say_percent(percent: float) -> str:
    """Format a relative difference in at most seven cells: `+12.0 %`, `+105 %`, `560×`, `>1,000×`."""
    times = _multiply(percent)
    if times is not None:
        return f"{times:,.0f}×" if times <= MOST_TIMES else f">{MOST_TIMES:,}×"
    if abs(percent) < 0.05:
        return "0.0 %"
    return f"{percent:+.1f} %" if abs(percent) < 100 else f"{percent:+,.0f} %"


def say_times(percent: float) -> str | None:
    """Say how many times as much it is, from ten times on: `560 times`, `over 1,000 times`."""
    times = _multiply(percent)
    if times is None:
        return None
    return f"{times:,.0f} times" if times <= MOST_TIMES else f"over {MOST_TIMES:,} times"


def say_apart(difference_bytes: int, percent: float | None, how: str) -> str:
    """Say how far apart two sizes are: `4.2 GiB (12.0 %) higher`, `1.2 GiB higher, 560 times as much`.

    Args:
        percent: The difference in percent of the first size; None where that is 0.
        how: The words after the size, such as `higher`.
    """
    size = format_bytes(abs(difference_bytes))
    if percent is None:
        return f"{size} {how}"
    times = say_times(percent)
    return f"{size} ({abs(percent):.1f} %) {how}" if times is None else f"{size} {how}, {times} as much"


def _multiply(percent: float) -> float | None:
    """Return how many times the first size the second is; None where a percentage says more."""
    times = 1 + percent / 100
    return times if times >= LEAST_TIMES else None


def say_difference(subject: SubjectDifference) -> str:
    """Describe how the shown value differs: `4.2 GiB (12.0 %) higher in B`."""
    shown = subject.shown
    if shown is None:
        return "not measured in both"
    side = "higher" if shown.difference_bytes > 0 else "lower"
    return say_apart(shown.difference_bytes, shown.difference_percent, f"{side} in B")


def word_verdict(
    subjects: Sequence[SubjectDifference],
    first: SubjectDifference | None,
    most: SubjectDifference | None,
    only_in_a: Sequence[FoundOnce],
    only_in_b: Sequence[FoundOnce],
    alignment: Alignment,
) -> Sentence:
    """Return the verdict; the most important comes first, and each clause has shorter forms."""
    clauses = [_word_parting(subjects, first, alignment)]
    if first is not None and most is not None and most is not first:
        clauses.append((f"{most.name} differs most: {_word_most(most)}", f"most: {most.name}", ""))
    for run, found in (("B", only_in_b), ("A", only_in_a)):
        errors = [each for each in found if each.kind == OUT_OF_MEMORY]
        if errors:
            where = say_position(errors[0].at, alignment)
            who = errors[0].subject or "a process"
            clauses.insert(
                0, (f"{who} ran out of memory in {run} only, at {where}", f"{run} ran out of memory")
            )
    return Sentence(tuple(clauses))


def _word_parting(
    subjects: Sequence[SubjectDifference], first: SubjectDifference | None, alignment: Alignment
) -> tuple[str, ...]:
    if not any(subject.figures for subject in subjects):
        return (
            "Nothing can be compared: nothing was measured in both at the same time",
            "nothing to compare",
        )
    shown = None if first is None else first.shown
    if first is None or shown is None:
        return _word_likeness(subjects, alignment)
    where = "from the start" if shown.is_from_start else f"at {say_position(shown.parts_at, alignment)}"
    told = say_difference(first)
    words = FIGURE_WORDS[shown.figure]
    return (
        f"They diverge {where}: {first.name}'s {words} is {told}",
        f"They diverge {where}: {first.name}, {words} {told}",
        f"They diverge {where}: {first.name}, {told}",
        f"diverge {where}: {format_bytes(abs(shown.difference_bytes))}",
    )


def _word_likeness(subjects: Sequence[SubjectDifference], alignment: Alignment) -> tuple[str, ...]:
    compared = [subject for subject in subjects if subject.figures]
    longest = max(compared, key=lambda subject: subject.to_position or 0.0)
    who = compared[0].name if len(compared) == 1 else f"{len(compared)} ranks or devices"
    start, end = (
        say_position(place, alignment).removeprefix("step ")
        for place in (longest.from_position, longest.to_position)
    )
    span = f"{start} to {end}" if start != end else start
    unit = "" if alignment == "time" else "steps " if start != end else "step "
    return (
        f"No difference beyond the noise in {unit}{span} of {who}",
        "No difference beyond the noise",
        "no difference",
    )


def _word_most(subject: SubjectDifference) -> str:
    parted = [each for each in subject.figures if each.parts_at is not None]
    largest = max(parted, key=lambda each: abs(each.difference_bytes))
    return f"{FIGURE_WORDS[largest.figure]} by {format_bytes(abs(largest.difference_bytes))}"
