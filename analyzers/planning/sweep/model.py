"""A sweep as a grid of TP and PP: cells with their state, and findings about all of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

CellState = Literal["ok", "oom", "failed", "not_run", "invalid", "running"]
STATES: tuple[CellState, ...] = ("ok", "oom", "failed", "not_run", "invalid", "running")
Place = tuple[int, int]
"""TP and PP."""


class SweepCell(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One layout: what became of it, what it held and what the theory had said."""

    tp: int
    pp: int
    dp: int | None = None
    state: CellState
    actual_bytes: int | None = None
    """Peak of allocated memory on the rank that held most."""
    theory_bytes: int | None = None
    static_bytes: int | None = None
    """What stays from step to step, as the tracker logged it."""
    states_bytes: int | None = None
    """Weights and optimizer, as the theory has them."""
    activations_bytes: int | None = None
    """As the theory has them."""
    is_mispredicted: bool = False
    """It ran, and the theory had said that it would not fit."""
    cause: str | None = None
    """Why it failed, or why it cannot be."""
    tflops_per_gpu: float | None = None
    iteration_s: float | None = None
    path: Path | None = None
    """Its trace."""
    iteration: int | None = None
    """In which the peak was; None without a trace that has one."""
    iterations: int | None = None
    """How many iterations of the trace have a peak."""
    is_simulated: bool | None = None
    """Whether one GPU played each rank; None without a trace."""
    has_twin: bool = False
    """Whether the same layout has a simulated run and a real one, which is the other one."""

    @property
    def kind_word(self) -> str | None:
        """What tells a run from its twin: `real` or `simulated`; None where it has none."""
        return ("simulated" if self.is_simulated else "real") if self.has_twin else None

    @property
    def place(self) -> Place:
        """TP and PP."""
        return self.tp, self.pp

    @property
    def gpus_per_replica(self) -> int:
        """How many GPUs share one copy of the model."""
        return self.tp * self.pp

    @property
    def error_percent(self) -> float | None:
        """How much more the theory said than was measured; None where one of both is unknown."""
        if self.theory_bytes is None or not self.actual_bytes:
            return None
        return 100.0 * (self.theory_bytes - self.actual_bytes) / self.actual_bytes

    @property
    def has_run(self) -> bool:
        """Whether it ran to its end."""
        return self.state == "ok"

    @property
    def has_failed(self) -> bool:
        """Whether it was tried and did not run."""
        return self.state in {"oom", "failed"}


class SweepGrid(msgspec.Struct, frozen=True, kw_only=True):
    """All cells of a sweep."""

    cells: tuple[SweepCell, ...]
    """In order of TP, PP and DP; every pair of TP and PP has one at least."""
    capacity_bytes: int
    model: str | None = None
    world_size: int | None = None
    layers: int | None = None
    heads: int | None = None
    is_simulated: bool | None = None
    """Whether one GPU played each rank; None where nobody tells."""
    notes: tuple[str, ...] = ()

    @property
    def tps(self) -> tuple[int, ...]:
        """The rows."""
        return tuple(sorted({cell.tp for cell in self.cells}))

    @property
    def pps(self) -> tuple[int, ...]:
        """The columns."""
        return tuple(sorted({cell.pp for cell in self.cells}))

    @property
    def measured(self) -> tuple[SweepCell, ...]:
        """Those that ran and whose memory is known."""
        return tuple(cell for cell in self.cells if cell.has_run and cell.actual_bytes is not None)

    def in_state(self, *states: CellState) -> Iterator[SweepCell]:
        """Yield the cells in one of some states."""
        return (cell for cell in self.cells if cell.state in states)


class SweepFinding(msgspec.Struct, frozen=True):
    """One thing that a sweep says, with the cells that it is about."""

    kind: Literal["best", "trend", "failures", "prediction", "recommendation", "pareto"]
    text: str
    configurations: tuple[Place, ...] = ()
    """TP and PP of each."""
