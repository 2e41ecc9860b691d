"""What a sweep says: states of cells, the original's findings, and rules that hold for any sweep."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.planning.sweep import SweepCell, SweepGrid, find_all, make_grid
from vramscope.analyzers.planning.sweep.findings import fit_two_parts, solve_two
from vramscope.analyzers.planning.sweep.model import find_best, find_front
from vramscope.engine.files.sweep import ConfigurationLog, Sweep, SweepConfiguration, SweepTrace, read_sweep
from vramscope.engine.units import GIB

from .original import write_original

NOWHERE = Path("nowhere")
CAPACITY_BYTES = 80 * GIB


def texts(grid: SweepGrid, kind: str) -> list[str]:
    return [finding.text for finding in find_all(grid) if finding.kind == kind]


def grid_of(cells: list[SweepCell], **limits: Any) -> SweepGrid:
    return SweepGrid(cells=tuple(cells), capacity_bytes=CAPACITY_BYTES, **limits)


def ran(tp: int, pp: int, gib: float, **more: Any) -> SweepCell:
    return SweepCell(tp=tp, pp=pp, state="ok", actual_bytes=round(gib * GIB), **more)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> SweepGrid:
    return make_grid(read_sweep(*write_original(tmp_path_factory.mktemp("original"))), CAPACITY_BYTES)


def test_the_original_says_what_its_document_says_and_where_that_is_wrong(original: SweepGrid) -> None:
    assert [cell.state for cell in original.cells].count("oom") == 6
    assert texts(original, "best") == ["TP 8 × PP 64 needs least: 15.0 GiB, 19 % of 80.0 GiB"]
    falls_with_pp, falls_with_tp = texts(original, "trend")
    assert falls_with_pp.startswith("memory falls as PP grows: doubling PP multiplies it by 0.43")
    assert falls_with_tp.startswith("memory falls as TP grows: doubling TP multiplies it by 0.51")
    failures = texts(original, "failures")
    assert failures[0] == "18 of 24 layouts failed: 6 out of memory, 12 for an unknown reason"
    assert "every layout with TP 1 failed (6)" in failures
    assert "every layout with TP × PP up to 64 failed, every one from 128 on ran" in failures
    assert "low PP fails: TP 2 from PP 64 on, TP 4 from PP 32 on, TP 8 from PP 16 on runs" in failures


def test_the_original_theory_is_too_high_and_its_activations_explain_it(original: SweepGrid) -> None:
    errors, misses, along_pp, blame = texts(original, "prediction")
    assert errors.startswith("the theory is too high in all 6 layouts: by 11 to 139 %")
    assert misses.startswith("3 layouts ran although the theory said 80.0 GiB or more: TP 2 × PP 64, TP 4")
    assert along_pp.startswith("the theory is less accurate at high PP: 11 % at PP 16, 135 % at PP 64")
    assert blame.startswith("its activations (what does not shrink with PP) explain the error: 0.03 times")


def configuration(**more: Any) -> SweepConfiguration:
    return SweepConfiguration(tp=2, pp=4, dp=1, **more)


@pytest.mark.parametrize(
    ("tried", "state"),
    [
        (configuration(trace=SweepTrace(NOWHERE, 0, 1, 0), outcome="failed"), "ok"),
        (configuration(outcome="success"), "ok"),
        (configuration(outcome="started"), "running"),
        (configuration(outcome="failed"), "failed"),
        (configuration(outcome="failed", log=ConfigurationLog(NOWHERE, True, "CUDA out of memory")), "oom"),
        (configuration(outcome="started", log=ConfigurationLog(NOWHERE, True)), "oom"),
        (configuration(outcome="failed", log=ConfigurationLog(NOWHERE, False, "ValueError: x")), "failed"),
        (configuration(outcome="failed", log=ConfigurationLog(NOWHERE, cause="E: not divisible")), "invalid"),
        (SweepConfiguration(tp=3, pp=4, outcome="failed"), "invalid"),
        (SweepConfiguration(tp=2, pp=3, outcome="failed"), "invalid"),
        (SweepConfiguration(tp=2, pp=4, dp=2, outcome="failed"), "invalid"),
    ],
)
def test_states_follow_trace_then_log_then_lists(tried: SweepConfiguration, state: str) -> None:
    sweep = Sweep(memory_dir=NOWHERE, world_size=8, layers=40, heads=16, configurations=(tried,))
    (cell,) = make_grid(sweep, CAPACITY_BYTES).cells
    assert cell.state == state
    assert cell.actual_bytes is None


def test_pairs_that_were_not_tried_are_not_run_or_cannot_be() -> None:
    tried = tuple(SweepConfiguration(tp=tp, pp=pp, outcome="success") for tp, pp in ((1, 2), (2, 3), (2, 5)))
    grid = make_grid(
        Sweep(memory_dir=NOWHERE, world_size=16, layers=12, configurations=tried), CAPACITY_BYTES
    )
    untried = {cell.place: (cell.state, cell.dp) for cell in grid.cells if cell.state != "ok"}
    assert untried == {(1, 3): ("invalid", None), (1, 5): ("invalid", None), (2, 2): ("not_run", 4)}


def test_a_theory_of_exactly_the_capacity_counts_as_a_misprediction() -> None:
    traces = (
        SweepTrace(NOWHERE, 0, 1, 0, 10 * GIB, theory) for theory in (CAPACITY_BYTES, CAPACITY_BYTES - 1)
    )
    tried = tuple(SweepConfiguration(tp=tp, pp=1, trace=trace) for tp, trace in enumerate(traces, 1))
    cells = make_grid(Sweep(memory_dir=NOWHERE, configurations=tried), CAPACITY_BYTES).cells
    assert [cell.is_mispredicted for cell in cells] == [True, False]
    assert cells[0].error_percent == 700.0


def test_the_front_keeps_what_nothing_beats_in_memory_and_speed() -> None:
    cells = [
        ran(1, 8, 60, tflops_per_gpu=120.0),
        ran(2, 8, 30, tflops_per_gpu=100.0),
        ran(4, 8, 40, tflops_per_gpu=90.0),
        ran(8, 8, 10, tflops_per_gpu=50.0),
        ran(8, 16, 5),
    ]
    grid = grid_of(cells)
    assert [cell.place for cell in find_front(grid)] == [(1, 8), (2, 8), (8, 8)]
    best = find_best(grid)
    assert best is not None
    assert best.place == (8, 16)


def test_what_to_try_next_fits_by_what_was_measured_and_is_divided_least() -> None:
    cells = [ran(tp, pp, 400 / (tp * pp) + 8 / tp) for tp in (2, 4) for pp in (4, 8)]
    cells += [SweepCell(tp=tp, pp=pp, state="not_run") for tp in (2, 4) for pp in (2, 3)]
    found = texts(grid_of(cells, world_size=96, layers=24), "recommendation")
    # 72 GiB is the limit: 400/4 + 4 = 104 GiB does not fit, nor does 400/3 + 8.
    assert found[0].startswith(
        "try next: TP 2 × PP 3, about 70.7 GiB; TP 1 × PP 8, about 58.0 GiB; TP 4 × PP 2, about 52.0 GiB"
    )


def test_logged_parts_of_the_theory_are_taken_as_they_are() -> None:
    cells = [
        ran(1, pp, 10 + pp, theory_bytes=(30 + pp) * GIB, states_bytes=30 * GIB, activations_bytes=pp * GIB)
        for pp in (1, 2, 4)
    ]
    blame = texts(grid_of(cells), "prediction")[-1]
    assert blame.startswith("its states (weights and optimizer) explain the error: 0.33 times as much")
    assert "from the logs" in blame


def test_a_sweep_in_which_nothing_ran_has_no_best_and_no_trend() -> None:
    grid = grid_of([SweepCell(tp=1, pp=pp, state="oom") for pp in (1, 2)])
    assert {finding.kind for finding in find_all(grid)} == {"failures"}


def test_failures_that_stand_between_layouts_that_ran_show_no_pattern() -> None:
    cells = [ran(1, 4, 10), ran(2, 8, 5), ran(4, 2, 9)]
    cells += [SweepCell(tp=tp, pp=pp, state="oom") for tp, pp in ((1, 8), (2, 4), (4, 4))]
    assert texts(grid_of(cells), "failures") == ["3 of 6 layouts failed: 3 out of memory"]


@given(
    states=st.floats(0, 1e13),
    activations=st.floats(0, 1e12),
    places=st.sets(st.tuples(st.integers(1, 16), st.integers(1, 64)), min_size=3, max_size=20),
)
def test_memory_that_is_made_of_two_parts_is_taken_apart_again(
    states: float, activations: float, places: set[tuple[int, int]]
) -> None:
    cells = [ran(tp, pp, 1) for tp, pp in sorted(places)]
    values = [states / (tp * pp) + activations / tp for tp, pp in sorted(places)]
    parts = fit_two_parts(cells, values)
    if len({pp for _, pp in places}) < 2:
        assert parts is None
        return
    assert parts is not None
    for (tp, pp), value in zip(sorted(places), values, strict=True):
        assert parts.predict(tp, pp) == pytest.approx(value, rel=1e-4, abs=1)


@given(st.lists(st.tuples(*[st.floats(0.01, 10)] * 2, st.floats(-10, 10)), min_size=2, max_size=8))
def test_no_other_weights_come_nearer_than_those_that_are_found(
    rows: list[tuple[float, float, float]],
) -> None:
    first, second, values = zip(*rows, strict=True)

    def distance(a: float, b: float) -> float:
        return sum((a * x + b * y - value) ** 2 for x, y, value in rows)

    a, b = solve_two(first, second, values)
    assert min(a, b) >= 0
    steps = ((0.01, 0), (0, 0.01), (-0.01, 0), (0, -0.01), (0.01, -0.01), (-0.01, 0.01))
    near = [(max(0.0, a + x), max(0.0, b + y)) for x, y in steps]
    assert all(distance(a, b) <= distance(x, y) * (1 + 1e-6) + 1e-9 for x, y in near)
