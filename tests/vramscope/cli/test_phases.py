"""`vramscope phases` on the command line: what its words ask for, what it prints, how it ends."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from vramscope.cli.application import run as run_cli
from vramscope.engine.model.phase_memory import (
    MemoryLevels,
    PhaseDevice,
    PhaseMemory,
    PhaseRun,
    PhaseTraining,
    RunEnd,
)
from vramscope.phases import running

LEVEL = MemoryLevels(allocated_bytes=1 << 20, reserved_bytes=2 << 20)
NOTE = "no CUDA device here; using a simulated GPU of 80.0 GiB"


class Asked:
    """Takes the place of `run_phases`: keeps what it was asked for, and returns one run."""

    def __init__(self) -> None:
        self.training, self.device = PhaseTraining(), ""
        self.end: RunEnd = "finished"
        self.after_phase: Callable[[], None] = lambda: None

    def __call__(
        self, training: PhaseTraining, device: str, on_phase: Callable[[PhaseRun], None]
    ) -> tuple[PhaseRun, ...]:
        self.training, self.device, self.on_phase = training, device, on_phase
        phase = PhaseMemory(phase="Model Creation", before=LEVEL, after=LEVEL, peak=LEVEL)
        card = PhaseDevice(kind="simulated", name="Simulated 80 GiB GPU", note=NOTE)
        error = None if self.end == "finished" else "ValueError: not today"
        run = PhaseRun(training=training, device=card, phases=(phase,), end=self.end, error=error)
        on_phase(run)
        self.after_phase()
        return (run,)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, private_environment: Path) -> Asked:
    made = Asked()
    monkeypatch.setattr(running, "run_phases", made)
    return made


def test_the_spellings_of_the_original_are_understood(asked: Asked) -> None:
    words = "--model_size tiny --batch_size 2 --seq_length 64 --num_steps 5 --learning_rate 1e-3"
    assert run_cli(["phases", *words.split(), "--noise_multiplier", "0.5", "--max_grad_norm", "2"]) == 0
    assert asked.training == PhaseTraining(
        model_size="tiny",
        batch_size=2,
        seq_length=64,
        num_steps=5,
        learning_rate=1e-3,
        noise_multiplier=0.5,
        max_grad_norm=2.0,
    )
    assert asked.device == "cuda"


def test_all_else_can_be_said(asked: Asked) -> None:
    words = (
        "--factory mine:make --dp-mode ghost --device simulate:24GiB --optimizer adamw --precision amp "
        "--warmup 2 --seed 7 --fix"
    )
    assert run_cli(["phases", *words.split()]) == 0
    assert asked.training == PhaseTraining(
        model_size=None,
        factory="mine:make",
        privacy="ghost",
        optimizer="adamw",
        precision="amp",
        warmup_steps=2,
        seed=7,
        is_fixed=True,
    )
    assert asked.device == "simulate:24GiB"


@pytest.mark.parametrize(
    ("end", "code"), [("finished", 0), ("out_of_memory", 0), ("failed", 1), ("interrupted", 130)]
)
def test_it_exits_by_how_the_training_ended_and_always_prints(
    asked: Asked, capsys: pytest.CaptureFixture[str], end: RunEnd, code: int
) -> None:
    asked.end = end
    assert run_cli(["phases", "--json"]) == code
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert (told["schema"], told["runs"][0]["end"]) == ("vramscope.phases/1", end)
    assert NOTE in captured.err


@pytest.mark.parametrize(
    ("end", "code"), [("finished", 0), ("out_of_memory", 3), ("failed", 1), ("interrupted", 130)]
)
def test_only_memory_that_ran_out_is_3_where_that_is_asked_for(asked: Asked, end: RunEnd, code: int) -> None:
    asked.end = end
    assert run_cli(["phases", "--json", "--fail-on", "unfit"]) == code


def test_a_file_that_is_read_fits_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["phases", "--read", str(tmp_path / "run.json"), "--fail-on", "unfit"]) == 2
    assert "--fail-on does not go with --read" in capsys.readouterr().err


def test_a_report_goes_into_a_file_that_is_read_again(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    assert run_cli(["phases", "--format", "json", "--output", str(path)]) == 0
    assert capsys.readouterr().out == ""
    assert run_cli(["phases", "--read", str(path)]) == 0
    assert "Model Creation" in capsys.readouterr().out
    asked.device = "nothing was trained"
    assert run_cli(["phases", "--output", str(tmp_path / "none" / "run.txt")]) == 2
    assert asked.device == "nothing was trained"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--model", "tiny"), "--model tiny: expected hf:DIR"),
        (("--json", "--format", "original"), "--json does not go with --format original"),
        (("--batch-size", "two"), "--batch-size"),
        (("--dp-mode", "magic"), "--dp-mode"),
    ],
)
def test_what_makes_no_sense_is_refused(
    asked: Asked, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert run_cli(["phases", *words]) == 2
    assert told in capsys.readouterr().err


def test_the_original_text_is_printed(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["phases", "--format", "original"]) == 0
    assert "=== Model Creation Memory Usage ===" in capsys.readouterr().out


def test_a_training_survives_its_way_through_json() -> None:
    training = PhaseTraining(model_size=None, factory="mine:make", strategy="fsdp2", seed=1)
    assert msgspec.json.decode(msgspec.json.encode(training), type=PhaseTraining) == training


def test_a_kill_leaves_what_was_measured_in_the_file(asked: Asked, tmp_path: Path) -> None:
    output, seen = tmp_path / "phases.json", list[str]()
    asked.after_phase = lambda: seen.append(output.read_text())
    assert run_cli(["phases", "--format", "json", "-o", str(output)]) == 0
    (run,) = json.loads(seen[0])["runs"]
    assert (run["end"], [it["phase"] for it in run["phases"]]) == ("interrupted", ["Model Creation"])
    assert json.loads(output.read_text())["runs"][0]["end"] == "finished"
