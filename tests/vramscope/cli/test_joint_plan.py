"""`vramscope plan --cluster` as a person calls it, and what it learns times from."""

import json
from pathlib import Path

import jsonschema
import pytest

import vramscope
from tests import REPOSITORY
from vramscope.analyzers.planning.joint import JointPlan
from vramscope.cli.application import run
from vramscope.engine.errors import InputFileError
from vramscope.engine.files.galvatron import read_layer_profile
from vramscope.exporters.plan.joint import describe_joint_plan, fold_counts, report_joint_plan
from vramscope.exporters.schema import build_schema, render_schema

DOCS = REPOSITORY / "docs"
WORDS = (
    "plan",
    "--model",
    "gpt2-xl",
    "--cluster",
    "4xa100-40gb",
    "--global-batch",
    "16",
    "--zero",
    "0,1",
    "--recompute",
    "none,full",
    "--top",
    "3",
)


def test_json_is_as_the_schema_says_and_files_of_frameworks_are_written(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run([*WORDS, "--json", "-o", str(tmp_path)]) == 0
    printed, said = capfdbinary.readouterr()
    report = json.loads(printed)
    jsonschema.validate(report, build_schema("joint-plan"))
    assert report["schema"] == "vramscope.joint-plan/1"
    assert report["is_estimate"] is True
    best = report["configurations"][0]
    assert sum(best["time"].values()) == pytest.approx(best["step_s"])
    assert best["tokens_per_s"] == pytest.approx(16 * 1024 / best["step_s"])
    for stage in best["stages"]:
        assert sum(part["size_bytes"] for part in stage["parts"]) == stage["peak_bytes"]
        assert stage["headroom_bytes"] == stage["capacity_bytes"] - stage["peak_bytes"] >= 0
    assert b"megatron_arguments.txt" in said
    flags = (tmp_path / "megatron_arguments.txt").read_text()
    assert f"--micro-batch-size {best['setup']['micro_batch_size']}" in flags
    assert (DOCS / "joint-plan.schema.json").read_text("utf-8") == render_schema("joint-plan")


def test_the_table_fits_its_lines_and_says_that_nothing_was_measured() -> None:
    plan = vramscope.plan_cluster("llama2-7b", "1x8xh100", global_batch=64, zero_stages=(0, 1), top=3)
    text = describe_joint_plan(report_joint_plan(plan), 80)
    rows, _, rest = text.partition("configurations considered; left out:")
    assert all(len(line) <= 80 for line in rows.splitlines())
    assert "an estimated" in text
    assert "of the peak (not measured here)" in " ".join(rest.split())
    assert "faster than the next" in text
    wide = describe_joint_plan(report_joint_plan(plan), 200)
    assert "TFLOP/s" in wide
    assert fold_counts([5, 6, 6, 6, 4]) == "5 3x6 4"
    shown: str = plan._repr_html_()  # type: ignore[attr-defined]  # what a notebook asks for
    assert shown.startswith("<pre")
    assert "llama2-7b on 1x8xh100 (8 devices)" in shown
    assert "stages of the first:" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "gpt2", "--cluster", "8xh100"), "--cluster needs --global-batch"),
        (("--model", "gpt2", "--zero", "1"), "--zero needs --cluster"),
        ((*WORDS[1:], "--zero", "4"), "--zero 4: expected some of 0, 1, 2 and 3"),
        ((*WORDS[1:], "--memory-share", "90"), "--memory-share 90: expected a number above 0 and at most 1"),
        ((*WORDS[1:], "--capacity", "1GiB"), "--capacity does not go with --cluster"),
        ((*WORDS[1:], "--cluster", "8xh1000"), "h100"),
        ((*WORDS[1:], "--micro-batches", "4"), "--micro-batches does not go with --cluster"),
        (
            (*WORDS[1:], "--figure", "plan.pdf"),
            "whose plans are drawn with --screen: there, E writes the picture",
        ),
        ((*WORDS[1:], "--seq", "4096"), "choose a sequence of at most 1024 tokens"),
    ],
)
def test_mistakes_are_told_in_a_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def plan_small(measured_times: Path | None) -> JointPlan:
    """Return the best configuration of a small model."""
    return vramscope.plan_cluster(
        "gpt2-xl",
        "4xa100-40gb",
        global_batch=16,
        zero_stages=(0, 1),
        recomputes=("none",),
        top=1,
        measured_times=measured_times,
    )


def test_times_are_learnt_from_runs_and_named(tmp_path: Path) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text("tp,pp,mbs,zero,iteration_ms\n1,1,1,1,9000\n")
    plain, learnt = plan_small(None), plan_small(runs)
    assert learnt.assumptions.calibration == "runs.csv: 1 measured step"
    assert learnt.configurations[0].time.total_s > 2 * plain.configurations[0].time.total_s
    runs.write_text("tp,pp,mbs,iteration_ms\n3,1,1,9000\n")
    with pytest.raises(InputFileError, match=r"runs\.csv: row 1: TP = 3 does not divide"):
        plan_small(runs)
    runs.write_text("tp,pp,mbs,iteration_ms\n1,1,1,soon\n")
    with pytest.raises(InputFileError, match="row 1, iteration_ms: 'soon'; expected milliseconds"):
        plan_small(runs)


def test_a_profile_of_galvatron_is_read_and_used(tmp_path: Path) -> None:
    path = tmp_path / "computation_profiling_bf16_llama2-7b_all.json"
    path.write_text('{"layertype_0_bsz1_seq2048": 4.4, "layertype_0_bsz12_seq2048": 3.918, "layernum[2]": 1}')
    profile = read_layer_profile(path)
    assert (profile.model, profile.batch, profile.seq_length) == ("llama2-7b", 12, 2048)
    assert profile.forward_s == pytest.approx(12 * 3.918e-3)
    plan = vramscope.plan_cluster(
        "gpt2-xl", "4xa100-80gb", global_batch=16, zero_stages=(1,), top=1, measured_times=path
    )
    assert plan.assumptions.calibration == f"{path.name}: one profiled layer"
    assert plan.assumptions.efficiency == pytest.approx(0.77, abs=0.01)
    for content in ("{", "[]", "{}", '{"layertype_0_bsz8_seq2048": "fast"}', '{"layertype_0_bsz0_seq1": 1}'):
        path.write_text(content)
        with pytest.raises(InputFileError, match="computation_profiling"):
            read_layer_profile(path)
