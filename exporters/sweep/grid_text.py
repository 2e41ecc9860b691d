"""The grid of a sweep as plain text: one cell a layout, marks for the best and for wrong predictions."""

from ...analyzers.planning.sweep import CellState, SweepCell, SweepGrid
from ...analyzers.planning.sweep.model import find_best
from ...engine.units import GIB
from .figure_layout import DrawnGrid, choose_cells

_WORDS: dict[CellState, str] = {
    "ok": "ran",
    "oom": "OOM",
    "failed": "fail",
    "not_run": "·",
    "invalid": "n/a",
    "running": "…",
}
_CELL = 7
_MOST_ROWS = 40


def describe_grid(grid: SweepGrid, width: int) -> list[str]:
    """Return the grid as lines, none where it is too large for them.

    Args:
        grid: The cells.
        width: Cells of a line.
    """
    drawn = choose_cells(grid)
    best = find_best(grid)
    label = max(len(f"TP {tp}") for tp in drawn.rows) + 2
    if label + _CELL * len(drawn.columns) > width or len(drawn.rows) > _MOST_ROWS:
        return []
    head = " " * label + "".join(
        f"{f'PP {pp}' if at == 0 else pp} ".rjust(_CELL) for at, pp in enumerate(drawn.columns)
    )
    rows = [_describe_row(drawn, tp, label, best) for tp in drawn.rows]
    return [line.rstrip() for line in (head, *rows, *_explain(drawn, grid, best))]


def _describe_row(drawn: DrawnGrid, tp: int, label: int, best: SweepCell | None) -> str:
    cells = (drawn.cells[tp, pp] for pp in drawn.columns)
    return f"  TP {tp}".ljust(label) + "".join(_describe_cell(cell, best) for cell in cells)


def _describe_cell(cell: SweepCell, best: SweepCell | None) -> str:
    """Return a cell with its marks; figures and words end in the same column."""
    text = _WORDS[cell.state] if cell.actual_bytes is None else f"{cell.actual_bytes / GIB:.1f}"
    opening, mark = ("[", "]") if cell is best else ("", "!" if cell.is_mispredicted else " ")
    return f"{opening}{text}{mark}".rjust(_CELL)


def _explain(drawn: DrawnGrid, grid: SweepGrid, best: SweepCell | None) -> list[str]:
    told = []
    if best is not None:
        told.append("[ ] least memory, GiB")
    if any(cell.is_mispredicted for cell in drawn.cells.values()):
        told.append(f"! ran, the theory had said {grid.capacity_bytes / GIB:g} GiB or more")
    for cell in drawn.cells.values():
        if cell.kind_word is not None:
            told.append(f"TP {cell.tp} PP {cell.pp}: the {cell.kind_word} run, which held more than its twin")
            break
    return [f"  {'   '.join(told)}"] if told else []
