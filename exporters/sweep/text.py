"""A sweep in words: what a reader who does not see the figure has to know, and what the verb prints."""

from collections.abc import Iterable, Sequence

from ...analyzers.planning.sweep import CellState, SweepCell, SweepFinding, SweepGrid
from ...engine.files.sweep import SkippedFile
from ...engine.text import make_printable
from ...engine.units import GIB
from ..text_table import INDENT, count, wrap
from .figure_layout import choose_cells
from .grid_text import describe_grid

STATE_WORDS: dict[CellState, str] = {
    "ok": "ran",
    "oom": "out of memory",
    "failed": "failed",
    "not_run": "not run",
    "invalid": "not possible",
    "running": "started, no result",
}
_MOST_ROWS = 400
"""Larger grids are told by their findings; the CSV has every cell."""
_MOST_SKIPPED = 10


def describe_figure(grid: SweepGrid, findings: Sequence[SweepFinding]) -> str:
    """Return the text that stands for the figure: what it shows, what it says, and every cell."""
    rows = _span(grid.tps)
    columns = _span(grid.pps)
    lines = [
        f"Heat map of peak GPU memory{name_sweep(grid)}: tensor parallel size {rows} in rows, pipeline "
        f"parallel size {columns} in columns. Of {count(len(grid.cells), 'layout')}: {_count_states(grid)}; "
        f"a device has {grid.capacity_bytes / GIB:g} GiB.",
        "",
        *(f"- {finding.text}" for finding in findings),
    ]
    if len(grid.cells) <= _MOST_ROWS:
        lines += ["", *map(describe_cell, grid.cells)]
    return "\n".join(lines) + "\n"


def name_iteration(cell: SweepCell) -> str:
    """Return in which iteration the peak was, nothing where a trace has no other."""
    if cell.iteration is None or (cell.iterations or 1) < 2:
        return ""
    return f" in iteration {cell.iteration:,} of {cell.iterations:,}"


def describe_findings(grid: SweepGrid, findings: Sequence[SweepFinding], width: int) -> str:
    """Return what the verb prints of a sweep: the grid, as far as it fits, and what it says.

    Args:
        grid: The cells.
        findings: What it says.
        width: Cells of a line.
    """
    head = f"{count(len(grid.cells), 'layout')}{name_sweep(grid)}: {_count_states(grid)}"
    drawn = describe_grid(grid, width)
    lines = [*wrap(head, width), "", *drawn, *([""] if drawn else []), *_wrap(findings, width)]
    return "\n".join(lines) + "\n"


def describe_hidden(grid: SweepGrid) -> Iterable[str]:
    """Yield a line about layouts that the figure does not show."""
    hidden = choose_cells(grid).hidden
    if hidden:
        yield (
            f"layouts that share TP and PP with another one: {hidden:,}; the figure shows what ran and "
            "held most, CSV and JSON have all"
        )


def _wrap(findings: Sequence[SweepFinding], width: int) -> Iterable[str]:
    for finding in findings:
        yield from wrap(finding.text, width, INDENT)


def describe_skipped(skipped: Sequence[SkippedFile]) -> Iterable[str]:
    """Yield a line about files that were left out, and one for each of the first of them."""
    if not skipped:
        return
    yield f"files left out: {len(skipped):,}"
    for file in skipped[:_MOST_SKIPPED]:
        name = file.path.name
        yield f"  {make_printable(name)}: {file.reason}"
    if len(skipped) > _MOST_SKIPPED:
        yield f"  and {len(skipped) - _MOST_SKIPPED:,} more; --json lists all of them"


def name_sweep(grid: SweepGrid) -> str:
    parts = (
        None if grid.model is None else f"model {grid.model}",
        None if grid.world_size is None else f"{grid.world_size:,} GPUs",
    )
    told = ", ".join(part for part in parts if part is not None)
    return f" ({told})" if told else ""


def _span(values: Sequence[int]) -> str:
    return f"{values[0]} to {values[-1]}" if len(values) > 1 else ", ".join(map(str, values))


def _count_states(grid: SweepGrid) -> str:
    counted = {state: sum(1 for _ in grid.in_state(state)) for state in STATE_WORDS}
    return ", ".join(f"{number:,} {STATE_WORDS[state]}" for state, number in counted.items() if number)


def describe_cell(cell: SweepCell) -> str:
    kind = "" if cell.kind_word is None else f" ({cell.kind_word})"
    text = f"TP {cell.tp}, PP {cell.pp}{kind}: {STATE_WORDS[cell.state]}"
    if cell.actual_bytes is not None:
        text += f", {cell.actual_bytes / GIB:.1f} GiB{name_iteration(cell)}"
    if cell.theory_bytes is not None:
        text += f", predicted {cell.theory_bytes / GIB:.1f} GiB"
    if cell.error_percent is not None:
        text += f" ({cell.error_percent:+.0f} %)"
    if cell.is_mispredicted:
        text += ", ruled out by the theory"
    return text if cell.cause is None else f"{text}: {cell.cause}"
