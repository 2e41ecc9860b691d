"""Several sweeps in one index: what stands in a line of it, in which order, and which lines are wanted."""

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from ....engine.files.sweep import SkippedFile
from .best import find_best
from .model import STATES, CellState, SweepCell, SweepFinding, SweepGrid
from .prediction import PredictionErrors, measure_errors

IndexColumn = Literal["sweep", "model", "gpus", "layouts", "ok", "oom", "failed", "best", "error", "newest"]
INDEX_COLUMNS: tuple[IndexColumn, ...] = get_args(IndexColumn)


class IndexedSweep(msgspec.Struct, frozen=True, kw_only=True):
    """One sweep of several."""

    name: str
    """Of its folder, with as many of those above as tell it from the others."""
    grid: SweepGrid
    findings: tuple[SweepFinding, ...]
    skipped: tuple[SkippedFile, ...] = ()
    model: str | None = None
    """As the logs, or the folder of the traces, name it."""
    memory_dir: str | None = None
    log_dir: str | None = None
    reason: str = ""
    """By what traces and logs are known to belong together."""
    modified_s: float | None = None
    """Wall time at which the newest of its traces, or lists, was written."""

    @property
    def tried(self) -> int:
        """How many layouts were tried."""
        return sum(cell.state not in ("not_run", "invalid") for cell in self.grid.cells)

    @property
    def best(self) -> SweepCell | None:
        """What ran and held least."""
        return find_best(self.grid)

    @property
    def errors(self) -> PredictionErrors | None:
        """How far the theory is from what was measured."""
        return measure_errors(self.grid.cells)

    def count(self, *states: CellState) -> int:
        """Return how many layouts are in some states."""
        return sum(1 for _ in self.grid.in_state(*states))


class SweepIndex(msgspec.Struct, frozen=True):
    """All sweeps that were found."""

    sweeps: tuple[IndexedSweep, ...]
    notes: tuple[str, ...] = ()
    """What could not be looked into."""


def sort_sweeps(
    sweeps: Sequence[IndexedSweep], column: IndexColumn, *, is_inverted: bool = False
) -> list[IndexedSweep]:
    """Return sweeps in the order of a column: numbers from the greatest, names from A; unknown ones last.

    Args:
        sweeps: In any order.
        column: What to sort by.
        is_inverted: The other way round; unknown ones stay last.
    """
    known = [sweep for sweep in sweeps if _read(sweep, column) is not None]
    from_least = column in ("sweep", "model", "best", "error")
    ordered = sorted(known, key=lambda it: it.name)
    ordered.sort(key=lambda it: _read(it, column) or 0, reverse=from_least == is_inverted)
    return [*ordered, *(sweep for sweep in sweeps if _read(sweep, column) is None)]


def _read(sweep: IndexedSweep, column: IndexColumn) -> float | str | None:
    if column == "sweep":
        return sweep.name.casefold()
    if column == "model":
        return None if sweep.model is None else sweep.model.casefold()
    return _measure(sweep, column)


def _measure(sweep: IndexedSweep, column: IndexColumn) -> float | None:
    if column == "gpus":
        return sweep.grid.world_size
    if column == "best":
        return None if sweep.best is None else sweep.best.actual_bytes
    if column == "error":
        return None if sweep.errors is None else abs(sweep.errors.typical)
    if column == "newest":
        return sweep.modified_s
    if column == "layouts":
        return sweep.tried
    return sweep.count(*(state for state in STATES if state == column))
