"""A real run beside its simulation: errors of peaks, and curves from the beginning of each iteration."""

from pathlib import Path

import pytest

from tests.engine.files.traces import Row, rank_name, require_measured, trace, write_trace
from vramscope.engine.replay import simulated_run as trace_comparison
from vramscope.engine.replay.player import ReplayOptions
from vramscope.engine.replay.simulated_run import (
    TraceComparison,
    compare_runs,
    describe_error,
    describe_mebibytes,
)
from vramscope.engine.replay.tapes import TraceTape
from vramscope.engine.sampling.trace_player import TracePlayer
from vramscope.engine.units import MIB

from .recordings import Played

SIMULATED = "_wd8_tp2_pp4_exp1_expNumNone_l40_bs1"


def write(folder: Path, name: str, *iterations: tuple[float, list[Row]], **logged: float) -> Path:
    content = {
        str(index): trace(rows)["0"] | {"peak_allocated_MB": peak, **logged}
        for index, (peak, rows) in enumerate(iterations)
    }
    return write_trace(folder, name, content).parent


def compare(tmp_path: Path) -> TraceComparison:
    """Two iterations of three ranks beside a simulation of two of them."""
    first = [(10.0, 900.0, 500.0), (10.2, 900.0, 800.0)]
    second = [(11.0, 900.0, 510.0), (11.4, 900.0, 790.0)]
    for rank in range(3):
        real = write(tmp_path / "real", rank_name(rank), (1000.0, first), (990.0, second))
    simulated = write(
        tmp_path / "sim",
        rank_name(0, SIMULATED),
        (1010.0, [(0.5, 1.0, 505.0), (0.7, 1.0, 810.0)]),
        theoretical_memory_MB=1500.0,
        static_memory_MB=500.0,
    )
    write(simulated, rank_name(1, SIMULATED), (-1, [(0.5, 1.0, 505.0), (0.7, 1.0, 950.0)]))
    return compare_runs(TracePlayer(real), simulated)


def test_peaks_are_compared_by_rank_and_by_iteration(tmp_path: Path) -> None:
    found = compare(tmp_path)
    first, second, third = found.ranks
    assert first.simulated is not None
    assert (first.real_peak_bytes, first.simulated.peak_bytes) == (1000 * MIB, 1010 * MIB)
    assert first.error == pytest.approx(0.01)
    assert first.errors is not None
    assert first.errors.least == pytest.approx(0.01)
    assert first.errors.most == pytest.approx(1010 / 990 - 1)
    assert first.errors.iterations == 2
    assert (first.simulated.theoretical_bytes, first.simulated.static_bytes) == (1500 * MIB, 500 * MIB)
    assert second.error == pytest.approx(-0.05)  # what samples show, where no peak was logged
    assert third.simulated is None
    assert third.error is None
    assert third.errors is None
    assert found.worst is second
    assert (found.compared, found.simulated_name) == (2, "sim")


@pytest.mark.parametrize("limit", [64 * MIB, 0])
def test_curves_begin_with_their_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(trace_comparison, "MOST_WHOLE_BYTES", limit)
    first = compare(tmp_path).ranks[0]
    iteration = first.iteration(1)
    assert iteration is not None
    assert iteration.is_ticks == (limit == 0)
    assert list(iteration.real.offsets_s) == pytest.approx([0.0, 0.4])
    assert list(iteration.real.allocated_bytes) == [510 * MIB, 790 * MIB]
    assert iteration.real_peak_bytes == 990 * MIB
    assert iteration.error == pytest.approx(1010 / 990 - 1)
    assert first.simulated is not None
    assert list(first.simulated.curve.offsets_s) == pytest.approx([0.0, 0.2])
    assert first.iteration(7) is first.iteration(None) is None


def test_what_plays_carries_the_comparison(tmp_path: Path) -> None:
    compare(tmp_path)
    played = Played(
        TraceTape(tmp_path / "real", simulated=tmp_path / "sim"), options=ReplayOptions(is_paused=True)
    )
    snapshot = played.player.snapshot
    assert snapshot.sample is not None
    assert snapshot.replay is not None
    assert snapshot.replay.comparison is not None
    uuids = [device.uuid for device in snapshot.sample.devices]
    assert [it.uuid for it in snapshot.replay.comparison.ranks] == uuids
    found = snapshot.replay.comparison.find(uuids[1])
    assert found is not None
    assert found.rank == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [(6.68e-5, "+0.007 %"), (-0.0123, "-1.23 %"), (0.5, "+50.0 %"), (0.0, "+0.000 %")],
)
def test_errors_have_a_sign(error: float, expected: str) -> None:
    assert describe_error(error) == expected


def test_measured_run_is_simulated_within_a_fortieth_of_a_percent() -> None:
    real, simulated = require_measured("real_30b_pp4_tp2"), require_measured("simulated_30b_pp4_tp2")
    found = compare_runs(TracePlayer(real), simulated)
    first = found.ranks[0]
    assert first.simulated is not None
    assert describe_mebibytes(first.real_peak_bytes) == "71,408.03 MiB"
    assert describe_mebibytes(first.simulated.peak_bytes) == "71,412.80 MiB"
    errors = [describe_error(it.error) for it in found.ranks if it.error is not None]
    assert errors == ["+0.007 %"] * 2 + ["+0.023 %"] * 4 + ["-0.015 %"] * 2
    assert found.worst is not None
    assert found.worst.rank == 2
    assert first.errors is not None
    assert first.errors.iterations == 10
    assert 0 < first.errors.least <= first.errors.most < 0.0001
