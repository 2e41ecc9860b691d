"""`vramscope diff`: two files of any format, told as text and as JSON, and its exit codes."""

import json
import re
import sqlite3
from contextlib import closing
from itertools import chain
from pathlib import Path

import jsonschema
import pytest

from tests import REPOSITORY
from vramscope.analyzers.diff import RunDifference
from vramscope.engine.recording import RecordingIdentity, RecordingWriter
from vramscope.exporters.schema import build_schema, render_schema

from ...analyzers.diff.runs import train
from ...engine.recording.samples import make_sample, write
from .running import call

GIB = 1 << 30
HEADER = "time_s,device,allocated_bytes,reserved_bytes,used_bytes,total_bytes,step\n"


def write_series(path: Path, extra_gib: float = 0, *, base_gib: float = 10, from_step: int = 60) -> Path:
    """Write a run of 100 steps of two devices, of which the second needs more from some step on."""
    rows = (
        f"{step},{device},{size},{size + GIB},{size + 2 * GIB},{80 * GIB},{step}\n"
        for step in range(1, 101)
        for device in (0, 1)
        for size in [int((base_gib + (extra_gib if device == 1 and step >= from_step else 0)) * GIB)]
    )
    path.write_text("".join(chain([HEADER], rows)))
    return path


def record(path: Path, extra_gib: float, *, node: str = "node", rank: int = 1) -> Path:
    identity = RecordingIdentity("node", 1.0, "test", interval_s=1.0)
    with RecordingWriter(path, identity) as writer:
        ranks = (rank - 1, rank)
        needs = train(lambda at, step: 10 + extra_gib * (at == rank and step >= 60), ranks=ranks, node=node)
        for sample in needs:
            writer.append(sample)
    return path


def test_a_series_and_a_recording_are_compared_as_text_and_as_json(tmp_path: Path) -> None:
    series, recording = write_series(tmp_path / "a.csv"), record(tmp_path / "b.vscope", 3)
    told = call("diff", str(series), str(recording), COLUMNS="80")
    assert told.code == 0, told.stderr
    assert "They diverge at step 60: rank 1's allocated peak is 3.0 GiB (30.0 %) higher in B" in told.stdout
    assert "  rank 1  step 60     allocated peak  10.0 GiB  13.0 GiB  +3.0 GiB  +30.0\n" in told.stdout
    assert all(len(line) <= 80 for line in told.stdout.splitlines())
    (as_json,) = call("diff", str(series), str(recording), "--json").lines
    jsonschema.Draft202012Validator(build_schema("difference")).validate(as_json)
    assert as_json["schema"] == "vramscope.difference/1"
    assert (as_json["first"], as_json["parts"]) == ("rank 1", True)
    assert list(as_json) == list(RunDifference.__struct_fields__)


def test_growth_in_one_run_only_is_in_the_past_with_the_sizes_of_its_leak_report(tmp_path: Path) -> None:
    def write(name: str, slope_gib: float) -> str:
        path = tmp_path / name
        levels = [round((20 + slope_gib * t) * GIB) for t in range(700)]
        rows = [f"{t},0,{level},{level},{level + GIB},{80 * GIB}" for t, level in enumerate(levels)]
        header = "time_s,device,allocated_bytes,reserved_bytes,used_bytes,total_bytes"
        path.write_text("\n".join((header, *rows)) + "\n")
        return str(path)

    flat, climb = write("flat.csv", 0), write("climb.csv", 0.06)
    text = " ".join(call("diff", flat, climb, COLUMNS="200").stdout.split())
    assert "found in B only: GPU 0 was running out of memory: live tensors grew by 3.6 GiB a minute" in text
    (leak,) = json.loads(call("leak", "--input", climb).stdout)["findings"]
    grown = re.search(r"\([\d.]+ GiB\)", leak["title"])
    assert grown is not None
    assert f"found in B only: GPU 0 leaked 3.6 GiB a minute {grown[0]}" in text
    assert "out of memory in" not in text


@pytest.mark.parametrize(
    ("extra_mib", "sentence", "cell"),
    [
        (17, "17 MiB (850.0 %) higher in B", "+850"),
        (18, "18 MiB higher in B, 10 times as much", "10×"),
        (1118, "1.1 GiB higher in B, 560 times as much", "560×"),
        (9000, "8.8 GiB higher in B, over 1,000 times as much", ">1,000×"),
    ],
)
def test_from_ten_times_on_the_times_are_said_and_no_percentage(
    extra_mib: int, sentence: str, cell: str, tmp_path: Path
) -> None:
    a = write_series(tmp_path / "a.csv", base_gib=2 / 1024)
    b = write_series(tmp_path / "b.csv", extra_mib / 1024, base_gib=2 / 1024)
    verdict = f"They diverge at step 60: GPU 1's allocated peak is {sentence}"
    text = call("diff", str(a), str(b), COLUMNS="120", PYTHONUTF8="1").stdout
    assert verdict in text
    (row,) = [line for line in text.splitlines() if "GPU 1  step 60" in line]
    assert cell in row.split()
    annotation = call("diff", str(a), str(b), "--format", "github").stdout.splitlines()[0]
    assert annotation.endswith(verdict.replace("%", "%25"))
    (as_json,) = call("diff", str(a), str(b), "--json").lines
    (subject,) = [it for it in as_json["subjects"] if it["name"] == "GPU 1"]
    assert subject["figures"][0]["difference_percent"] == pytest.approx(100 * extra_mib / 2)


def test_steps_that_take_ten_times_as_long_are_said_to(tmp_path: Path) -> None:
    a, b = write_series(tmp_path / "a.csv"), tmp_path / "b.csv"
    first, *rows = a.read_text().splitlines()
    slow = [f"{12 * int(row.split(',')[0])},{row.split(',', 1)[1]}" for row in rows]
    b.write_text("\n".join([first, *slow, ""]))
    assert "takes 1 s in A, 12 s in B (12 times)" in call("diff", str(a), str(b)).stdout


def test_a_run_that_is_a_simulation_is_said_to_be_one(tmp_path: Path) -> None:
    trace = tmp_path / "memory_trace_rank0_wd1_tp1_pp1_exp1_expNumNone_l2_bs1.json"
    samples = [
        {"timestamp_s": tick / 10, "reserved_memory_MB": 2.0, "allocated_memory_MB": 1.0} for tick in range(9)
    ]
    trace.write_text(json.dumps({"0": {"samples": samples, "peak_allocated_MB": 1.0}}))
    made = tmp_path / "simulated.vscope"
    assert call("import", str(trace), "-o", str(made)).code == 0
    told = call("diff", str(write_series(tmp_path / "real.csv")), str(made))
    assert "A real.csv: series CSV, 2 ranks" in told.stdout
    assert "B simulated.vscope: recording, simulated, 1 rank" in told.stdout


def test_a_recording_of_which_nothing_can_be_read_is_refused_with_what_is_damaged(tmp_path: Path) -> None:
    path = record(tmp_path / "damaged.vscope", 3)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE blocks SET body = zeroblob(50)")
    outcome = call("diff", str(path), str(write_series(tmp_path / "good.csv")))
    assert (outcome.code, outcome.stderr.count("\n")) == (2, 1)
    assert f"{path}: no samples to compare; left out: 1 damaged block with" in outcome.stderr


def test_the_schema_in_the_documentation_is_that_of_the_structs() -> None:
    assert (REPOSITORY / "docs" / "difference.schema.json").read_text("utf-8") == render_schema("difference")


@pytest.mark.parametrize(
    ("limit", "b_is_more", "is_reached"),
    [
        ("5%", True, True),
        ("5%", False, True),
        ("+5%", True, True),
        ("+5%", False, False),
        ("31%", True, False),
        ("2GiB", True, True),
        ("4GiB", True, False),
    ],
)
def test_a_limit_that_is_crossed_is_exit_code_3(
    limit: str, b_is_more: bool, is_reached: bool, tmp_path: Path
) -> None:
    less, more = write_series(tmp_path / "less.csv"), write_series(tmp_path / "more.csv", 3)
    files = (less, more) if b_is_more else (more, less)
    assert call("diff", *map(str, files), "--json", "--fail-on", limit).code == (3 if is_reached else 0)
    shown = call("diff", *map(str, files), "--format", "github", "--fail-on", limit)
    assert shown.code == (3 if is_reached else 0)
    assert ("::error " in shown.stdout) == is_reached


def test_what_cannot_be_compared_is_said_in_one_line(tmp_path: Path) -> None:
    good, bad = write_series(tmp_path / "a.csv"), tmp_path / "bad.csv"
    bad.write_text("nothing of use\n")
    for words, sentence in (
        ([str(good), str(bad)], f"{bad}: "),
        ([str(good), str(tmp_path / "none")], "cannot be read: no such file or directory"),
        ([str(good), str(good), "--fail-on", "much"], "--fail-on much: expected a size such as 500MiB or"),
        ([str(good), str(good), "--figure", "a.gif"], "--figure a.gif: expected a name that ends in .pdf"),
        ([str(good), str(good), "--json", "--text"], "--json does not go with --text"),
    ):
        outcome = call("diff", *words)
        assert (outcome.code, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)
        assert sentence in outcome.stderr


def test_a_limit_is_not_passed_where_nothing_was_measured_in_both(tmp_path: Path) -> None:
    """As by the recordings of two jobs that ended before the first sample of their devices."""
    path = tmp_path / "host.vscope"
    write(path, [make_sample(tick, devices=0) for tick in range(3)])
    assert call("diff", str(path), str(path), "--format", "text").code == 0
    refused = call("diff", str(path), str(path), "--format", "github", "--fail-on", "+2%")
    assert refused.code == 2
    assert refused.stdout.startswith("::notice ")
    assert refused.stderr.endswith(
        "host.vscope: --fail-on cannot be decided, because nothing was measured in both\n"
    )


def test_a_run_does_not_part_from_itself(tmp_path: Path) -> None:
    path = str(record(tmp_path / "run.vscope", 3))
    told = call("diff", path, path, "--json", "--fail-on", "0%")
    assert told.code == 0
    assert json.loads(told.stdout)["parts"] is False


def test_recordings_of_several_nodes_in_a_folder_are_one_run(tmp_path: Path) -> None:
    for run_name, extra_gib in (("a", 0), ("b", 3)):
        (tmp_path / run_name).mkdir()
        record(tmp_path / run_name / "n1.vscope", 0, node="n1")
        record(tmp_path / run_name / "n2.vscope", extra_gib, node="n2", rank=3)
    (told,) = call("diff", str(tmp_path / "a"), str(tmp_path / "b"), "--json").lines
    assert [subject["name"] for subject in told["subjects"]] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert (
        told["verdict"] == "They diverge at step 60: rank 3's allocated peak is 3.0 GiB (30.0 %) higher in B"
    )
    assert told["a"]["format"] == "2 recordings"
