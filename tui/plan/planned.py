"""What the Plan screen shows: candidates with their stages, ready to be listed and drawn."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from ...analyzers.sentence import Sentence

MemoryKind = Literal["weights", "gradients", "optimizer", "activations", "other"]
# Note on a candidate: it is recommended, needs more than the capacity, or is not possible.
Note = Literal["", "best", "over", "refused"]


class JobDefaults(NamedTuple):
    """Defaults of a plan, from the running job."""

    # None where no job reports it.
    stages: int | None = None
    # Capacity of the smallest device; None if unknown.
    capacity_bytes: int | None = None


class KindBytes(NamedTuple):
    kind: MemoryKind
    size_bytes: int


class StepPart(NamedTuple):
    name: str
    duration_s: float


@dataclass(frozen=True)
class PlannedTable:
    """Lines of one kind: the layers of a stage, its memory part by part, or the notable facts of a model."""

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
    # At the stage's peak; without activations where those are unknown.
    kinds: tuple[KindBytes, ...]
    # None where a kind is unknown.
    peak_bytes: int | None
    # Capacity of its device; None if not given.
    capacity_bytes: int | None
    # Makes the table of its content.
    describe: Callable[[], PlannedTable]

    @property
    def is_over(self) -> bool:
        """Whether it needs more than its device has; False where either is unknown."""
        known = self.peak_bytes, self.capacity_bytes
        return known[0] is not None and known[1] is not None and known[0] > known[1]


@dataclass(frozen=True)
class PlannedColumn:
    name: str
    is_left: bool = False


@dataclass(frozen=True)
class Candidate:
    """One way to cut the model: a row of the table."""

    name: str
    note: Note
    # By column.
    cells: tuple[str, ...]
    # Sort keys, by column; None where unknown.
    values: tuple[float | str | None, ...]
    stages: tuple[PlannedStage, ...] = ()
    # Why it has its rank, or why it is not possible.
    reason: str = ""
    # Tensor ranks that each stage is split over: its bytes are of one of them.
    tensor: int = 1
    # Where the time of a step goes, as estimated; empty where unknown.
    step_parts: tuple[StepPart, ...] = ()

    @property
    def peak_bytes(self) -> int | None:
        """Peak of the fullest stage; None where one is unknown."""
        known = [stage.peak_bytes for stage in self.stages if stage.peak_bytes is not None]
        return max(known) if known and len(known) == len(self.stages) else None

    @property
    def step_s(self) -> float | None:
        """Estimated; None where unknown."""
        return sum(part.duration_s for part in self.step_parts) if self.step_parts else None


@dataclass(frozen=True)
class Planned:
    # Name and size of the model.
    model: str
    # The recommendation.
    verdict: Sentence
    columns: tuple[PlannedColumn, ...]
    # In the order of the plan.
    candidates: tuple[Candidate, ...]
    # Place of the recommended candidate; None where none fits.
    best: int | None
    # The notable facts of the model or the search, in one sentence.
    findings: str
    # Makes the table for `findings`.
    analysis: Callable[[], PlannedTable]
    # Assumptions of the estimates.
    basis: str
    # What was assumed, since neither flags nor files say it.
    assumed: tuple[str, ...]
    # Everything as text.
    report: str
    # Writes the plan's files into a folder; raises `OutputFileError`.
    write: Callable[[Path], list[Path]] | None = field(default=None, compare=False)

    @property
    def recommended(self) -> Candidate | None:
        return None if self.best is None else self.candidates[self.best]

    @property
    def most_bytes(self) -> int:
        """The largest capacity; without one, bytes of the fullest stage of all candidates."""
        stages = [stage for candidate in self.candidates for stage in candidate.stages]
        capacities = [stage.capacity_bytes for stage in stages if stage.capacity_bytes is not None]
        held = [sum(kind.size_bytes for kind in stage.kinds) for stage in stages]
        return max(capacities or held, default=0)
