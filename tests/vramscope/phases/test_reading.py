"""Files of runs by phase: captured output, results and summaries of the siblings, our own; and damage."""

import gzip
import json
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramscope.cli.verbs.phases import print_read
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.files.phases import is_phase_file, read_phase_file
from vramscope.engine.model.phase_memory import PhaseFile
from vramscope.engine.units import GIB
from vramscope.exporters.json_lines import encode_line
from vramscope.exporters.phases.report import describe_as_original, report_phase_records, report_phases
from vramscope.exporters.phases.text import describe_phase_file

from ...engine.files.test_series_fuzz import check_refusal
from ..cli.running import call
from .runs import MIB, make_run

LOG = """\
WARNING: something of another library
CUDA不可用，切换到CPU
使用设备: cuda
模型大小: small
批次大小: 2

  0%|          | 0/3\r=== Model Creation Memory Usage ===
Before: 0.00 MB allocated, 0.00 MB reserved
After:  245.67 MB allocated, 246.00 MB reserved
Peak:   245.67 MB allocated
Diff:   +245.67 MB allocated, +246.00 MB reserved

--- 训练步骤 1/3 ---

=== Forward Pass Memory Usage ===
Before: 245.67 MB allocated, 246.00 MB reserved
After:  300.00 MB allocated, 310.00 MB reserved
Peak:   320.50 MB allocated
Diff:   +54.33 MB allocated, +64.00 MB reserved

=== Loss Computation Memory Usage ===
Before: 300.00 MB allocated, 310.00 MB reserved
After:  301.00 MB allocated, 310.00 MB reserved
Peak:   301.00 MB allocated
Diff:   +1.00 MB allocated, +0.00 MB reserved
损失: 10.4663
"""
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of "
    "23.65 GiB of which 17.88 MiB is free."
)


def take(stage: str, **figures: float) -> dict[str, Any]:
    """Return a snapshot."""
    return {"stage": stage, "module": None, **figures}


FSDP = [
    {
        "seq_length": 128,
        "batch_size": 32,
        "max_physical_batch_size": 1,
        "is_lora": True,
        "lora_rank": 16,
        "peak_memory_gb": 12.5,
        "execution_time": 92.25,
        "memory_breakdown": {"forward_pass": 1.5},
        "snapshots": [
            take("training_step_0_start", timestamp=1.0, allocated_gb=10.0, reserved_gb=11.0),
            take("forward_pass_start", timestamp=1.5, allocated_gb=10.0, reserved_gb=11.0),
            take("forward_pass_end", timestamp=2.0, allocated_gb=11.5, reserved_gb=12.0),
            take("training_step_0_end", timestamp=2.5, allocated_gb=10.25, reserved_gb=12.0),
        ],
    }
]
BYTES = [
    {
        "seq_length": 256,
        "batch_size": 8,
        "is_lora": False,
        "lora_rank": 16,
        "peak_memory": 900,
        "execution_time": 2.0,
        "memory_breakdown": {"forward_pass_end": 700},
        "snapshots": [
            take("forward_pass_start", allocated=100, reserved=500, max_allocated=400, max_reserved=500),
            take("forward_pass_end", allocated=700, reserved=800, max_allocated=900, max_reserved=800),
            take("backward_pass_start", allocated=700, reserved=800, max_allocated=900, max_reserved=800),
            take("backward_pass_end", allocated=300, reserved=800, max_allocated=900, max_reserved=800),
            take("optimizer_step_start", allocated=300, reserved=800, max_allocated=900, max_reserved=800),
        ],
    }
]
SUMMARY = """\
seq_length,batch_size,max_physical_batch_size,is_lora,lora_rank,peak_memory_gb,execution_time,forward_pass_memory_gb
128,32,1,True,16,12.5,92.25,1.5
256,32.0,1,False,16,14.25,101.5,
"""
FORMATS = {
    "log": LOG,
    "FSDP": json.dumps(FSDP, indent=2),
    "bytes": json.dumps(BYTES, indent=2),
    "summary": SUMMARY,
    "report": encode_line(report_phases([make_run()])).decode(),
}


def read(path: Path, text: str) -> PhaseFile:
    """Write a file and read it."""
    path.write_text(text, "utf-8")
    return read_phase_file(path)


def test_the_captured_output_with_other_lines_in_it(tmp_path: Path) -> None:
    file = read(tmp_path / "out", f"\x1b[1m{LOG}\x1b[0m")
    assert file.notes == ()
    (record,) = file.records
    assert (record.device, record.model_size, record.batch_size, record.seq_length) == (
        "cuda",
        "small",
        2,
        None,
    )
    assert [(each.phase, each.step) for each in record.phases] == [
        ("Model Creation", None),
        ("Forward Pass", 1),
        ("Loss Computation", 1),
    ]
    assert record.peak.allocated_bytes == round(320.5 * MIB)
    assert record.phases[1].allocated_difference_bytes == round(54.33 * MIB)
    assert record.losses == (10.4663,)
    assert record.end == "finished"


@pytest.mark.parametrize(
    ("name", "encoding"), [("log", "utf-16"), ("FSDP", "utf-8-sig"), ("summary", "utf-8-sig")]
)
def test_encodings_and_compression_are_seen_through(tmp_path: Path, name: str, encoding: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(FORMATS[name].encode(encoding)))
    assert is_phase_file(path)
    told = read(tmp_path / "plain", FORMATS[name])
    assert read_phase_file(path).records == told.records


def test_several_runs_in_one_file_are_several_runs(tmp_path: Path) -> None:
    file = read(tmp_path / "out", LOG + LOG.replace("small", "medium"))
    assert [record.model_size for record in file.records] == ["small", "medium"]
    assert [len(record.phases) for record in file.records] == [3, 3]


def test_an_error_comes_from_the_stage_after_the_last(tmp_path: Path) -> None:
    cut = LOG.partition("=== Loss")[0]
    (record,) = read(tmp_path / "out", cut + OUT_OF_MEMORY).records
    assert (record.end, record.failed_phase, record.requested_bytes) == (
        "out_of_memory",
        "Backward Pass",
        round(1.5 * GIB),
    )


def test_a_summary_alone_is_enough(tmp_path: Path) -> None:
    summary = describe_as_original(make_run()).partition("=" * 60)[2]
    (record,) = read(tmp_path / "out", summary).records
    assert [each.phase for each in record.phases][2:4] == ["Forward Pass", "Backward Pass"]
    assert record.phases[3].peak.allocated_bytes == 650 * MIB
    assert record.phases[3].allocated_difference_bytes == 430 * MIB
    assert record.phases[3].before.allocated_bytes is None


def test_stages_that_only_the_summary_has_stay_in_their_place(tmp_path: Path) -> None:
    summary = """MEMORY USAGE SUMMARY
1. Model Creation
   Peak: 245.67 MB
   Diff: +245.67 MB
2. DP Setup
   Peak: 491.34 MB
   Diff: +245.67 MB
3. Forward Pass
   Peak: 320.50 MB
   Diff: +54.33 MB
4. Loss Computation
   Peak: 301.00 MB
   Diff: +1.00 MB
5. Backward Pass
   Peak: 700.00 MB
   Diff: +99.00 MB
"""
    (tmp_path / "run.out").write_text(LOG + summary)
    (record,) = read_phase_file(tmp_path / "run.out").records
    names = ["Model Creation", "DP Setup", "Forward Pass", "Loss Computation", "Backward Pass"]
    assert [phase.phase for phase in record.phases] == names
    assert record.peak.allocated_bytes == 700 * MIB
    forward, setup = record.phases[2], record.phases[1]
    assert forward.before.allocated_bytes == round(245.67 * MIB)  # the block knows more than its entry
    assert setup.before.allocated_bytes is None


def test_blocks_that_the_summary_does_not_have_are_kept(tmp_path: Path) -> None:
    summary = "MEMORY USAGE SUMMARY\n1. Model Creation\n   Peak: 245.67 MB\n   Diff: +245.67 MB\n"
    (tmp_path / "run.out").write_text(LOG + summary)
    read = read_phase_file(tmp_path / "run.out")
    (record,) = read.records
    assert [phase.phase for phase in record.phases] == ["Model Creation", "Forward Pass", "Loss Computation"]
    assert "the block of 'Forward Pass' has no entry there" in " ".join(read.notes)


def test_damaged_lines_are_counted_and_what_they_told_is_unknown(tmp_path: Path) -> None:
    damaged = LOG.replace("After:  300.00 MB", "After:  3oo.00 MB").replace(
        "Peak:   301.00 MB", "Peak:   301.00"
    )
    file = read(tmp_path / "out", damaged)
    (note,) = file.notes
    assert note.startswith("2 records were left out, the first at line 17: 'After: ")
    (record,) = file.records
    assert record.phases[1].after.allocated_bytes is None
    assert record.phases[1].allocated_difference_bytes == round(54.33 * MIB)
    assert record.phases[2].peak.allocated_bytes is None


def test_results_in_gib_are_bytes_from_the_door_on(tmp_path: Path) -> None:
    (record,) = read(tmp_path / "results", json.dumps(FSDP)).records
    assert (record.format, record.physical_batch_size, record.lora_rank) == ("FSDP profiler", 1, 16)
    assert record.peak.allocated_bytes == round(12.5 * GIB)
    assert record.breakdown == {"forward_pass": round(1.5 * GIB)}
    step, forward = record.phases
    assert (step.phase, step.step, forward.phase, forward.step) == ("training_step_0", 1, "forward_pass", 1)
    assert forward.before.allocated_bytes == 10 * GIB
    assert forward.allocated_difference_bytes == round(1.5 * GIB)
    assert forward.peak.allocated_bytes is None
    assert forward.seconds == 0.5


def test_results_in_bytes_tell_the_peak_of_a_phase_only_where_it_rose(tmp_path: Path) -> None:
    file = read(tmp_path / "results", json.dumps(BYTES))
    (record,) = file.records
    assert (record.format, record.is_lora, record.lora_rank) == ("single-GPU profiler", False, None)
    assert [each.peak.allocated_bytes for each in record.phases] == [900, None]
    assert record.breakdown == {"forward_pass_end": 700}
    assert any("'optimizer_step' has a start but no end" in note for note in file.notes)


def test_a_summary_table_tells_each_run(tmp_path: Path) -> None:
    file = read(tmp_path / "summary", f"{SUMMARY}512,32\n1024,32,1,True,16,much,1,1\n")
    first, second = file.records
    assert (first.seq_length, first.peak.allocated_bytes, first.duration_s) == (128, round(12.5 * GIB), 92.25)
    assert first.breakdown == {"forward_pass": round(1.5 * GIB)}
    assert (second.batch_size, second.breakdown, second.lora_rank) == (32, {}, None)
    (note,) = file.notes
    assert "2 records were left out, the first at line 4: 2 cells, expected 8" in note


def test_a_report_with_a_number_that_no_memory_can_have_is_left_out(tmp_path: Path) -> None:
    text = FORMATS["report"]
    damaged = re.sub(r'"reserved_bytes":\d+', f'"reserved_bytes":{"9" * 400}', text, count=1)
    file = read(tmp_path / "report", f"{text}\n{damaged}\n")
    assert len(file.trainings) == 1
    assert file.notes == (
        "1 record was left out: line 3: runs[0].phases[0].before.reserved_bytes is too large, expected "
        "a number of vramscope phases --json",
    )


def test_our_own_report_comes_back_whole(tmp_path: Path) -> None:
    text = FORMATS["report"]
    file = read(tmp_path / "report", f'{text}\n{{"schema": "vramscope.phases/1", "runs": 5}}\n')
    assert file.trainings == ((make_run(),),)
    assert len(file.notes) == 1
    with pytest.raises(InputFileError, match="unknown version"):
        read(tmp_path / "report", text.replace("phases/1", "phases/2"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "[1, 2]",
        "a,b\n1,2\n",
        "training\n",
        '"seq_length,peak_memory_gb"\n1,2\n',
        '[{"seq_length": 1}]',
    ],
)
def test_what_is_no_such_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    assert not is_phase_file(path)
    with pytest.raises(InputFileError, match="no memory by phase; expected the output") as refusal:
        read_phase_file(path)
    assert "\n" not in str(refusal.value)


def test_inspect_knows_a_file_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "training.out"
    path.write_text(LOG, "utf-8")
    told = call("inspect", str(path), COLUMNS="80")
    assert (told.code, told.stderr) == (0, "")
    assert told.stdout.startswith("Peak: 320.50 MiB allocated, in Forward Pass of step 1.\n")


def test_all_files_are_printed_one_after_another_and_as_json_lines(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / name for name in FORMATS]
    for path in paths:
        path.write_text(FORMATS[path.name], "utf-8")
    assert print_read(Namespace(read=paths, format="table", output=tmp_path / "tables")) == 0
    text = (tmp_path / "tables").read_text("utf-8")
    assert [line for line in text.splitlines() if line.startswith(str(tmp_path))] == list(map(str, paths))
    for words in (
        "forward_pass     10,240.00  11,776.00     —  +1,536.00",
        "result of the single-GPU profiler of Opacus's examples",
        "2     256     32        1    no  14,592.00  1 m 41 s",
        "Reduce Optimizer Step of step 1",
    ):
        assert words in text
    assert print_read(Namespace(read=paths, format="json", output=None)) == 0
    schemas = [json.loads(line)["schema"] for line in capfd.readouterr().out.splitlines()]
    assert schemas == ["vramscope.phase-records/1"] * 4 + ["vramscope.phases/1"]


def test_a_report_is_printed_in_the_words_of_the_original(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report"
    path.write_text(FORMATS["report"])
    assert print_read(Namespace(read=[path], format="original", output=None)) == 0
    assert capsys.readouterr().out == describe_as_original(make_run())
    path.write_text(LOG)
    with pytest.raises(UsageError, match="is from another profiler"):
        print_read(Namespace(read=[path], format="original", output=None))


EDITS = st.lists(st.tuples(st.integers(0, 3000), st.binary(max_size=4), st.integers(0, 8)), max_size=5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([*FORMATS.values()]), EDITS)
def test_damage_never_surprises(tmp_path: Path, good: str, edits: list[tuple[int, bytes, int]]) -> None:
    data = good.encode()
    for position, new, removed in edits:
        data = data[:position] + new + data[position + removed :]
    path = tmp_path / "file"
    path.write_bytes(data)
    try:
        file = read_phase_file(path)
    except InputFileError as refusal:
        check_refusal(str(refusal), path)
        return
    assert describe_phase_file(file, 80).strip()
    assert encode_line(report_phase_records(file))
    assert all(note.isprintable() for note in file.notes)
