"""Which run is real and which simulates it: all shapes of names, in any order, below one folder."""

from pathlib import Path

import pytest

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.memory_trace.reading import parse_trace_name
from vramscope.engine.files.memory_trace.run import TracePair, find_trace_pair

from .traces import rank_name, require_measured, trace, write_trace

ROWS = trace([(0.1, 700.0, 600.0)])
REAL, REAL_EXPERTS = "_wd8_tp2_pp4_l40_bs1", "_wd16_tp2_pp2_ep2_expNum8_l32_bs1"
SCALING_A = "_wd8_tp2_pp4_exp1_expNumNone_l40_bs1"
SCALING_A_EXPERTS = "_wd16_tp2_pp2_exp2_expNum8_l32_bs1"
SCALING_B = "_wd8_tp2_pp4_dp1_exp1_expNumNone_l40_mbs1_nmbs24_gbs24"
SCALING_C = f"{SCALING_B}_ts60530"


def make(folder: Path, layout: str) -> Path:
    return write_trace(folder, rank_name(0, layout), ROWS).parent


@pytest.mark.parametrize(
    ("layout", "is_simulated"),
    [
        ("", None),
        (REAL, False),
        (REAL_EXPERTS, False),
        (SCALING_A, True),
        (SCALING_A_EXPERTS, True),
        (SCALING_B, True),
        (SCALING_C, True),
    ],
)
def test_names_tell_whether_a_run_is_simulated(layout: str, is_simulated: bool | None) -> None:
    name = parse_trace_name(rank_name(3, layout))
    assert name is not None
    assert name.is_simulated is is_simulated


@pytest.mark.parametrize(
    ("real", "simulated"),
    [
        (REAL, SCALING_A),
        (REAL, SCALING_B),
        (REAL, SCALING_C),
        (REAL_EXPERTS, SCALING_A_EXPERTS),
    ],
)
def test_pair_is_found_in_any_order_and_below_a_folder(tmp_path: Path, real: str, simulated: str) -> None:
    first = make(tmp_path / "memory_traces/30b", real)
    second = make(tmp_path / "memory_traces_scaling/30b", simulated)
    assert find_trace_pair([first, second]) == TracePair(first, second)
    assert find_trace_pair([second, first]) == TracePair(first, second)
    assert find_trace_pair([tmp_path]) == TracePair(first, second)
    assert find_trace_pair([first]) is find_trace_pair([first, first]) is None


def test_folder_tells_where_names_do_not(tmp_path: Path) -> None:
    real, simulated = make(tmp_path / "memory_traces", ""), make(tmp_path / "memory_traces_scaling", "")
    assert find_trace_pair([simulated, real]) == TracePair(real, simulated)


def test_other_layouts_are_no_pair(tmp_path: Path) -> None:
    real = make(tmp_path / "a", REAL)
    other = make(tmp_path / "b", SCALING_A.replace("tp2_pp4", "tp4_pp2"))
    with pytest.raises(InputFileError, match=r"simulates a different run than .*\(tp 2 and 4, pp 4 and 2\)"):
        find_trace_pair([real, other])
    with pytest.raises(InputFileError, match=r"\(experts none and 8\)"):
        find_trace_pair([real, make(tmp_path / "c", SCALING_A.replace("None", "8"))])
    assert find_trace_pair([tmp_path]) is None


def test_several_pairs_are_refused_and_one_is_named(tmp_path: Path) -> None:
    real, first = make(tmp_path / "real", REAL), make(tmp_path / "sim1", SCALING_A)
    make(tmp_path / "sim2", SCALING_B)
    with pytest.raises(InputFileError, match=f"2 pairs .* give both folders, such as {real} {first}"):
        find_trace_pair([tmp_path])


def test_measured_runs_are_a_pair() -> None:
    real, simulated = require_measured("real_30b_pp4_tp2"), require_measured("simulated_30b_pp4_tp2")
    assert find_trace_pair([real.parent]) == TracePair(real, simulated)
