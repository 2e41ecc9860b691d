"""Runs one job in one way, and reads what came out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).resolve().parent
JOBS = HERE / "jobs"
LONGEST_RUN_S = 400
MARK = "outcome "
NO_STEP = "ended without a step"
# What PyTorch and its users say where a build without CUDA is asked for a card; some end without a word.
NO_CUDA = ("not compiled with CUDA", "_cuda_setDevice", "accelerator device when none is available", NO_STEP)
CARD = "4GiB"
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",
    "WANDB_MODE": "disabled",
}


class Way(StrEnum):
    """How a job is run."""

    PLAIN = "plain"
    PROBE = "probe"
    SIMULATE = "--simulate"
    FAKE = "--fake"
    FACTORY = "--factory"


class Example(msgspec.Struct, frozen=True):
    """A script among PyTorch's examples, run as it is, with arguments of its own."""

    folder: str
    script: str
    arguments: tuple[str, ...] = ()
    # Whether it is given to torchrun; else it starts its ranks itself, which meet at a port that it names.
    has_launcher: bool = True


class Job(msgspec.Struct, frozen=True):
    """A script in `jobs/`, or an example."""

    name: str
    # What it trains with, for people; and the distributions whose versions are named.
    title: str
    packages: tuple[str, ...]
    ranks: int = 1
    has_factory: bool = False
    # A job that trains the same in another way, whose loss is expected where a package needs CUDA.
    twin: str | None = None
    # Whether the package refuses a machine without CUDA, so that there is no plain run.
    needs_cuda: bool = False
    example: Example | None = None
    # False where it begins with whatever its memory holds, so that each run has another loss.
    has_loss: bool = True


class Outcome(msgspec.Struct, frozen=True):
    """What a run left behind; None is not known."""

    seconds: float
    loss: float | None = None
    steps: int | None = None
    # Most bytes allocated on the card, by rank 0.
    peak_bytes: int | None = None
    # Steps that the agent was sent, by rank 0.
    seen_steps: int | None = None
    # The last line of a run that failed.
    failure: str | None = None


class Suite:
    """The environment with the packages, and a folder for what the runs write.

    Args:
        python: The interpreter of that environment.
        folder: For logs and recordings.
        runtime_dir: Where an agent listens.
        examples: Folder of PyTorch's examples.
    """

    def __init__(self, python: Path, folder: Path, runtime_dir: Path, examples: Path) -> None:
        self._python = str(python)
        self._folder = folder
        self._examples = examples
        # Of jobs that use the same port in each run.
        self._port = threading.Lock()
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("VRAMSCOPE_")},
            **_OFFLINE,
            "HF_HOME": str(folder / "cache"),
            "VRAMSCOPE_RUNTIME_DIR": str(runtime_dir),
        }

    def run(self, job: Job, way: Way) -> Outcome:
        """Run a job to its end; a run that fails or takes too long is an outcome, too."""
        stem = self._folder / f"{job.name}.{way.strip('-')}"
        recording = stem.with_name(f"{stem.name}.vscope")
        recording.unlink(missing_ok=True)
        if job.example is None:
            return self._run_in(JOBS, job, way, recording)
        # Examples leave checkpoints where they run, and begin with those that they find.
        turn = nullcontext() if job.example.has_launcher else self._port
        with turn, tempfile.TemporaryDirectory() as folder:
            copied = shutil.copytree(self._examples / job.example.folder, Path(folder) / "example")
            return self._run_in(copied, job, way, recording)

    def _run_in(self, folder: Path, job: Job, way: Way, recording: Path) -> Outcome:
        stem = recording.with_suffix("")
        environment = dict(self._environment)
        if job.example is not None:
            before = environment.get("PYTHONPATH", "")
            environment.update(COMPAT_OUTCOME="1", PYTHONPATH=f"{folder}{os.pathsep * bool(before)}{before}")
        begun_s = time.monotonic()
        try:
            done = subprocess.run(
                self._make_command(job, way, recording),
                cwd=JOBS if way is Way.FACTORY else folder,
                env=environment,
                text=True,
                capture_output=True,
                timeout=LONGEST_RUN_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Outcome(time.monotonic() - begun_s, failure=f"did not end in {LONGEST_RUN_S} s")
        seconds = time.monotonic() - begun_s
        stem.with_name(f"{stem.name}.log").write_text(f"{done.stdout}\n{done.stderr}", encoding="utf-8")
        if done.returncode != 0:
            return Outcome(seconds, failure=_find_cause(done.stderr) or f"exit code {done.returncode}")
        if way is Way.FACTORY:
            return Outcome(seconds, peak_bytes=json.loads(done.stdout)["allocated_peak_bytes"])
        lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
        if not lines:
            return Outcome(seconds, failure=NO_STEP)
        found = json.loads(lines[-1].removeprefix(MARK))
        return Outcome(
            seconds,
            loss=found["loss"],
            steps=found["steps"],
            peak_bytes=found.get("peak_bytes"),
            seen_steps=self._count_steps(recording, job.name) if way is Way.PROBE else None,
        )

    def list_versions(self, packages: list[str]) -> dict[str, str]:
        """Return the versions of the packages that are installed."""
        code = (
            "import importlib.metadata as m, json, sys\n"
            "found = {}\n"
            "for name in sys.argv[1:]:\n"
            "    try: found[name] = m.version(name)\n"
            "    except m.PackageNotFoundError: pass\n"
            "print(json.dumps(found))"
        )
        command = [self._python, "-c", code, *packages]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        versions: dict[str, str] = json.loads(done.stdout)
        return versions

    def _make_command(self, job: Job, way: Way, recording: Path) -> list[str]:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job.ranks}"]
        example = job.example
        words = (f"{job.name}.py",) if example is None else (example.script, *example.arguments)
        has_launcher = job.ranks > 1 and (example is None or example.has_launcher)
        script = [self._python, *(launcher if has_launcher else []), *words]
        run = [sys.executable, "-P", "-m", "vramscope", "run", "--job", job.name]
        card = ["--simulate", CARD, f"--device-count={job.ranks}"]
        if way is Way.PLAIN:
            return script
        if way is Way.PROBE:
            return [*run, f"--record={recording}", *(card if job.needs_cuda else []), "--", *script]
        if way is Way.FACTORY:
            ranks = [f"--ranks={job.ranks}", "--rank=0"] if job.ranks > 1 else []
            estimate = ["-m", "vramscope", "estimate", "--factory", f"{job.name}:make_step", "--json", *ranks]
            return [self._python, *estimate]
        return [*run, "--no-hub", *card, *(["--fake"] if way is Way.FAKE else []), "--", *script]

    def _count_steps(self, recording: Path, job: str) -> int | None:
        """Return the number of the last step of rank 0 of a job in a recording, which has other jobs, too."""
        export = [sys.executable, "-P", "-m", "vramscope", "export", str(recording), "--jsonl"]
        done = subprocess.run(export, capture_output=True, text=True, check=False)
        most: int | None = None
        for line in done.stdout.splitlines():
            for rank in json.loads(line)["ranks"]:
                if rank["job"] == job and (_number_of(rank) or 0) == 0 and rank["step"] is not None:
                    most = max(most or 0, rank["step"]["index"])
        return most


def _number_of(rank: dict[str, Any]) -> int | None:
    coordinates = rank["coordinates"] or {}
    number: int | None = coordinates.get("rank")
    return number


def _find_cause(errors: str) -> str | None:
    """Return the last line of an error that says what went wrong."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("vramscope") and "stand-in" not in line]
    raised = [line for line in lines if "Error: " in line and "ChildFailedError" not in line]
    return next(iter((raised or own or lines)[-1:]), None)
