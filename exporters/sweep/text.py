"""A sweep in words: what a reader who does not see the figure has to know, and what the verb prints."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from ...analyzers.planning.sweep import STATE_WORDS, CellState, SweepCell, SweepFinding, SweepGrid
from ...analyzers.planning.sweep.index import IndexedSweep, SweepIndex, judge_sweep
from ...analyzers.planning.sweep.model import find_best
from ...analyzers.sentence import count
from ...engine.files.base.input_file import show_name
from ...engine.files.sweep import SkippedFile
from ...engine.text import make_printable
from ...engine.units import GIB
from ..text import INDENT, UNKNOWN, format_rows, show_number, wrap
from .figure_cells import DrawnGrid, choose_cells

_MOST_ROWS = 400
"""Larger grids are described by their findings; the CSV has every cell."""
_MOST_SKIPPED = 10


def describe_figure(grid: SweepGrid, findings: Sequence[SweepFinding]) -> str:
    """Return the alternative text of the figure: its axes, its findings, and every cell."""
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
    """Return what the verb prints of a sweep: the grid, as far as it fits, and what it says."""
    head = f"{count(len(grid.cells), 'layout')}{name_sweep(grid)}: {_count_states(grid)}"
    drawn = describe_grid(grid, width)
    lines = [*wrap(head, width), "", *drawn, *([""] if drawn else [])]
    lines += [line for finding in findings for line in wrap(finding.text, width, INDENT)]
    return "\n".join(lines) + "\n"


def describe_hidden(grid: SweepGrid) -> Iterable[str]:
    """Yield a line about layouts that the figure does not show."""
    hidden = choose_cells(grid).hidden
    if hidden:
        yield (
            f"layouts that share TP and PP with another one: {hidden:,}; the figure shows the one that ran "
            "and used most, CSV and JSON have all"
        )


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
    facts = ", ".join(part for part in parts if part is not None)
    return f" ({facts})" if facts else ""


def _span(values: Sequence[int]) -> str:
    return f"{values[0]} to {values[-1]}" if len(values) > 1 else ", ".join(map(str, values))


def _count_states(grid: SweepGrid) -> str:
    counted = {state: sum(1 for _ in grid.in_state(state)) for state in STATE_WORDS}
    return ", ".join(f"{number:,} {STATE_WORDS[state].told}" for state, number in counted.items() if number)


def describe_cell(cell: SweepCell) -> str:
    kind = "" if cell.kind_word is None else f" ({cell.kind_word})"
    text = f"TP {cell.tp}, PP {cell.pp}{kind}: {STATE_WORDS[cell.state].told}"
    if cell.actual_bytes is not None:
        text += f", {cell.actual_bytes / GIB:.1f} GiB{name_iteration(cell)}"
    if cell.theory_bytes is not None:
        text += f", predicted {cell.theory_bytes / GIB:.1f} GiB"
    if cell.error_percent is not None:
        text += f" ({cell.error_percent:+.0f} %)"
    if cell.is_mispredicted:
        text += ", ruled out by the theory"
    return text if cell.cause is None else f"{text}: {cell.cause}"


# The grid of a sweep as plain text: one cell a layout, marks for the best and for wrong predictions.

_CELL = 7
_MOST_GRID_ROWS = 40


def describe_grid(grid: SweepGrid, width: int) -> list[str]:
    """Return the grid as lines, none where it is too large for them."""
    drawn = choose_cells(grid)
    best = find_best(grid)
    label = max(len(f"TP {tp}") for tp in drawn.rows) + 2
    if label + _CELL * len(drawn.columns) > width or len(drawn.rows) > _MOST_GRID_ROWS:
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
    text = STATE_WORDS[cell.state].cell if cell.actual_bytes is None else f"{cell.actual_bytes / GIB:.1f}"
    opening, mark = ("[", "]") if cell is best else ("", "!" if cell.is_mispredicted else " ")
    return f"{opening}{text}{mark}".rjust(_CELL)


def _explain(drawn: DrawnGrid, grid: SweepGrid, best: SweepCell | None) -> list[str]:
    legend = []
    if best is not None:
        legend.append("[ ] least memory, GiB")
    if any(cell.is_mispredicted for cell in drawn.cells.values()):
        legend.append(f"! ran, the theory predicted {grid.capacity_bytes / GIB:g} GiB or more")
    for cell in drawn.cells.values():
        if cell.kind_word is not None:
            legend.append(
                f"TP {cell.tp} PP {cell.pp}: the {cell.kind_word} run, which used more than its twin"
            )
            break
    return [f"  {'   '.join(legend)}"] if legend else []


# An index of sweeps as a table: one line a sweep, and below it what each one says of itself.

HEADINGS = (
    *("sweep", "model", "GPUs", "best", "GiB", "theory %"),
    *("ok", "OOM", "fail", "not run", "layouts", "newest"),
)
ALIGNMENT = "llrlrrrrrrrl"
_COUNTED: tuple[CellState, ...] = ("ok", "oom", "failed")
_LONGEST_NAME = 40
_LEAST_NAME = 12
_OTHERS = 68
"""Cells of a name, and of the columns next to it."""
UNCUT = 1 << 16
"""Cells into which every sentence fits."""
_MOST_WITH_DETAILS = 40
"""Longer indexes are printed as the table only."""


def describe_index(index: SweepIndex, width: int, *, found: int) -> str:
    shown = count(len(index.sweeps), "sweep")
    head = shown if found == len(index.sweeps) else f"{len(index.sweeps):,} of {count(found, 'sweep')}"
    lines = [head]
    if index.sweeps:
        cells = min(_LONGEST_NAME, max(_LEAST_NAME, width - _OTHERS))
        rows = [HEADINGS, *((cut_name(sweep.name, cells), *row_of(sweep)) for sweep in index.sweeps)]
        lines += ["", *format_rows(rows, ALIGNMENT, width), ""]
    if len(index.sweeps) <= _MOST_WITH_DETAILS:
        for sweep in index.sweeps:
            lines += describe_sweep(sweep, width).splitlines()
    return "\n".join(lines).rstrip() + "\n"


def row_of(sweep: IndexedSweep) -> tuple[str, ...]:
    """Return the columns of a sweep after its name, under `HEADINGS`."""
    grid = sweep.grid
    best = sweep.best
    return (
        sweep.model or UNKNOWN,
        show_number(grid.world_size),
        UNKNOWN if best is None else f"TP {best.tp} PP {best.pp}",
        show_number(None if best is None else best.actual_bytes, ".1f", per=GIB),
        describe_errors(sweep),
        *(f"{sweep.count(state):,}" for state in _COUNTED),
        f"{sweep.count('not_run', 'invalid', 'running'):,}",
        f"{sweep.tried:,}",
        UNKNOWN if sweep.modified_s is None else f"{datetime.fromtimestamp(sweep.modified_s):%Y-%m-%d %H:%M}",
    )


def cut_name(name: str, cells: int) -> str:
    """Return a name without its middle where it is too long: names of one tree differ at either end."""
    if len(name) <= cells:
        return name
    end = cells // 2
    return f"{name[: cells - end - 1]}…{name[-end:]}"


def describe_errors(sweep: IndexedSweep) -> str:
    """Return by how many percent the theory errs: the least and the most, with their sign."""
    errors = sweep.errors
    if errors is None:
        return UNKNOWN
    least = f"{errors.least:+.0f}"
    most = f"{errors.most:+.0f}"
    return least if least == most else f"{least} … {most}"


def describe_sweep(sweep: IndexedSweep, width: int = UNCUT) -> str:
    """Return what a sweep says in one sentence, how it was put together, and what was left out of it."""
    reason = sweep.reason
    if sweep.grid.is_simulated:
        reason += "; the names of the traces say that one GPU played each rank (simulated)"
    lines = wrap(f"{sweep.name}: {judge_sweep(sweep.grid).fit(UNCUT)}", width)
    for note in (reason, *describe_left_out([sweep])):
        lines += wrap(note, width, INDENT)
    return "\n".join(lines)


def describe_left_out(sweeps: Sequence[IndexedSweep]) -> Iterator[str]:
    """Yield what does not fit together, and how many files were left out."""
    for sweep in sweeps:
        yield from sweep.grid.notes
        if sweep.skipped:
            first = sweep.skipped[0]
            name = show_name(first.path)
            yield f"files left out: {len(sweep.skipped):,}, the first is {name}: {first.reason}"
