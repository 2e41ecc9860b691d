"""A small real run and its simulation, as the tests write them."""

import math
from pathlib import Path

from tests.engine.files.traces import Row, rank_name, trace, write_trace
from vramscope.engine.files.memory_trace.run import TracePair

SIMULATED = "_wd2_tp2_pp1_exp1_expNumNone_l40_bs1"
REAL = "_wd2_tp2_pp1_l40_bs1"
GIB_IN_MIB = 1024.0


def write_pair(folder: Path, *, simulated_ranks: int = 2) -> TracePair:
    """Write a real run of two ranks and three iterations, and its simulation, into folders below one.

    The simulated peak of rank 0 is 0.5 % too high, that of rank 1 is 2 % too low.
    """
    for rank in range(2):
        iterations = [make_rows(4.0 * number, 30.0 + rank) for number in range(3)]
        _write(folder / "memory_traces", rank_name(rank, REAL), 40_000.0, *iterations)
    for rank, peak in zip(range(simulated_ranks), (40_200.0, 39_200.0), strict=False):
        name = rank_name(rank, SIMULATED)
        _write(folder / "memory_traces_scaling", name, peak, make_rows(0.1, 30.5 + rank, step_s=0.05))
    return TracePair(folder / "memory_traces", folder / "memory_traces_scaling")


def make_rows(start_s: float, low_gib: float, *, step_s: float = 0.1) -> list[Row]:
    """Return the samples of one iteration: a hill, and then a plateau."""
    rows = []
    for at in range(30):
        hill = 3.0 * math.sin(math.pi * at / 15) if at < 15 else 8.0
        rows.append((start_s + step_s * at, 42.0 * GIB_IN_MIB, (low_gib + hill) * GIB_IN_MIB))
    return rows


def _write(folder: Path, name: str, peak_mib: float, *iterations: list[Row]) -> None:
    content = {
        str(index): trace(rows)["0"] | {"peak_allocated_MB": peak_mib}
        for index, rows in enumerate(iterations)
    }
    write_trace(folder, name, content)
