"""`vramscope seqlen` as a person calls it: what it prints, writes and refuses, and once in earnest."""

import json
import sys
from pathlib import Path

import pytest

from tests.vramscope.phases.studies import make_run
from tests.warm.starter import write_warm_python
from vramscope.cli import seqlen
from vramscope.cli.application import run
from vramscope.engine.model.phase_memory import PhaseRun, PhaseTraining


@pytest.fixture
def made_runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Let the verb train with runs made by hand; return what it asked for."""
    asked = []

    def train(training: PhaseTraining, device: str) -> PhaseRun:
        asked.append((device, training.batch_size, training.seq_length))
        size = training.batch_size * training.seq_length
        fails_in = "Backward" if size > 1024 else None
        return make_run(training.privacy, training.seq_length, training.batch_size, fails_in=fails_in)

    monkeypatch.setattr(seqlen, "run_without_storage", train)
    return asked


def test_table_figure_and_csv_of_the_lengths_that_were_asked_for(
    made_runs: list[tuple[str, int, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model_size", "tiny", "--seq_lengths", "64", "256,1024", "2048", "--compare", "none,hooks"]
    files = ["--figure", str(tmp_path / "memory.pdf"), "--csv", str(tmp_path / "memory.csv")]
    assert run(["seqlen", *words, *files]) == 0
    printed, told = capsys.readouterr()
    assert made_runs == [("cuda", 1, length) for length in (64, 256, 1024, 2048) for _ in range(2)]
    assert "hooks, 2,048 tokens: out of memory in Backward" in printed
    assert "more than without privacy, MiB" in printed
    assert "1,024, 2,048 tokens: more than the 512 positions of LLaMA tiny" in told
    assert (tmp_path / "memory.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "memory.csv").read_text(encoding="utf-8").count("\n") == 1 + 13 * 3 + 4 + 3


def test_what_fits_is_searched_on_a_simulated_card_of_that_size(
    made_runs: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model-size", "tiny", "--fit", "1GiB", "--seq", "128", "--step", "128", "--json"]
    assert run(["seqlen", *words]) == 0
    batch, length = json.loads(capsys.readouterr().out)["fits"]
    assert {device for device, _, _ in made_runs} == {f"simulate:{1 << 30}"}
    assert (batch["largest"]["size"], batch["refused"]["size"]) == (8, 9)
    assert (length["largest"]["size"], length["refused"]["size"]) == (1024, 1152)
    assert batch["is_settled"]
    assert length["is_settled"]


def test_that_nothing_fits_is_an_answer_and_3_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, made_runs: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["seqlen", "--model-size", "tiny", "--seq", "128", "--step", "128", "--json"]
    assert run([*words, "--fit", "1GiB", "--fail-on", "unfit"]) == 0
    assert run(["seqlen", "--seq-lengths", "64", "--fail-on", "unfit"]) == 2
    assert "--fail-on unfit needs the memory that it is to fit: --fit SIZE" in capsys.readouterr().err

    def run_out(training: PhaseTraining, device: str) -> PhaseRun:
        return make_run(training.privacy, training.seq_length, training.batch_size, fails_in="Backward")

    monkeypatch.setattr(seqlen, "run_without_storage", run_out)
    capsys.readouterr()
    assert run([*words, "--fit", "600MiB"]) == 0
    assert all(fit["largest"] is None for fit in json.loads(capsys.readouterr().out)["fits"])
    assert run([*words, "--fit", "600MiB", "--fail-on", "unfit"]) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seq-lengths", "64", "0"], "--seq-lengths 0: expected whole numbers above 0"),
        (["--seq-lengths", "64", "64"], "64 is given twice"),
        (["--model-size", "huge"], "--model-size huge: expected one of tiny, small"),
        (["--compare", "none"], "expected two or more different algorithms"),
        (["--figure", "memory.bmp"], "expected a name that ends in .pdf, .png or .svg"),
        (["--fit", "24GiB", "--device", "cpu"], "--device cpu does not go with --fit"),
        (["--fit", "24GiB", "--csv", "lengths.csv"], "--csv shows memory by length and needs --seq-lengths"),
        (["--step", "32"], "--step needs --fit"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    words: list[str], said: str, made_runs: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["seqlen", *words]) == 2
    printed, told = capsys.readouterr()
    assert (printed, made_runs) == ("", [])
    assert said in told


def test_an_interruption_prints_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(training: PhaseTraining, device: str) -> PhaseRun:
        if training.seq_length == 128:
            raise KeyboardInterrupt
        return make_run(training.privacy, training.seq_length)

    monkeypatch.setattr(seqlen, "run_without_storage", train)
    assert (
        run(["seqlen", "--model-size", "tiny", "--seq-lengths", "64", "128", "--format", "original"]) == 130
    )
    assert "Forward Pass               2.5       N/A" in capsys.readouterr().out


def test_a_real_training_on_a_simulated_card(
    private_environment: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "executable", write_warm_python(tmp_path))
    words = ["--model-size", "tiny", "--seq-lengths", "64", "--num-steps", "1", "--dp-mode", "none"]
    assert run(["seqlen", *words, "--device", "simulate:1GiB", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["is_simulated"]
    (algorithm,) = report["algorithms"]
    values = {each["name"]: each["values_bytes"] for each in algorithm["differences"]}
    # Two embeddings of 1,000 tokens, 2 layers; of 33 tensors at most each has 511 bytes more than it needs.
    parameters = 2 * 1000 * 64 + 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128 + 2 * 64) + 64
    assert 0 <= values["Model Creation"][0] - 4 * parameters < 33 * 512
    assert values["Zero Gradients"][0] == -values["Model Creation"][0], "gradients are as large as parameters"
    assert values["DP Setup"] == [None]
