"""Runs that were measured: every stage of a real job, and the table that the benchmark judges."""

from statistics import fmean

import msgspec
import pytest

from benchmarks.memory_theory import collect, judge_row
from benchmarks.memory_theory_published import ROWS
from tests import REPOSITORY
from vramscope.analyzers.planning.theory import estimate_stages
from vramscope.analyzers.planning.theory.configs import Flags, read_megatron_run
from vramscope.engine.files.case_table import read_case_table
from vramscope.engine.units import GIB, MIB
from vramscope.exporters.estimates import FIT_SHARE

DATA = REPOSITORY.parent / "shared/data"


def test_published_figures_are_met() -> None:
    """Those of PyTorch's allocator, as near as now; torchtitan's are reserved, and all more than ours."""
    for row in ROWS:
        error = row.work_out() / GIB / row.measured_gib - 1
        if row.kind in ("states", "layer"):
            assert abs(error) <= 0.01, row.name
        elif row.kind == "peak":
            assert abs(error) <= 0.16, row.name
        elif row.kind == "reserved":
            assert -0.31 <= error < 0, row.name


def test_every_rank_of_a_real_job_is_met() -> None:
    """30B in fp16 on eight ranks, TP 2 and PP 4: at most 0.5 % off what each rank measured at its peak."""
    folder = DATA / "sweep_traces/real_30b_pp4_tp2"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent; it holds the traces of a real job")
    sizes = {"num-layers": 40, "hidden-size": 7680, "num-attention-heads": 60, "seq-length": 2048}
    degrees = {"tensor-model-parallel-size": 2, "pipeline-model-parallel-size": 4}
    run = read_megatron_run(Flags({**sizes, **degrees, "fp16": True}), world_size=8, gpu="a100")
    stages = estimate_stages(run.shape, run.layout, run.setup)
    for path in folder.glob("*.json"):
        rank = int(path.name.split("rank")[1].split("_")[0])
        trace = msgspec.json.decode(path.read_bytes())
        assert stages[rank // 2].peak_bytes / MIB == pytest.approx(trace["9"]["peak_allocated_MB"], rel=0.005)


@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
def test_no_configuration_that_ran_out_of_memory_was_called_fitting(tensor: int) -> None:
    """485B on 8,192 cards of 80 GiB: with TP 2, 4 and 8 it ran from PP 64, 32 and 16 on, with TP 1 never."""
    sizes = {"num-layers": 96, "hidden-size": 20480, "num-attention-heads": 160, "seq-length": 2048}
    least = {1: 64, 2: 64, 4: 32, 8: 16}[tensor]
    for pipeline in (2, 4, 8, 16, 32):
        degrees = {"tensor-model-parallel-size": tensor, "pipeline-model-parallel-size": pipeline}
        run = read_megatron_run(Flags({**sizes, **degrees, "fp16": True}), world_size=8192, gpu="a100")
        stages = estimate_stages(run.shape, run.layout, run.setup)
        if pipeline < least:
            assert max(stage.peak_bytes for stage in stages) > FIT_SHARE * 80 * 1024 * MIB


def test_the_table_of_measured_runs_is_met() -> None:
    path = DATA / "measured_memory/megatron_gpt_a100.csv"
    if not path.is_file():
        pytest.skip(f"{path} is absent; it holds what functional tests of Megatron-LM measured")
    cases = [judge_row(row) for row in read_case_table(path).rows]
    assert len(cases) == 76
    assert fmean(map(abs, collect(cases, "allocated, ours"))) <= 1.0
    peaks = sorted(map(abs, collect(cases, "peak, ours")))
    assert fmean(peaks) <= 3.0
    # Five rows ran another attention kernel than others with the same flags.
    assert peaks[-6] <= 6.0
    assert fmean(peaks[:-5]) <= 1.0
    # On the smallest card that an estimate allows a run, those five would not have fit, and no other.
    assert sum(case.is_false_comfort(case.predicted_bytes / FIT_SHARE) for case in cases) == 5
    assert not any(case.is_false_comfort(80 * 1024 * MIB) for case in cases)
