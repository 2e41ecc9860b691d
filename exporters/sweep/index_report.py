"""An index of sweeps as one object of JSON; sizes are in GiB, as in the report of one sweep."""

import msgspec

from ...analyzers.planning.sweep import STATES, CellState
from ...analyzers.planning.sweep.index import IndexedSweep, SweepIndex
from .report import CellReport, SkippedReport, report_cell, report_skipped

SCHEMA = "vramscope.sweep/1"


class ErrorReport(msgspec.Struct, frozen=True):
    """How much more the theory said than was measured, in percent of that."""

    least: float
    typical: float
    """The median."""
    most: float
    layouts: int
    """Of how many layouts."""


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """One sweep; what is unknown is null."""

    name: str
    model: str | None
    world_size: int | None
    simulated: bool | None
    """Whether one GPU played each rank, as the names of the traces tell."""
    layouts: int
    """How many were tried."""
    states: dict[CellState, int]
    """How many layouts of the grid are in each state."""
    best: CellReport | None
    """What ran and held least."""
    prediction_error: ErrorReport | None
    modified_s: float | None
    """Wall time at which the newest trace, or list, was written."""
    memory_dir: str | None
    log_dir: str | None
    paired: str
    """By what traces and logs are known to belong together."""
    notes: tuple[str, ...]
    """What does not fit together, and which of several files were taken."""
    skipped: tuple[SkippedReport, ...]


class IndexReport(msgspec.Struct, frozen=True, kw_only=True):
    """All sweeps that were found and wanted."""

    schema: str = SCHEMA
    max_memory_gb: float
    sweeps: tuple[SweepReport, ...]
    found: int
    """How many there are, wanted or not."""
    notes: tuple[str, ...]
    """What could not be looked into."""
    files: tuple[str, ...]
    """What was written."""


def report_index(
    index: SweepIndex, max_memory_gib: float, *, found: int, files: tuple[str, ...] = ()
) -> IndexReport:
    """Return an index as it is reported.

    Args:
        index: The sweeps that are wanted.
        max_memory_gib: Of a device.
        found: How many there are in all.
        files: What was written.
    """
    return IndexReport(
        max_memory_gb=max_memory_gib,
        sweeps=tuple(map(_report_sweep, index.sweeps)),
        found=found,
        notes=index.notes,
        files=files,
    )


def _report_sweep(sweep: IndexedSweep) -> SweepReport:
    best = sweep.best
    errors = sweep.errors
    return SweepReport(
        name=sweep.name,
        model=sweep.model,
        world_size=sweep.grid.world_size,
        simulated=sweep.grid.is_simulated,
        layouts=sweep.tried,
        states={state: sweep.count(state) for state in STATES},
        best=None if best is None else report_cell(best),
        prediction_error=None
        if errors is None
        else ErrorReport(
            round(errors.least, 4), round(errors.typical, 4), round(errors.most, 4), errors.layouts
        ),
        modified_s=sweep.modified_s,
        memory_dir=sweep.memory_dir,
        log_dir=sweep.log_dir,
        paired=sweep.reason,
        notes=sweep.grid.notes,
        skipped=tuple(map(report_skipped, sweep.skipped)),
    )
