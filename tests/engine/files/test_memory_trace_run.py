"""Reader of a run: one folder, one run, one file per rank, and notes about what is not as expected."""

import os
from pathlib import Path

import pytest

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.memory_trace.run import read_memory_trace_run
from vramscope.engine.units import MIB

from .traces import rank_name, require_measured, trace, write_trace

ROWS = [(0.1, 700.0, 600.0), (0.3, 710.0, 650.0)]


def refusal(path: Path) -> str:
    with pytest.raises(InputFileError) as caught:
        read_memory_trace_run(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_folder_gives_ranks_in_order_of_number(tmp_path: Path) -> None:
    for rank in (10, 2, 0):
        write_trace(tmp_path, rank_name(rank, "_wd16_tp2_pp8"), trace([(rank / 10, 700.0, 600.0)]))
    run = read_memory_trace_run(tmp_path)
    assert [trace.name.rank for trace in run.ranks] == [0, 2, 10]
    assert (run.start_s, run.end_s) == (0.0, 1.0)
    assert run.notes == ("3 of 16 ranks are recorded here",)


def test_file_alone_is_a_run_of_one_rank(tmp_path: Path) -> None:
    path = write_trace(tmp_path, rank_name(1), trace(ROWS))
    run = read_memory_trace_run(path)
    assert [trace.name.rank for trace in run.ranks] == [1]
    assert run.notes == ("1 of 8 ranks are recorded here",)


def test_newest_file_of_a_rank_wins_and_is_named(tmp_path: Path) -> None:
    for suffix, allocated, modified_s in (("_ts9", 1.0, 100), ("_ts60530", 2.0, 300), ("_ts7", 3.0, 200)):
        path = write_trace(tmp_path, rank_name(0, f"_wd1_tp1_pp1{suffix}"), trace([(0.0, 5.0, allocated)]))
        os.utime(path, (modified_s, modified_s))
    run = read_memory_trace_run(tmp_path)
    assert run.ranks[0].allocated_bytes[0] == 2 * MIB
    assert run.notes == (
        "rank 0: 3 files; memory_trace_rank0_wd1_tp1_pp1_ts60530.json is the newest and was read",
    )


def test_files_of_different_runs_are_refused_by_name(tmp_path: Path) -> None:
    write_trace(tmp_path, rank_name(0, "_wd8_tp2_pp4"), trace(ROWS))
    write_trace(tmp_path, rank_name(1, "_wd8_tp4_pp2"), trace(ROWS))
    text = refusal(tmp_path)
    assert "memory_trace_rank0_wd8_tp2_pp4.json and memory_trace_rank1_wd8_tp4_pp2.json" in text
    assert "(pp 4 and 2, tp 2 and 4)" in text


def test_folder_without_a_trace_says_what_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    assert "looked for memory_trace_rank*.json" in refusal(tmp_path)


def test_folder_of_folders_names_one_that_fits(tmp_path: Path) -> None:
    write_trace(tmp_path / "30b", rank_name(0), trace(ROWS))
    write_trace(tmp_path / "40b", rank_name(0), trace(ROWS))
    assert f"{tmp_path / '30b'} and 1 more: give the folder of one run" in refusal(tmp_path)


def test_absent_path_is_refused(tmp_path: Path) -> None:
    assert "no such file or directory" in refusal(tmp_path / rank_name(0))
    assert "no such file or directory" in refusal(tmp_path / "absent")
    assert "not the name of a memory trace" in refusal(write_trace(tmp_path, "trace.json", trace(ROWS)))


def test_malformed_file_refuses_the_run_and_is_named(tmp_path: Path) -> None:
    write_trace(tmp_path, rank_name(0), trace(ROWS))
    (tmp_path / rank_name(1)).write_text('{"0": ')
    assert f"{rank_name(1)}: line 1, column 7" in refusal(tmp_path)


def test_file_of_an_odd_name_is_left_out_and_noted(tmp_path: Path) -> None:
    write_trace(tmp_path, "memory_trace_rank0.json", trace(ROWS))
    write_trace(tmp_path, "memory_trace_rank0 (copy).json", trace(ROWS))
    run = read_memory_trace_run(tmp_path)
    assert len(run.ranks) == 1
    assert run.notes == (
        "memory_trace_rank0 (copy).json was left out: its name is not that of a memory trace",
    )


def test_notes_of_a_rank_and_foreign_devices_reach_the_run(tmp_path: Path) -> None:
    rows = [(0.5, 1.0, 9.0), (0.4, 1.0, 9.0)]
    for rank in range(2):
        write_trace(tmp_path, rank_name(rank, "_wd2_tp2_pp1"), trace(rows))
    notes = read_memory_trace_run(tmp_path).notes
    assert notes[0].startswith("device used of ranks 0, 1 was recorded on another GPU")
    assert [note.split(":")[0] for note in notes[1:]] == ["rank 0", "rank 1"]


def test_measured_run_has_eight_ranks_on_four_stages() -> None:
    run = read_memory_trace_run(require_measured("real_30b_pp4_tp2"))
    assert [(each.coordinates.tp, each.coordinates.pp) for each in run.ranks] == [
        (rank % 2, rank // 2) for rank in range(8)
    ]
    assert run.notes == ()
    assert round(run.end_s, 1) == 15.9
    assert sum(len(each.times_s) for each in run.ranks) == 16_636


def test_simulated_run_says_that_device_used_is_of_another_gpu() -> None:
    run = read_memory_trace_run(require_measured("simulated_30b_pp4_tp2"))
    assert all(each.is_device_foreign for each in run.ranks)
    assert "another GPU" in run.notes[0]
    assert [each.iterations[0].peak_allocated_bytes is not None for each in run.ranks] == [True] * 8
