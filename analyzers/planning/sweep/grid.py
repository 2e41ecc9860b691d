"""Makes the grid of a sweep: every layout that was tried, and every pair of TP and PP that was not."""

from collections import Counter
from collections.abc import Iterator

from ....engine.files.sweep import Sweep, SweepConfiguration
from .model import SweepCell, SweepGrid
from .states import explain_impossibility, judge_state


def make_grid(sweep: Sweep, capacity_bytes: int) -> SweepGrid:
    """Return the grid of a sweep.

    Args:
        sweep: What was read.
        capacity_bytes: Memory of a device; a theory of as much or more says that a layout does not fit.
    """
    runs = Counter((it.tp, it.pp, it.dp) for it in sweep.configurations)
    cells = [
        _make_cell(it, sweep, capacity_bytes, has_twin=runs[it.tp, it.pp, it.dp] > 1)
        for it in sweep.configurations
    ]
    cells += _fill(cells, sweep)
    return SweepGrid(
        cells=tuple(
            sorted(cells, key=lambda cell: (cell.tp, cell.pp, cell.dp or 0, bool(cell.is_simulated)))
        ),
        capacity_bytes=capacity_bytes,
        model=sweep.model,
        world_size=sweep.world_size,
        layers=sweep.layers,
        heads=sweep.heads,
        is_simulated=sweep.is_simulated,
        notes=sweep.notes,
    )


def _make_cell(
    configuration: SweepConfiguration, sweep: Sweep, capacity_bytes: int, *, has_twin: bool
) -> SweepCell:
    trace = configuration.trace
    log = configuration.log
    state, cause = judge_state(configuration, sweep)
    actual = theory = states = activations = None
    if log is not None:
        states = log.states_bytes
        activations = log.activations_bytes
        actual = log.peak_allocated_bytes
        theory = log.theoretical_bytes
        if theory is None and states is not None and activations is not None:
            theory = states + activations
    if trace is not None:
        actual = actual if trace.peak_allocated_bytes is None else trace.peak_allocated_bytes
        theory = theory if trace.theoretical_bytes is None else trace.theoretical_bytes
    return SweepCell(
        tp=configuration.tp,
        pp=configuration.pp,
        dp=configuration.dp,
        state=state,
        actual_bytes=actual if state == "ok" else None,
        theory_bytes=theory,
        static_bytes=None if trace is None else trace.static_bytes,
        states_bytes=states,
        activations_bytes=activations,
        is_mispredicted=state == "ok" and theory is not None and theory >= capacity_bytes,
        cause=cause,
        tflops_per_gpu=None if log is None else log.tflops_per_gpu,
        iteration_s=None if log is None else log.iteration_s,
        path=None if trace is None else trace.path,
        iteration=None if trace is None or trace.peak_allocated_bytes is None else trace.iteration,
        iterations=None if trace is None else trace.iterations,
        is_simulated=configuration.is_simulated,
        has_twin=has_twin,
    )


def _fill(cells: list[SweepCell], sweep: Sweep) -> Iterator[SweepCell]:
    """Yield a cell for each pair of TP and PP in the grid that was not tried."""
    tried = {cell.place for cell in cells}
    pps = sorted({pp for _, pp in tried})
    for tp in sorted({tp for tp, _ in tried}):
        for pp in pps:
            if (tp, pp) in tried:
                continue
            cause = explain_impossibility(tp, pp, sweep)
            is_whole = sweep.world_size is not None and sweep.world_size % (tp * pp) == 0
            yield SweepCell(
                tp=tp,
                pp=pp,
                dp=(sweep.world_size or 0) // (tp * pp) if is_whole else None,
                state="not_run" if cause is None else "invalid",
                cause=cause,
            )
