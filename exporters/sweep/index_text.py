"""An index of sweeps as a table: one line a sweep, and below it what each one says of itself."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from ...analyzers.planning.sweep import CellState
from ...analyzers.planning.sweep.index import IndexedSweep, SweepIndex, judge_sweep
from ...engine.files.base.input_file import show_name
from ...engine.units import GIB
from ..text_table import INDENT, count, format_rows, wrap

HEADINGS = (
    *("sweep", "model", "GPUs", "best", "GiB", "theory %"),
    *("ok", "OOM", "fail", "not run", "layouts", "newest"),
)
ALIGNMENT = "llrlrrrrrrrl"
_UNKNOWN = "—"
_COUNTED: tuple[CellState, ...] = ("ok", "oom", "failed")
_LONGEST_NAME = 40
_LEAST_NAME = 12
_OTHERS = 68
"""Cells of a name, and of what stands beside it."""
UNCUT = 1 << 16
"""Cells into which every sentence fits."""
_MOST_WITH_DETAILS = 40
"""Of longer indexes only the table is printed."""


def describe_index(index: SweepIndex, width: int, *, found: int) -> str:
    """Return the table of an index, and what is to be said of each sweep.

    Args:
        index: The sweeps that are wanted, in the order in which they are listed.
        width: Cells of a line.
        found: How many there are in all.
    """
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
    """Return what stands in the line of a sweep after its name, under `HEADINGS`."""
    grid = sweep.grid
    best = sweep.best
    return (
        sweep.model or _UNKNOWN,
        _UNKNOWN if grid.world_size is None else f"{grid.world_size:,}",
        _UNKNOWN if best is None else f"TP {best.tp} PP {best.pp}",
        _UNKNOWN if best is None or best.actual_bytes is None else f"{best.actual_bytes / GIB:.1f}",
        describe_errors(sweep),
        *(f"{sweep.count(state):,}" for state in _COUNTED),
        f"{sweep.count('not_run', 'invalid', 'running'):,}",
        f"{sweep.tried:,}",
        _UNKNOWN
        if sweep.modified_s is None
        else f"{datetime.fromtimestamp(sweep.modified_s):%Y-%m-%d %H:%M}",
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
        return _UNKNOWN
    least = f"{errors.least:+.0f}"
    most = f"{errors.most:+.0f}"
    return least if least == most else f"{least} … {most}"


def describe_sweep(sweep: IndexedSweep, width: int = UNCUT) -> str:
    """Return what a sweep says in one sentence, how it was put together, and what was left out of it."""
    told = sweep.reason
    if sweep.grid.is_simulated:
        told += "; the names of the traces say that one GPU played each rank (simulated)"
    lines = wrap(f"{sweep.name}: {judge_sweep(sweep.grid).fit(UNCUT)}", width)
    for note in (told, *describe_left_out([sweep])):
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
