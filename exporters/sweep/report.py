"""A sweep as one object of JSON and as a table of CSV; sizes are in GiB, which the original calls GB."""

import csv
from io import StringIO

import msgspec

from ...analyzers.planning.sweep import STATES, CellState, SweepCell, SweepFinding, SweepGrid
from ...analyzers.planning.sweep.index import IndexedSweep, SweepIndex
from ...analyzers.planning.sweep.model import find_best
from ...engine.files.base.input_file import show_path
from ...engine.files.sweep import SkippedFile
from ...engine.text import make_csv_cell
from ...engine.units import GIB

SCHEMA = "vramscope.heatmap/1"
_PLACES = 4
_COLUMNS = (
    "tp",
    "pp",
    "dp",
    "state",
    "actual_gb",
    "theory_gb",
    "error_percent",
    "mispredicted",
    "static_gb",
    "tflops_per_gpu",
    "iteration_s",
    "cause",
    "iteration",
    "simulated",
)


class CellReport(msgspec.Struct, frozen=True):
    """One layout; what is unknown is None."""

    tp: int
    pp: int
    dp: int | None
    state: CellState
    actual_gb: float | None
    """Peak of allocated memory in GiB."""
    theory_gb: float | None
    error_percent: float | None
    """Theory less measured."""
    mispredicted: bool
    """It ran although the theory predicted that it would not fit."""
    iteration: int | None = None
    """Iteration with the peak."""
    simulated: bool | None = None
    """Whether one GPU simulated each rank; a real and a simulated run of one layout are two cells."""


class PlaceReport(msgspec.Struct, frozen=True):
    """A layout by its degrees."""

    tp: int
    pp: int


class FindingReport(msgspec.Struct, frozen=True):
    """One thing that the sweep says."""

    kind: str
    text: str
    configurations: tuple[PlaceReport, ...]


class SkippedReport(msgspec.Struct, frozen=True):
    """A file that was left out, and why."""

    path: str
    reason: str


class HeatMapReport(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep."""

    schema: str = SCHEMA
    model: str | None
    world_size: int | None
    max_memory_gb: float
    cells: tuple[CellReport, ...]
    """In order of TP, PP and DP; pairs of TP and PP that were not tried are among them."""
    best: CellReport | None
    """The layout that ran with the least memory."""
    findings: tuple[FindingReport, ...]
    notes: tuple[str, ...]
    """Contradictions, and which of several files were read."""
    skipped: tuple[SkippedReport, ...]
    files: tuple[str, ...]
    """Files written."""


def report_cell(cell: SweepCell) -> CellReport:
    return CellReport(
        tp=cell.tp,
        pp=cell.pp,
        dp=cell.dp,
        state=cell.state,
        actual_gb=_to_gib(cell.actual_bytes),
        theory_gb=_to_gib(cell.theory_bytes),
        error_percent=_round(cell.error_percent),
        mispredicted=cell.is_mispredicted,
        iteration=cell.iteration,
        simulated=cell.is_simulated,
    )


def report_sweep(
    grid: SweepGrid,
    findings: tuple[SweepFinding, ...],
    skipped: tuple[SkippedFile, ...] = (),
    files: tuple[str, ...] = (),
) -> HeatMapReport:
    best = find_best(grid)
    return HeatMapReport(
        model=grid.model,
        world_size=grid.world_size,
        max_memory_gb=grid.capacity_bytes / GIB,
        cells=tuple(map(report_cell, grid.cells)),
        best=None if best is None else report_cell(best),
        findings=tuple(
            FindingReport(it.kind, it.text, tuple(PlaceReport(tp, pp) for tp, pp in it.configurations))
            for it in findings
        ),
        notes=grid.notes,
        skipped=tuple(map(report_skipped, skipped)),
        files=files,
    )


def report_skipped(file: SkippedFile) -> SkippedReport:
    return SkippedReport(show_path(file.path), file.reason)


def encode_csv(grid: SweepGrid) -> bytes:
    """Return all cells as CSV in UTF-8, unknown values are empty."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for cell in grid.cells:
        row = report_cell(cell)
        writer.writerow(
            (
                *(row.tp, row.pp, row.dp, row.state),
                *(row.actual_gb, row.theory_gb, row.error_percent, str(row.mispredicted).lower()),
                *(
                    _to_gib(cell.static_bytes),
                    cell.tflops_per_gpu,
                    cell.iteration_s,
                    cell.cause and make_csv_cell(cell.cause),
                ),
                *(row.iteration, None if row.simulated is None else str(row.simulated).lower()),
            )
        )
    return text.getvalue().encode()


def _to_gib(value_bytes: int | None) -> float | None:
    return None if value_bytes is None else _round(value_bytes / GIB)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, _PLACES)


# An index of sweeps as one object of JSON; sizes are in GiB, as in the report of one sweep.

INDEX_SCHEMA = "vramscope.sweep/1"


class ErrorReport(msgspec.Struct, frozen=True):
    """Theory less measured, in percent of measured."""

    least: float
    typical: float
    """The median."""
    most: float
    layouts: int
    """Number of layouts."""


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """One sweep; what is unknown is null."""

    name: str
    model: str | None
    world_size: int | None
    simulated: bool | None
    """Whether one GPU simulated each rank, by the names of the traces."""
    layouts: int
    """Number of layouts tried."""
    states: dict[CellState, int]
    """Number of layouts of the grid by state."""
    best: CellReport | None
    """The layout that ran with the least memory."""
    prediction_error: ErrorReport | None
    modified_s: float | None
    """Wall time of the newest trace or list."""
    memory_dir: str | None
    log_dir: str | None
    paired: str
    """Why traces and logs belong together."""
    notes: tuple[str, ...]
    """Contradictions, and which of several files were read."""
    skipped: tuple[SkippedReport, ...]


class IndexReport(msgspec.Struct, frozen=True, kw_only=True):
    """All sweeps found that match the filter."""

    schema: str = INDEX_SCHEMA
    max_memory_gb: float
    sweeps: tuple[SweepReport, ...]
    found: int
    """Number of sweeps found, before the filter."""
    notes: tuple[str, ...]
    """Folders that could not be read."""
    files: tuple[str, ...]
    """Files written."""


def report_index(
    index: SweepIndex, max_memory_gib: float, *, found: int, files: tuple[str, ...] = ()
) -> IndexReport:
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
