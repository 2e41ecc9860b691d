"""Which layouts to try next: untried ones that what was measured says will fit, the least divided first."""

from collections.abc import Iterator

from .model import SweepCell, SweepFinding, SweepGrid
from .parts import TwoParts, fit_two_parts
from .states import explain_impossibility
from .words import list_places, name_cell, name_cells, show_gib

MOST_SHARE = 0.9
"""Of the device's memory, that a recommended layout is to need at most."""
_MOST_LAYOUTS = 3
_LARGEST_TP = 8
"""TP beyond the GPUs of one node is slow (Narayanan et al., SC 2021, takeaway 1): not unless it was tried."""


def describe_recommendations(grid: SweepGrid) -> Iterator[SweepFinding]:
    """Yield what to try next, or why nothing is recommended."""
    measured = grid.measured
    parts = fit_two_parts(measured, [float(cell.actual_bytes or 0) for cell in measured])
    if parts is None:
        return
    limit_bytes = MOST_SHARE * grid.capacity_bytes
    candidates = [cell for cell in _list_candidates(grid) if parts.predict(cell.tp, cell.pp) <= limit_bytes]
    candidates.sort(key=lambda cell: (cell.gpus_per_replica, cell.tp))
    accuracy = f"{100 * parts.worst_share:.0f} %"
    basis = f"from {len(measured):,} measurements, which the estimate meets within {accuracy}"
    if not candidates:
        yield SweepFinding("recommendation", f"{_say_nothing_left(grid)} ({basis})")
        return
    chosen = candidates[:_MOST_LAYOUTS]
    told = "; ".join(_describe(cell, parts) for cell in chosen)
    yield SweepFinding("recommendation", f"try next: {told} ({basis})", list_places(chosen))


def _describe(cell: SweepCell, parts: TwoParts) -> str:
    again = ", again: it failed and no cause is told" if cell.state == "failed" else ""
    return f"{name_cell(cell)}, about {show_gib(parts.predict(cell.tp, cell.pp))}{again}"


def _say_nothing_left(grid: SweepGrid) -> str:
    least = min(cell.gpus_per_replica for cell in grid.measured)
    lean = [cell for cell in grid.measured if cell.gpus_per_replica == least]
    return (
        f"no untried layout is expected to need less than {100 * MOST_SHARE:.0f} % of the device; of those "
        f"that ran, {name_cells(lean)} divide the model least"
    )


def _list_candidates(grid: SweepGrid) -> Iterator[SweepCell]:
    """Yield untried layouts in the grid and one step around what ran, and failures without a cause."""
    known = {cell.place for cell in grid.cells}
    yield from (cell for cell in grid.in_state("not_run", "failed") if cell.cause is None)
    steps = ((2, 1), (1, 2))
    around = {
        place
        for cell in grid.measured
        for tp, pp in steps
        for place in ((cell.tp * tp, cell.pp * pp), (cell.tp // tp, cell.pp // pp))
    }
    largest_tp = max(_LARGEST_TP, *grid.tps)
    for tp, pp in sorted(around - known):
        is_near = 0 < tp <= largest_tp and pp > 0
        if is_near and explain_impossibility(tp, pp, grid) is None:
            yield SweepCell(tp=tp, pp=pp, state="not_run")
