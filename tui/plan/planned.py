"""What the Plan screen shows: candidates with their stages, ready to be listed and drawn."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from ...analyzers.sentence import Sentence

MemoryKind = Literal["weights", "gradients", "optimizer", "activations", "other"]
# What stands out in a candidate: it is recommended, needs more than the capacity, or cannot be.
Note = Literal["", "best", "over", "refused"]


class JobDefaults(NamedTuple):
    """What a plan takes from the job that runs, where nothing else is said."""

    # None where no job tells how many it has.
    stages: int | None = None
    # Of the smallest device; None where none is known.
    capacity_bytes: int | None = None


class KindBytes(NamedTuple):
    """Bytes of one kind that a stage holds."""

    kind: MemoryKind
    size_bytes: int


class StepPart(NamedTuple):
    """A part of the time of one step."""

    name: str
    duration_s: float


@dataclass(frozen=True)
class PlannedTable:
    """Lines of one kind: the layers of a stage, its memory part by part, or what stands out in a model."""

    title: str
    heading: tuple[str, ...]
    # `l` or `r` for each column.
    alignment: str
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class PlannedStage:
    """One pipeline stage of a candidate."""

    # Which layers, in a few cells: `0-11`.
    layers: str
    # What it holds at its peak; without activations where those are not known.
    kinds: tuple[KindBytes, ...]
    # All of it; None where a kind is not known.
    peak_bytes: int | None
    # What its device has; None where that was not told.
    capacity_bytes: int | None
    # Makes the table of what is in it.
    describe: Callable[[], PlannedTable]

    @property
    def is_over(self) -> bool:
        """Whether it needs more than its device has, as far as that is known."""
        known = self.peak_bytes, self.capacity_bytes
        return known[0] is not None and known[1] is not None and known[0] > known[1]


@dataclass(frozen=True)
class PlannedColumn:
    """One column of the table of candidates."""

    name: str
    # Whether its texts stand at its left end.
    is_left: bool = False


@dataclass(frozen=True)
class Candidate:
    """One way to cut the model: a row of the table."""

    name: str
    note: Note
    # Texts, by column.
    cells: tuple[str, ...]
    # What rows are sorted by, by column; None for what is not known.
    values: tuple[float | str | None, ...]
    stages: tuple[PlannedStage, ...] = ()
    # Why it stands where it does, or why it cannot be.
    reason: str = ""
    # Tensor ranks that each stage is split over: its figures are of one of them.
    tensor: int = 1
    # Where the time of a step goes, as estimated; empty where that is not known.
    step_parts: tuple[StepPart, ...] = ()

    @property
    def peak_bytes(self) -> int | None:
        """Peak of the fullest stage; None where one is not known."""
        known = [stage.peak_bytes for stage in self.stages if stage.peak_bytes is not None]
        return max(known) if known and len(known) == len(self.stages) else None

    @property
    def step_s(self) -> float | None:
        """Seconds of a step, as estimated."""
        return sum(part.duration_s for part in self.step_parts) if self.step_parts else None


@dataclass(frozen=True)
class Planned:
    """A plan, ready to be shown."""

    # Its name, and what it is made of.
    model: str
    # What is recommended.
    verdict: Sentence
    columns: tuple[PlannedColumn, ...]
    # In the order of the plan.
    candidates: tuple[Candidate, ...]
    # Place of the candidate that is recommended; None where none fits.
    best: int | None
    # What stands out in the model or in the search, in one sentence.
    findings: str
    # Makes the table behind that sentence.
    analysis: Callable[[], PlannedTable]
    # What the estimates rest on.
    basis: str
    # Everything as text.
    report: str
    # Writes the plan's files into a folder; raises `OutputFileError`.
    write: Callable[[Path], object] | None = field(default=None, compare=False)

    @property
    def recommended(self) -> Candidate | None:
        """The candidate that is recommended; None where none fits."""
        return None if self.best is None else self.candidates[self.best]

    @property
    def most_bytes(self) -> int:
        """Peak of the fullest stage of all candidates, or the largest capacity."""
        stages = [stage for candidate in self.candidates for stage in candidate.stages]
        capacities = [stage.capacity_bytes for stage in stages if stage.capacity_bytes is not None]
        held = [sum(kind.size_bytes for kind in stage.kinds) for stage in stages]
        return max(capacities or held, default=0)
