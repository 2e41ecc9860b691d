"""File names of memory traces: every shape that was ever written, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.files.memory_trace.reading import parse_trace_name
from vramscope.engine.model import RankCoordinates

SWEEP = "memory_trace_rank0_wd8192_tp2_pp64_dp64_exp1_expNumNone_l96_mbs1_nmbs384_gbs24576_ts60530.json"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("memory_trace_rank3.json", RankCoordinates(3)),
        ("memory_trace_rank7_wd8_tp2_pp4_l40_bs1.json", RankCoordinates(7, 8, tp=1, pp=3, dp=0)),
        (
            "memory_trace_rank5_wd16_tp2_pp2_ep2_expNum8_l32_bs1.json",
            RankCoordinates(5, 16, tp=1, pp=0, dp=2),
        ),
        (
            "memory_trace_rank2_wd8_tp2_pp4_exp1_expNumNone_l40_bs1.json",
            RankCoordinates(2, 8, tp=0, pp=1, dp=0),
        ),
        (SWEEP.replace("_ts60530", ""), RankCoordinates(0, 8192, tp=0, pp=0, dp=0)),
        (SWEEP.replace("rank0", "rank130"), RankCoordinates(130, 8192, tp=0, pp=1, dp=1)),
        ("memory_trace_rank1_pp2_tp1_wd4.json", RankCoordinates(1, 4, tp=0, pp=0, dp=1)),
        ("memory_trace_rank1_wd6_tp4_pp1.json", RankCoordinates(1, 6, tp=1)),
        ("memory_trace_rank1_wdNone_tp2_ppNone.json", RankCoordinates(1, tp=1)),
    ],
)
def test_name_gives_the_coordinates(name: str, expected: RankCoordinates) -> None:
    parsed = parse_trace_name(name)
    assert parsed is not None
    assert parsed.coordinates == expected


def test_all_numbers_of_a_sweep_name_are_kept() -> None:
    parsed = parse_trace_name(SWEEP)
    assert parsed is not None
    assert dict(parsed.numbers) == {
        "wd": 8192,
        "tp": 2,
        "pp": 64,
        "dp": 64,
        "exp": 1,
        "l": 96,
        "mbs": 1,
        "nmbs": 384,
        "gbs": 24576,
        "ts": 60530,
    }
    assert parsed.number("mbs", "bs") == 1
    assert parsed.number("expNum") is None
    assert "ts" not in dict(parsed.run)


@pytest.mark.parametrize(
    "name",
    [
        "memory_trace_rank.json",
        "memory_trace_rank0",
        "memory_trace_rank0.json.tmp",
        "memory_trace_rank-1.json",
        "memory_trace_rank0_xy4.json",
        "memory_trace_rank0_tp2_tp4.json",
        "memory_trace_rank0_tp2 (copy).json",
        "memory_trace_rank0\n.json",
        "memory_trace_rank٣.json",
        "memory_trace_rank0_wd12345678901.json",
        "trace.json",
        "",
    ],
)
def test_other_names_are_not_traces(name: str) -> None:
    assert parse_trace_name(name) is None


@given(st.integers(0, 8191), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8, 16]))
def test_coordinates_are_unique_in_a_world(rank: int, tp: int, pp: int) -> None:
    parsed = parse_trace_name(f"memory_trace_rank{rank}_wd8192_tp{tp}_pp{pp}.json")
    assert parsed is not None
    where = parsed.coordinates
    assert where.tp is not None
    assert where.pp is not None
    assert where.dp is not None
    dp = 8192 // (tp * pp)
    assert (where.pp * dp + where.dp) * tp + where.tp == rank
    assert (where.tp < tp, where.dp < dp, where.pp < pp) == (True, True, True)


@given(st.text())
def test_any_text_is_a_name_or_is_not(text: str) -> None:
    parse_trace_name(text)
    parse_trace_name(f"memory_trace_rank{text}.json")
