"""The index of a sweep: every dialect of its files, which of several counts, and what is left out."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.analyzers.planning.sweep import make_grid
from vramscope.engine.errors import InputFileError
from vramscope.engine.files.sweep import Sweep, SweepConfiguration, read_sweep
from vramscope.engine.units import MIB

from ....analyzers.planning.sweep.original import (
    LAYOUTS,
    MEASURED_GIB,
    list_line,
    name_log_folder,
    name_trace,
    trace_text,
    write_original,
)


def find(sweep: Sweep, tp: int, pp: int) -> SweepConfiguration:
    (found,) = [it for it in sweep.configurations if (it.tp, it.pp) == (tp, pp)]
    return found


def write_trace(folder: Path, name: str, peak_mib: float, *, age_s: int = 0) -> Path:
    path = folder / name
    path.write_text(trace_text(peak_mib))
    os.utime(path, (1_700_000_000 - age_s,) * 2)
    return path


def peak_of(configuration: SweepConfiguration) -> float | None:
    trace = configuration.trace
    peak_bytes = None if trace is None else trace.peak_allocated_bytes
    return None if peak_bytes is None else peak_bytes / MIB


def test_the_original_has_24_configurations_and_warns_of_two_models(tmp_path: Path) -> None:
    sweep = read_sweep(*write_original(tmp_path))
    assert [(it.tp, it.pp) for it in sweep.configurations] == LAYOUTS
    assert {(it.tp, it.pp) for it in sweep.configurations if it.trace is not None} == set(MEASURED_GIB)
    assert find(sweep, 2, 64).dp == 64
    assert peak_of(find(sweep, 2, 64)) == pytest.approx(58716.72, abs=1e-6)
    assert (sweep.world_size, sweep.layers, sweep.model, sweep.skipped) == (8192, 96, None, ())
    failed = find(sweep, 1, 2)
    assert (failed.outcome, failed.exit_status) == ("failed", 1)
    assert failed.log is not None
    assert failed.log.is_out_of_memory
    assert "Tried to allocate 20.00 GiB" in (failed.log.cause or "")
    (note,) = sweep.notes
    assert "485B" in note
    assert "540" in note


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("memory_trace_rank0_wd8_tp2_pp4_l40_bs1.json", (2, 4, 1)),
        ("memory_trace_rank3_wd64_tp2_pp4_ep4_expNum8_l40_bs1.json", (2, 4, 8)),
        ("memory_trace_rank0_wd8_tp2_pp4_exp1_expNumNone_l40_bs1.json", (2, 4, 1)),
        ("memory_trace_rank0_wd512_tp4_pp8_dp16_exp1_expNumNone_l96_mbs1_nmbs48_gbs768.json", (4, 8, 16)),
        (name_trace(8, 32, stamp=7), (8, 32, 32)),
        ("memory_trace_rank0_tp2_pp4.json", (2, 4, None)),
    ],
)
def test_every_dialect_of_names_is_read(
    tmp_path: Path, name: str, layout: tuple[int, int, int | None]
) -> None:
    write_trace(tmp_path, name, 1000.0)
    (found,) = read_sweep(tmp_path).configurations
    assert ((found.tp, found.pp, found.dp), peak_of(found)) == (layout, 1000.0)


def test_figures_that_were_never_logged_are_unknown(tmp_path: Path) -> None:
    (tmp_path / name_trace(2, 4)).write_text('{"0": {"samples": [], "peak_allocated_MB": -1}}')
    trace = read_sweep(tmp_path).configurations[0].trace
    assert trace is not None
    assert (trace.peak_allocated_bytes, trace.theoretical_bytes, trace.static_bytes) == (None, None, None)


def test_the_newest_of_several_traces_counts_and_the_rank_that_held_most(tmp_path: Path) -> None:
    write_trace(tmp_path, name_trace(2, 4, stamp=99999), 3000.0, age_s=10)
    write_trace(tmp_path, name_trace(2, 4, stamp=5), 1000.0)
    write_trace(tmp_path, name_trace(4, 4), 500.0)
    write_trace(tmp_path, name_trace(4, 4, rank=9), 700.0)
    sweep = read_sweep(tmp_path)
    assert [peak_of(it) for it in sweep.configurations] == [1000.0, 700.0]
    assert sweep.notes == ("layouts with several traces: 1; the newest of each was read",)
    trace = sweep.configurations[1].trace
    assert trace is not None
    assert (trace.rank, trace.ranks) == (9, 2)


def test_an_older_trace_stands_in_for_a_broken_one(tmp_path: Path) -> None:
    write_trace(tmp_path, name_trace(2, 4, stamp=1), 3000.0, age_s=10)
    broken = write_trace(tmp_path, name_trace(2, 4, stamp=2), 1000.0)
    broken.write_text(broken.read_text()[:-30])
    sweep = read_sweep(tmp_path)
    assert peak_of(sweep.configurations[0]) == 3000.0
    assert [it.path for it in sweep.skipped] == [broken]


def test_broken_files_are_skipped_and_listed_with_the_reason(tmp_path: Path) -> None:
    memory_dir, log_dir = write_original(tmp_path)
    reasons = {
        name_trace(1, 2): ('{"0": {"samples": [], "peak_allocated_MB": -3}}', "-1"),
        name_trace(1, 4): ('{"0": {"samples": [],\n "peak_allocated_MB": "7"}}', "expected"),
        name_trace(1, 8): ("", "empty"),
        name_trace(1, 16): ('{"0": {"samples"\n: [}}', "line 2, column 4"),
        name_trace(1, 32): ("{}", "no iteration"),
        "memory_trace_rank0_what.json": ("{}", "name"),
        "memory_trace_rank0.json": ("{}", "TP and PP"),
    }
    for name, (text, _) in reasons.items():
        (memory_dir / name).write_text(text)
    (memory_dir / name_trace(1, 64)).mkdir()
    sweep = read_sweep(memory_dir, log_dir)
    skipped = {it.path.name: it.reason for it in sweep.skipped}
    assert set(skipped) == {*reasons, name_trace(1, 64)}
    assert all(words in skipped[name] for name, (_, words) in reasons.items()), skipped
    assert [(it.tp, it.pp) for it in sweep.configurations] == LAYOUTS


def test_lists_tell_success_failure_and_what_still_runs(tmp_path: Path) -> None:
    memory_dir, log_dir = write_original(tmp_path)
    with (log_dir / "failed_configs.log").open("a") as file:
        file.write(list_line(99, 2, 64, " - FAILED (status: 137)"))
        file.write(list_line(98, 8, 64, " - FAILED (status: 1)").replace(", DP=16", ""))
        file.write("Config 7: TP=0, PP=2, DP=4096\nnothing\n")
    with (log_dir / "config_combinations.log").open("a") as file:
        file.write(list_line(25, 8, 128))
    sweep = read_sweep(memory_dir, log_dir)
    assert len(sweep.configurations) == 25
    assert find(sweep, 8, 128).outcome == "started"
    assert find(sweep, 2, 64).outcome == "success"
    assert find(sweep, 8, 64).trace is not None
    assert any("failed_configs.log: 1 lines" in note for note in sweep.notes)


def test_of_several_sweeps_in_a_folder_the_newest_that_fits_is_read(tmp_path: Path) -> None:
    memory_dir, log_dir = write_original(tmp_path)
    for name in ("CONFIG_SWEEP_WS8192_540_20240101_000000", "CONFIG_SWEEP_WS1024_540_20260101_000000"):
        shutil.copytree(log_dir, log_dir.parent / name)
    sweep = read_sweep(memory_dir, log_dir.parent)
    assert sweep.log_dir == log_dir
    assert any("3 sweeps" in note for note in sweep.notes)


@pytest.mark.parametrize(
    ("log", "is_out_of_memory", "cause"),
    [
        (
            "[default0]:RuntimeError: CUDA error: out of memory\n",
            True,
            "RuntimeError: CUDA error: out",
        ),
        (
            "KeyError: 7\n\x1b[31mAssertionError: heads % 3\x1b[0m\nx.ChildFailedError: worker\n",
            False,
            "AssertionError: heads % 3",
        ),
        ("  exitcode  : -9 (pid: 7)\n", False, "ended by signal 9, often for lack of host memory"),
        ("iteration 1/ 10\n", False, None),
    ],
)
def test_the_log_of_a_configuration_tells_why_it_failed(
    tmp_path: Path, log: str, is_out_of_memory: bool, cause: str | None
) -> None:
    memory_dir, log_dir = write_original(tmp_path)
    (log_dir / name_log_folder(1, 2) / "global_rank_0.log").write_text(log)
    found = find(read_sweep(memory_dir, log_dir), 1, 2).log
    assert found is not None
    assert found.is_out_of_memory == is_out_of_memory
    assert (found.cause or "").startswith(cause or "")
    assert (found.cause is None) == (cause is None)


def test_the_log_of_one_that_ran_tells_speed_and_the_parts_of_the_theory(tmp_path: Path) -> None:
    memory_dir, log_dir = write_original(tmp_path)
    folder = log_dir / name_log_folder(8, 64)
    folder.mkdir()
    (folder / "global_rank_0.log").write_text(
        "Theoretical memory footprints (estimated): weight and optimizer=16000.00 MB, "
        "activation=19051.02 MB, total=35051.02 MB\n" + "x" * 2_000_000 + "\n"
        " elapsed time per iteration (ms): 5000.0 | throughput per GPU (TFLOP/s/GPU): 99.0 |\n"
        " elapsed time per iteration (ms): 4000.0 | throughput per GPU (TFLOP/s/GPU): 110.5 |\n"
        "Memory tracking stopped for fake rank 0, peak memory: 15360.00 MB, theoretical memory: -1 MB\n"
    )
    log = find(read_sweep(memory_dir, log_dir), 8, 64).log
    assert log is not None
    assert (log.iteration_s, log.tflops_per_gpu) == (4.0, 110.5)
    assert (log.states_bytes, log.peak_allocated_bytes) == (16000 * MIB, 15360 * MIB)
    assert log.theoretical_bytes is None


def test_a_long_trace_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / name_trace(2, 4)
    first = trace_text(70000.0, 1.0, samples=80_000).rstrip()[:-1]
    path.write_text(first + ', "1": {"samples": [], "peak_allocated_MB": 71000.0}}')
    (found,) = read_sweep(tmp_path).configurations
    assert path.stat().st_size > 8 << 20
    assert peak_of(found) == 71000.0
    path.write_text(first + ', "1": {"samples": [], "peak_alloc')
    sweep = read_sweep(tmp_path)
    assert (sweep.configurations, [it.path for it in sweep.skipped]) == ((), [path])


def test_the_highest_peak_counts_and_an_iteration_can_be_chosen(tmp_path: Path) -> None:
    peaks = {10: 100, 2: 300, 0: 200, 1: 300}
    iterations = (f'"{key}": {{"samples": [], "peak_allocated_MB": {mib}}}' for key, mib in peaks.items())
    (tmp_path / name_trace(2, 4)).write_text(f"{{{', '.join(iterations)}}}")
    (found,) = read_sweep(tmp_path).configurations
    assert found.trace is not None
    assert (peak_of(found), found.trace.iteration, found.trace.iterations) == (300.0, 1, 4)
    assert peak_of(read_sweep(tmp_path, iteration=10).configurations[0]) == 100.0
    with pytest.raises(InputFileError, match="no trace has a peak in iteration 3"):
        read_sweep(tmp_path, iteration=3)


def test_folders_without_a_sweep_are_refused_with_what_was_expected(tmp_path: Path) -> None:
    memory_dir, _ = write_original(tmp_path / "sweep")
    for memory, log, words in (
        (tmp_path, None, "no memory trace"),
        (tmp_path / "no", None, "no such file"),
        (memory_dir, tmp_path, "expected successful_configs.log and failed_configs.log"),
        (memory_dir, tmp_path / "no", "no such file"),
    ):
        with pytest.raises(InputFileError, match=words):
            read_sweep(memory, log)


@settings(max_examples=60, deadline=None)
@given(trace=st.binary(max_size=200), listed=st.binary(max_size=300), log=st.binary(max_size=300))
def test_no_content_ends_in_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, trace: bytes, listed: bytes, log: bytes
) -> None:
    folder = tmp_path_factory.mktemp("sweep")
    (folder / name_trace(1, 2)).write_bytes(trace)
    write_trace(folder, name_trace(2, 2), 5.0)
    (folder / "failed_configs.log").write_bytes(listed + b"\nConfig 1: TP=1, PP=2, DP=4096\n")
    (folder / name_log_folder(1, 2)).mkdir()
    (folder / name_log_folder(1, 2) / "global_rank_0.log").write_bytes(log)
    sweep = read_sweep(folder, folder)
    assert peak_of(find(sweep, 2, 2)) == 5.0


def test_a_sweep_of_one_dp_has_no_world_size_that_would_rule_its_layouts_out(tmp_path: Path) -> None:
    memory_dir, log_dir = tmp_path / "traces", tmp_path / "log"
    memory_dir.mkdir()
    log_dir.mkdir()
    for tp, pp in ((2, 2), (2, 4), (4, 4)):
        write_trace(memory_dir, f"memory_trace_rank0_wd{8 * tp * pp}_tp{tp}_pp{pp}_dp8_exp1_l96.json", 100.0)
    (log_dir / "failed_configs.log").write_text("Config 1: TP=2, PP=1, DP=8 - FAILED (status: 1)\n")
    sweep = read_sweep(memory_dir, log_dir)
    assert (sweep.world_size, sweep.layers) == (None, 96)
    states = {cell.place: cell.state for cell in make_grid(sweep, 80 << 30).cells}
    assert states[2, 1] == "failed"
