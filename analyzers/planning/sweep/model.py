"""A sweep as a grid of TP and PP: cells with their state, and findings about all of them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec

from ....engine.files.sweep import Sweep, SweepConfiguration
from ....engine.units import GIB
from ...sentence import count

CellState = Literal["ok", "oom", "failed", "not_run", "invalid", "running"]
STATES: tuple[CellState, ...] = ("ok", "oom", "failed", "not_run", "invalid", "running")
# TP and PP.
Place = tuple[int, int]


class StateWords(NamedTuple):
    """What a state is called."""

    cell: str
    """In a cell of a grid."""
    told: str
    """After a number or a colon: `3 out of memory`."""
    outcome: str
    """What became of one layout: it `ran out of memory`."""
    absence: str
    """State of a layout that has no trace."""


STATE_WORDS: dict[CellState, StateWords] = {
    "ok": StateWords("ran", "ran", "ran", "ran"),
    "oom": StateWords("OOM", "out of memory", "ran out of memory", "ran out of memory"),
    "failed": StateWords("fail", "failed", "failed", "failed"),
    "not_run": StateWords("·", "not run", "not run", "did not run"),
    "invalid": StateWords("n/a", "not possible", "not possible", "cannot run"),
    "running": StateWords("…", "started, no result", "started, no result", "started without a result"),
}


class SweepCell(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One layout: its outcome, its memory and what the theory had predicted."""

    tp: int
    pp: int
    dp: int | None = None
    state: CellState
    # Peak of allocated memory on the rank that held most.
    actual_bytes: int | None = None
    theory_bytes: int | None = None
    # What stays from step to step, as the tracker logged it.
    static_bytes: int | None = None
    # Weights and optimizer, according to the theory.
    states_bytes: int | None = None
    # According to the theory.
    activations_bytes: int | None = None
    # It ran, although the theory had said that it would not fit.
    is_mispredicted: bool = False
    # Why it failed, or why it is impossible.
    cause: str | None = None
    tflops_per_gpu: float | None = None
    iteration_s: float | None = None
    # File of its trace.
    path: Path | None = None
    # Iteration of the peak; None without a trace that has one.
    iteration: int | None = None
    # Iterations of the trace that have a peak.
    iterations: int | None = None
    # Whether one GPU played each rank; None without a trace.
    is_simulated: bool | None = None
    # Whether the same layout has both a simulated run and a real one.
    has_twin: bool = False

    @property
    def kind_word(self) -> str | None:
        """`real` or `simulated` for a run with a twin; None where it has none."""
        return ("simulated" if self.is_simulated else "real") if self.has_twin else None

    @property
    def place(self) -> Place:
        return self.tp, self.pp

    @property
    def gpus_per_replica(self) -> int:
        return self.tp * self.pp

    @property
    def error_percent(self) -> float | None:
        """Theory less measured, in percent of measured; None where one of both is unknown."""
        if self.theory_bytes is None or not self.actual_bytes:
            return None
        return 100.0 * (self.theory_bytes - self.actual_bytes) / self.actual_bytes

    @property
    def has_run(self) -> bool:
        return self.state == "ok"

    @property
    def has_failed(self) -> bool:
        return self.state in {"oom", "failed"}


class SweepGrid(msgspec.Struct, frozen=True, kw_only=True):
    """All cells of a sweep."""

    cells: tuple[SweepCell, ...]
    """In order of TP, PP and DP; every pair of TP and PP has one at least."""
    capacity_bytes: int
    model: str | None = None
    world_size: int | None = None
    layers: int | None = None
    heads: int | None = None
    is_simulated: bool | None = None
    """Whether one GPU played each rank; None where it is unknown."""
    notes: tuple[str, ...] = ()

    @property
    def tps(self) -> tuple[int, ...]:
        return tuple(sorted({cell.tp for cell in self.cells}))

    @property
    def pps(self) -> tuple[int, ...]:
        return tuple(sorted({cell.pp for cell in self.cells}))

    @property
    def measured(self) -> tuple[SweepCell, ...]:
        return tuple(cell for cell in self.cells if cell.has_run and cell.actual_bytes is not None)

    def in_state(self, *states: CellState) -> Iterator[SweepCell]:
        return (cell for cell in self.cells if cell.state in states)


class SweepFinding(msgspec.Struct, frozen=True):
    """One conclusion about a sweep, with the cells that it is about."""

    kind: Literal["best", "trend", "failures", "prediction", "recommendation", "pareto"]
    text: str
    configurations: tuple[Place, ...] = ()
    """TP and PP of each."""


# The state of a layout: by its trace first, then by its log, then by the lists of the sweep.

# The word in errors of frameworks about impossible degrees.

_OF_DEGREES = "divisible"


class Limits(Protocol):
    """What the degrees of a layout have to divide, as far as it is known."""

    @property
    def world_size(self) -> int | None: ...

    @property
    def layers(self) -> int | None: ...

    @property
    def heads(self) -> int | None: ...


def judge_state(configuration: SweepConfiguration, sweep: Sweep) -> tuple[CellState, str | None]:
    """Return the state of a layout that was tried, and why it is not `ok`."""
    log = configuration.log
    outcome = configuration.outcome
    if configuration.trace is not None or outcome == "success":
        return "ok", None
    cause = None if log is None else log.cause
    if log is not None and log.is_out_of_memory:
        return "oom", cause
    if outcome == "started":
        return "running", cause
    if cause is not None:
        return "invalid" if _OF_DEGREES in cause else "failed", cause
    impossible = explain_impossibility(configuration.tp, configuration.pp, sweep, dp=configuration.dp)
    return ("failed", None) if impossible is None else ("invalid", impossible)


def explain_impossibility(tp: int, pp: int, limits: Limits, *, dp: int | None = None) -> str | None:
    """Return why a layout is impossible; None where nothing known forbids it. DP None is whatever is left.

    TP must divide the attention heads, PP the layers.
    """
    world_size = limits.world_size
    layers = limits.layers
    heads = limits.heads
    if heads is not None and heads % tp:
        return f"{heads:,} attention heads are not divisible by TP {tp:,}"
    if layers is not None and layers % pp:
        return f"{layers:,} layers are not divisible by PP {pp:,}"
    if world_size is not None and world_size % (tp * pp):
        return f"{world_size:,} GPUs are not divisible by TP × PP = {tp * pp:,}"
    if world_size is not None and dp is not None and tp * pp * dp != world_size:
        return f"TP × PP × DP = {tp * pp * dp:,} is not the world size of {world_size:,}"
    return None


def make_grid(sweep: Sweep, capacity_bytes: int) -> SweepGrid:
    """Build the grid of a sweep: every layout that was tried, and every pair of TP and PP that was not.

    Args:
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


# How findings about a sweep name layouts and amounts.

_MOST_NAMED = 6


def name_cell(cell: SweepCell) -> str:
    """Name a layout, with a mark for a real run or its simulation."""
    kind = "" if cell.kind_word is None else f" ({cell.kind_word})"
    return f"TP {cell.tp} × PP {cell.pp}{kind}"


def name_cells(cells: Sequence[SweepCell]) -> str:
    shown = ", ".join(name_cell(cell) for cell in cells[:_MOST_NAMED])
    return shown if len(cells) <= _MOST_NAMED else f"{shown} and {len(cells) - _MOST_NAMED:,} more"


def show_gib(value_bytes: float | None) -> str:
    return "—" if value_bytes is None else f"{value_bytes / GIB:.1f} GiB"


def list_places(cells: Iterable[SweepCell]) -> tuple[Place, ...]:
    return tuple(dict.fromkeys(cell.place for cell in cells))


# The layout that needs least memory, and where speed is known, those that nothing beats in both.


def find_best(grid: SweepGrid) -> SweepCell | None:
    """Return the layout that ran and held least; of equals the one with fewer GPUs a replica.

    Of a real run and its simulation the one that held more counts.
    """
    most: dict[tuple[int, int, int | None], SweepCell] = {}
    for cell in grid.measured:
        known = most.get((cell.tp, cell.pp, cell.dp))
        if known is None or (cell.actual_bytes or 0) > (known.actual_bytes or 0):
            most[cell.tp, cell.pp, cell.dp] = cell
    return min(
        most.values(), key=lambda cell: (cell.actual_bytes or 0, cell.gpus_per_replica, cell.tp), default=None
    )


def does_anything_fit(grid: SweepGrid) -> bool | None:
    """Return whether a layout that ran stays below the capacity; None where no memory is known."""
    if any((cell.actual_bytes or 0) < grid.capacity_bytes for cell in grid.measured):
        return True
    return False if grid.measured or any(grid.in_state("oom")) else None


def find_front(grid: SweepGrid) -> list[SweepCell]:
    """Return the layouts that no other beats in both memory and speed, the fastest first."""
    front: list[SweepCell] = []
    known = [(cell, speed) for cell in grid.measured if (speed := measure_speed(cell)) is not None]
    for cell, _ in sorted(known, key=lambda it: (-it[1], it[0].actual_bytes or 0)):
        if not front or (cell.actual_bytes or 0) < (front[-1].actual_bytes or 0):
            front.append(cell)
    return front


def measure_speed(cell: SweepCell) -> float | None:
    """Return TFLOP/s of a GPU, which makes layouts of any batch comparable."""
    return cell.tflops_per_gpu


def describe_best(grid: SweepGrid) -> Iterator[SweepFinding]:
    best = find_best(grid)
    if best is None:
        return
    share = 100 * (best.actual_bytes or 0) / grid.capacity_bytes
    text = (
        f"{name_cell(best)} needs least: {show_gib(best.actual_bytes)}, {share:.0f} % of "
        f"{show_gib(grid.capacity_bytes)}"
    )
    yield SweepFinding("best", text, (best.place,))
    beyond = [cell for cell in grid.measured if (cell.actual_bytes or 0) >= grid.capacity_bytes]
    if beyond:
        text = (
            f"{count(len(beyond), 'layout')} ran with {show_gib(grid.capacity_bytes)} or more, too "
            f"much for the given device: {name_cells(beyond)}"
        )
        yield SweepFinding("failures", text, list_places(beyond))
    front = find_front(grid)
    if front:
        layouts = "; ".join(
            f"{name_cell(cell)} {measure_speed(cell):.1f} TFLOP/s per GPU in {show_gib(cell.actual_bytes)}"
            for cell in front
        )
        yield SweepFinding(
            "pareto", f"nothing is both faster and smaller than: {layouts}", list_places(front)
        )
