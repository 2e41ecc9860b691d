"""A real run and its simulation: peaks, their error, and the allocations of one iteration of each."""

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..files.base.input_file import show_name
from ..files.memory_trace.reading import MemoryTrace, TraceIteration, read_memory_trace
from ..files.memory_trace.run import read_memory_trace_run
from ..sampling.trace_player import TracePlayer
from ..sampling.trace_ticks import RankTicks, TraceRows, tick_of
from ..units import MIB

# If the files of a real run are larger together, the curve of an iteration is by ticks, not by samples.
MOST_WHOLE_BYTES = 64 * MIB
MOST_CURVE_POINTS = 100_000


class Curve(msgspec.Struct, frozen=True):
    """Allocated memory of a rank during one iteration."""

    # Since the first sample of the iteration.
    offsets_s: Sequence[float]
    allocated_bytes: Sequence[int]


class SimulatedRank(msgspec.Struct, frozen=True):
    """One simulated rank, in its only iteration."""

    peak_bytes: int | None
    # By a formula, if it was logged.
    theoretical_bytes: int | None
    # Parameters, gradients and optimizer states, if they were logged.
    static_bytes: int | None
    curve: Curve


class IterationComparison(msgspec.Struct, frozen=True):
    """One real iteration of a rank and the simulated one."""

    index: int
    real_peak_bytes: int | None
    # How much higher the simulated peak is, as a share of the real one.
    error: float | None
    real: Curve
    # The curve is of ticks, because the files are too large to be in memory whole.
    is_ticks: bool


class ErrorRange(msgspec.Struct, frozen=True):
    least: float
    most: float
    # Whose peak was logged.
    iterations: int


class RankComparison(msgspec.Struct, frozen=True, eq=False):
    """One rank of the real run and the same of the simulation."""

    rank: int
    # The device that the real rank plays as.
    uuid: str
    # Highest of all iterations.
    real_peak_bytes: int | None
    # None if the simulation has no trace of this rank.
    simulated: SimulatedRank | None
    ticks: RankTicks
    rows: TraceRows
    interval_s: float
    # All samples of the real rank, if they are few enough.
    samples: MemoryTrace | None
    # Errors over its iterations; None if none can be compared.
    errors: ErrorRange | None = None

    @property
    def error(self) -> float | None:
        """How much higher the simulated peak is, as a share of the real one; None if either is unknown."""
        return _find_error(self.real_peak_bytes, self.simulated)

    def iteration(self, index: int | None) -> IterationComparison | None:
        at = None if index is None else self.ticks.iterations.find(index)
        start_s = None if at is None else self.ticks.iterations.start_s(at)
        if index is None or at is None or start_s is None:
            return None
        peak_bytes = self.ticks.iterations.logged(at).peak_allocated_bytes
        if self.samples is not None:
            curve = _cut(self.samples, self.samples.iterations[at])
        else:
            curve = self._read_ticks(index, start_s)
        error = _find_error(peak_bytes, self.simulated)
        return IterationComparison(index, peak_bytes, error, curve, self.samples is None)

    def _read_ticks(self, index: int, start_s: float) -> Curve:
        """Return the highest of each tick of an iteration."""
        ticks = self.ticks
        rows = self.rows
        numbers = range(ticks.start, ticks.stop)
        at = ticks.start + bisect_left(numbers, tick_of(start_s, self.interval_s), key=rows.tick)
        offsets_s: list[float] = []
        allocated: list[int] = []
        for row in rows.rows(at, min(ticks.stop, at + MOST_CURVE_POINTS)):
            if row.iteration > index:
                break
            offsets_s.append(max(0.0, row.newest_s - start_s))
            allocated.append(row.allocated_max_bytes)
        return Curve(offsets_s, allocated)


class TraceComparison(msgspec.Struct, frozen=True, eq=False):
    real_name: str
    simulated_name: str
    ranks: tuple[RankComparison, ...]

    @property
    def worst(self) -> RankComparison | None:
        """The rank whose peak the simulation missed by most; None if none can be compared."""
        known = [it for it in self.ranks if it.error is not None]
        return max(known, key=lambda it: abs(it.error or 0.0), default=None)

    @property
    def compared(self) -> int:
        return sum(it.error is not None for it in self.ranks)

    def find(self, uuid: str) -> RankComparison | None:
        return next((it for it in self.ranks if it.uuid == uuid), None)


def compare_runs(player: TracePlayer, simulated: Path) -> TraceComparison:
    """Compare a real run with its simulation, given by its folder or the file of one rank."""
    run = player.run
    uuids = player.uuids
    partners = {it.name.rank: _read_simulated(it) for it in read_memory_trace_run(simulated).ranks}
    is_small = sum(rank.path.stat().st_size for rank in run.ranks) <= MOST_WHOLE_BYTES
    return TraceComparison(
        player.node,
        show_name(simulated.resolve()),
        tuple(
            RankComparison(
                rank.name.rank,
                uuids[rank.name.rank],
                rank.peak_bytes,
                partners.get(rank.name.rank),
                rank,
                run.rows,
                run.interval_s,
                read_memory_trace(rank.path) if is_small else None,
                _find_range(rank, partners.get(rank.name.rank)),
            )
            for rank in run.ranks
        ),
    )


def describe_error(error: float) -> str:
    """`+0.007 %`, `-1.25 %`"""
    percent = 100 * error
    places = 3 if abs(percent) < 1 else 2 if abs(percent) < 10 else 1
    return f"{percent:+.{places}f} %"


def describe_mebibytes(value_bytes: int | None) -> str:
    """Two places, as in traces: `71,408.03 MiB`; `—` if unknown."""
    return "—" if value_bytes is None else f"{value_bytes / MIB:,.2f} MiB"


def _read_simulated(trace: MemoryTrace) -> SimulatedRank:
    """Read a simulated trace; of several iterations the last counts."""
    iteration = trace.iterations[-1]
    curve = _cut(trace, iteration)
    peak_bytes = iteration.peak_allocated_bytes
    if peak_bytes is None:
        peak_bytes = max(curve.allocated_bytes, default=None)
    return SimulatedRank(peak_bytes, iteration.theoretical_bytes, iteration.static_bytes, curve)


def _cut(trace: MemoryTrace, iteration: TraceIteration) -> Curve:
    times_s = trace.times_s[iteration.start : iteration.stop]
    offsets_s = [time_s - times_s[0] for time_s in times_s]
    return Curve(offsets_s, trace.allocated_bytes[iteration.start : iteration.stop])


def _find_range(rank: RankTicks, simulated: SimulatedRank | None) -> ErrorRange | None:
    iterations = rank.iterations
    peaks = (iterations.logged(at).peak_allocated_bytes for at in range(len(iterations)))
    errors = [error for peak in peaks if (error := _find_error(peak, simulated)) is not None]
    return ErrorRange(min(errors), max(errors), len(errors)) if errors else None


def _find_error(real_bytes: int | None, simulated: SimulatedRank | None) -> float | None:
    if not real_bytes or simulated is None or simulated.peak_bytes is None:
        return None
    return simulated.peak_bytes / real_bytes - 1
