"""A sweep as one object of JSON and as a table of CSV; sizes are in GiB, which the original calls GB."""

import csv
from io import StringIO

import msgspec

from ...analyzers.planning.sweep import CellState, SweepCell, SweepFinding, SweepGrid
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
    """How much more the theory said than was measured."""
    mispredicted: bool
    """It ran, and the theory had said that it would not fit."""
    iteration: int | None = None
    """In which the peak was."""
    simulated: bool | None = None
    """Whether one GPU played each rank; a real and a simulated run of one layout are two cells."""


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
    """What ran and held least."""
    findings: tuple[FindingReport, ...]
    notes: tuple[str, ...]
    """What does not fit together, and which of several files were taken."""
    skipped: tuple[SkippedReport, ...]
    files: tuple[str, ...]
    """What was written."""


def report_cell(cell: SweepCell) -> CellReport:
    """Return a cell as it is reported."""
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
    """Return a sweep as it is reported.

    Args:
        grid: The cells.
        findings: What it says.
        skipped: Files that were left out.
        files: What was written.
    """
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
    """Return a file that was left out as it is reported."""
    return SkippedReport(show_path(file.path), file.reason)


def encode_csv(grid: SweepGrid) -> bytes:
    """Return all cells as CSV in UTF-8, what is unknown as nothing."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for cell in grid.cells:
        told = report_cell(cell)
        writer.writerow(
            (
                *(told.tp, told.pp, told.dp, told.state),
                *(told.actual_gb, told.theory_gb, told.error_percent, str(told.mispredicted).lower()),
                *(
                    _to_gib(cell.static_bytes),
                    cell.tflops_per_gpu,
                    cell.iteration_s,
                    cell.cause and make_csv_cell(cell.cause),
                ),
                *(told.iteration, None if told.simulated is None else str(told.simulated).lower()),
            )
        )
    return text.getvalue().encode()


def _to_gib(value_bytes: int | None) -> float | None:
    return None if value_bytes is None else _round(value_bytes / GIB)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, _PLACES)
