"""The compatibility suite: only the examples that its jobs are made for are run, and cells say what ran."""

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.compat import examples
from benchmarks.compat.running import NO_STEP, Example, Job, Outcome, Way
from benchmarks.compat.table import Outcomes, describe, write_page

EXAMPLE = Job("example", "", ("torch",), needs_cuda=True, example=Example("ddp", "example.py"))


def test_changed_examples_are_refused_and_the_folder_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, folder = tmp_path / "distributed", tmp_path / "examples"
    (source / "ddp").mkdir(parents=True)
    (source / "ddp" / "example.py").write_text("print()\n", encoding="utf-8")
    (source / "rpc").mkdir()
    (source / "rpc" / "main.py").write_text("", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["examples", str(folder), str(source)])
    assert examples.main() == 1
    assert f"expected {examples.DIGEST}" in capsys.readouterr().err
    assert not folder.exists()
    monkeypatch.setattr(examples, "DIGEST", examples.digest(examples.read(source)))
    assert examples.main() == 0
    assert [path.name for path in folder.iterdir()] == ["ddp"]


def test_an_example_needs_cuda_and_its_probe_has_the_loss_of_the_simulated_card() -> None:
    outcomes: Outcomes = {
        ("example", Way.PLAIN): Outcome(1.0, failure=NO_STEP),
        ("example", Way.PROBE): Outcome(1.0, loss=0.5, steps=4, seen_steps=4),
        ("example", Way.SIMULATE): Outcome(1.0, loss=0.5, steps=4, peak_bytes=1_000_000),
        ("example", Way.FAKE): Outcome(1.0, loss=1.0, steps=4, peak_bytes=1_020_000),
    }
    cells = [describe(EXAMPLE, way, outcomes) for way in Way]
    assert cells == ["needs CUDA", "=", "runs", "+2.0 %", ""]
    lost: Outcomes = {**outcomes, ("example", Way.PROBE): Outcome(1.0, loss=0.5, steps=4, seen_steps=3)}
    assert describe(EXAMPLE, Way.PROBE, lost) == "3 steps"
    assert describe(replace(EXAMPLE, has_loss=False), Way.PROBE, lost) == "3 steps"
    failed: Outcomes = {**outcomes, ("example", Way.SIMULATE): Outcome(1.0, failure=NO_STEP)}
    assert describe(EXAMPLE, Way.SIMULATE, failed) == "fails"


@pytest.mark.parametrize(
    ("peak", "expected", "cell"),
    [
        (7_680, 7_680, "="),
        (8_192, 7_680, "="),  # one block
        (8_704, 7_680, "+13.3 %"),  # two are much of so little
        (1_001_536, 1_000_000, "="),  # gloo's thread held it a little longer
        (1_003_072, 1_000_000, "+0.3 %"),
        (1_000_500_000, 1_000_000_000, "="),
    ],
)
def test_peaks_are_equal_but_for_what_is_held_longer(peak: int, expected: int, cell: str) -> None:
    outcomes: Outcomes = {
        ("example", Way.SIMULATE): Outcome(1.0, loss=0.5, steps=4, peak_bytes=expected),
        ("example", Way.FAKE): Outcome(1.0, loss=1.0, steps=4, peak_bytes=peak),
    }
    assert describe(EXAMPLE, Way.FAKE, outcomes) == cell


def test_a_job_that_did_not_run_keeps_its_rows_and_other_tables_of_the_page_are_left_alone() -> None:
    rows = ("| `example`: | runs | = | = | = | |", "| `example` | 10 | 10 | — |")
    below = "\n| `example` | before | now |\n"
    page = f"<!-- table: make compat -->\n{rows[0]}\nPeak bytes:\n{rows[1]}\n<!-- table ends -->{below}"
    written = write_page(page, [EXAMPLE], {}, {})
    assert [line for line in written.splitlines() if "`example`" in line] == [*rows, below.strip()]
