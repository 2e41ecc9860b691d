"""A plan beside what a recorded job needed: differences, factors, and the split that follows."""

import json
from collections.abc import Sequence
from pathlib import Path

import jsonschema
import pytest

from tests import REPOSITORY
from tests.engine.recording.samples import GIB, IDENTITY, START_S
from vramscope.cli.application import run as main
from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    MemoryReading,
    RankCoordinates,
    RankSample,
    Sample,
)
from vramscope.engine.recording import RecordingWriter
from vramscope.exporters.schema import build_schema, render_schema

PLAN = ["plan", "--model", "gpt-1.5b", "--micro-batches", "8"]
Peaks = Sequence[float | None]


def record(path: Path, peaks: Peaks, *, pipeline: int | None = None, tensor: int = 1) -> Path:
    """Record a job whose stages reach these GiB, each on `tensor` ranks."""
    world = (pipeline or len(peaks)) * tensor
    with RecordingWriter(path, IDENTITY) as writer:
        for tick, share in enumerate((0.5, 1.0, 0.7)):
            ranks = [
                make_rank(stage * tensor + part, stage, part, None if peak is None else peak * share, world)
                for stage, peak in enumerate(peaks)
                for part in range(tensor)
            ]
            devices = tuple(
                DeviceSample(
                    rank.device_uuid or "", number, memory=MemoryReading(80 * GIB, int(70 * share) * GIB)
                )
                for number, rank in enumerate(ranks)
            )
            writer.append(Sample("node", tick, START_S + tick, 1.0, devices, ranks=tuple(ranks)))
    return path


def make_rank(number: int, stage: int, part: int, peak_gib: float | None, world: int) -> RankSample:
    size = None if peak_gib is None else int(peak_gib * GIB)
    return RankSample(
        pid=100 + number,
        job="gpt",
        device_uuid=f"GPU-{number}",
        coordinates=RankCoordinates(number, world, tp=part, pp=stage, dp=0),
        allocator=AllocatorReading(
            allocated_bytes=size,
            allocated_max_bytes=size,
            reserved_bytes=None if size is None else size + GIB,
        ),
    )


def compare(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, object]:
    assert main([*PLAN, *flags, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_each_stage_is_told_beside_its_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = record(tmp_path / "run.vscope", [12.0, 10.0, 9.0, 9.0])
    feedback = compare(capsys, "--measured", str(path))
    stages = feedback["stages"]
    assert isinstance(stages, list)
    assert [stage["allocated_bytes"] for stage in stages] == [12 * GIB, 10 * GIB, 9 * GIB, 9 * GIB]
    assumed = feedback["assumed"]
    assert isinstance(assumed, list)
    assert "fused attention" in assumed
    assert not [each for each in assumed if "TFLOP/s" in each], "speeds do not matter here"
    assert {stage["used_bytes"] for stage in stages} == {70 * GIB}
    for stage in stages:
        assert stage["reserved_bytes"] == stage["allocated_bytes"] + GIB
        assert stage["difference_bytes"] == stage["allocated_bytes"] - stage["planned_bytes"]
        assert stage["factor"] == pytest.approx(stage["allocated_bytes"] / stage["planned_bytes"])
    assert sum(stage["blocks"] for stage in stages) == 48
    jsonschema.Draft202012Validator(build_schema("plan-feedback")).validate(feedback)
    schema = REPOSITORY / "docs" / "plan-feedback.schema.json"
    assert schema.read_text("utf-8") == render_schema("plan-feedback")


def test_layers_move_away_from_the_stage_that_needs_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = record(tmp_path / "run.vscope", [14.0, 8.0, 7.0, 7.0])
    feedback = compare(capsys, "--measured", str(path), "--measured-split", "12,12,12,12")
    present, replanned = feedback["present"], feedback["replanned"]
    assert isinstance(present, dict)
    assert isinstance(replanned, dict)
    assert present["blocks"] == [12, 12, 12, 12]
    assert present["expected_bytes"] == pytest.approx([14 * GIB, 8 * GIB, 7 * GIB, 7 * GIB], abs=64)
    assert replanned["blocks"][0] < 12
    assert sum(replanned["blocks"]) == 48
    assert feedback["saving_bytes"] == max(present["expected_bytes"]) - max(replanned["expected_bytes"])
    again = compare(
        capsys, "--measured", str(path), "--measured-split", ",".join(map(str, replanned["blocks"]))
    )
    assert again["replanned"] != replanned, "the same peaks of another split are other factors"


def test_a_job_that_is_as_planned_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = record(tmp_path / "first.vscope", [5.0, 5.0, 5.0, 5.0])
    flags = ("--strategy", "exact-1f1b", "--measured")
    planned = [stage["planned_bytes"] for stage in compare(capsys, *flags, str(first))["stages"]]  # type: ignore[attr-defined]
    exact = record(tmp_path / "exact.vscope", [size / GIB for size in planned])
    feedback = compare(capsys, *flags, str(exact))
    assert feedback["saving_bytes"] == 0
    assert feedback["replanned"] == feedback["present"]


def test_the_table_says_what_is_estimated_and_what_limits_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = record(tmp_path / "run.vscope", [14.0, None, 7.0, 7.0], tensor=2)
    assert main([*PLAN, "--measured", str(path), "--capacity", "16GiB"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Planned values are computed." in text
    assert "estimates: planned bytes times the factor of their stage" in text
    assert "* is the median of the others" in text
    assert "2 tensor ranks share each layer: planned sizes are divided by 2" in text
    assert "On a device of 16.0 GiB that leaves" in text
    assert "A different split would need less:" in text


def test_a_job_that_no_split_makes_fit_is_an_answer_and_3_where_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*PLAN, "--measured", str(record(tmp_path / "run.vscope", [14.0, 8.0, 7.0, 7.0]))]
    for form in ([], ["--json"]):
        assert main([*words, *form, "--capacity", "6GiB"]) == 0
        assert main([*words, *form, "--capacity", "6GiB", "--fail-on", "unfit"]) == 3
        assert main([*words, *form, "--capacity", "16GiB", "--fail-on", "unfit"]) == 0
    capsys.readouterr()
    assert main([*words, "--fail-on", "unfit"]) == 2
    assert "--fail-on unfit needs the memory that it is to fit: --capacity SIZE" in capsys.readouterr().err


def test_what_cannot_be_compared_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = record(tmp_path / "run.vscope", [9.0, 9.0])
    bare = tmp_path / "bare.vscope"
    with RecordingWriter(bare, IDENTITY) as writer:
        writer.append(Sample("node", 1, START_S, 1.0))
    for flags, words in (
        (["--measured", str(path), "--stages", "4"], "--stages 4: the measured job has 2"),
        (
            ["--measured", str(path), "--measured-split", "20,20"],
            "2 stages with 40 blocks; the job has 2 stages",
        ),
        (["--measured", str(path), "--measured-split", "a"], "expected the blocks on each stage"),
        (["--measured", str(bare)], "no process reports its pipeline stage"),
        (["--measured", str(tmp_path / "absent.vscope")], "absent.vscope"),
        (["--measured-split", "24,24"], "--measured-split needs --measured"),
        (["--measured", str(path), "--cluster", "8xh100"], "--cluster does not go with --measured"),
        (["--measured", str(path), "--legacy"], "--legacy does not go with --measured"),
    ):
        assert main([*PLAN, *flags]) == 2
        captured = capsys.readouterr()
        assert words in captured.err
        assert captured.out == ""
        assert captured.err.count("\n") == 1
    assert main([*PLAN, "--measured", "live"]) == 7
    assert "no agent" in capsys.readouterr().err
