"""Running the real command line, in this process or in one of its own."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from tests import REPOSITORY
from tests.warm.starter import WarmProcess, can_run_warm, run_warm
from vramscope.cli.application import run as run_command_line

GIB = 1 << 30
TIMEOUT_S = 60.0


class Outcome(NamedTuple):
    """What a finished run said."""

    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.stdout.splitlines()]


def environment(**variables: str) -> dict[str, str]:
    """Return this environment with vramscope importable and more variables."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), **variables}


def call(*arguments: str, **variables: str) -> Outcome:
    """Run `vramscope` in this process, which saves what `run` takes to start one and to import.

    For verbs that read and write files. What depends on how a process starts and ends needs `run`: a driver
    (its library is loaded once), signals, streams that are closed, the locale, a terminal.

    Args:
        arguments: Words of the command line.
        variables: Environment variables besides this process's own.
    """
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n") for _ in range(2)]
    with (
        pytest.MonkeyPatch.context() as patch,
        mock.patch.dict(os.environ, variables),  # puts back what the command line sets, too
        Path(os.devnull).open(encoding="utf-8") as nothing,
    ):
        patch.setattr(sys, "argv", ["vramscope", *arguments])
        patch.setattr(sys, "stdin", nothing)
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        code = run_command_line(arguments)
        for stream in streams:
            stream.flush()
    stdout, stderr = (stream.buffer.getvalue().decode() for stream in streams)
    return Outcome(code, stdout, stderr)


def run(*arguments: str, **variables: str) -> Outcome:
    """Run `vramscope` to its end; a minute is taken for a hang.

    In a process that has imported it already, unless a variable would have changed that: see `tests.warm`.

    Args:
        arguments: Words of the command line.
        variables: Environment variables besides this process's own.
    """
    given = environment(**variables)
    if can_run_warm(given):
        words = ("-m", "vramscope", *arguments)
        done = run_warm(words, Path.cwd(), given, TIMEOUT_S, stdin=subprocess.DEVNULL)
        return Outcome(done.returncode, done.stdout, done.stderr)
    return run_cold(*arguments, **variables)


def run_cold(*arguments: str, **variables: str) -> Outcome:
    """Run `vramscope` to its end in a process that has imported nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "vramscope", *arguments],
        capture_output=True,
        encoding="utf-8",
        env=environment(**variables),
        timeout=TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


Program = subprocess.Popen[str] | WarmProcess


def start(*arguments: str, **variables: str) -> Program:
    """Start `vramscope` with pipes, warm where `run` would; the caller ends it."""
    given = environment(**variables)
    if can_run_warm(given):
        return WarmProcess(("-m", "vramscope", *arguments), Path.cwd(), given, stdin=subprocess.DEVNULL)
    return start_cold(*arguments, **variables)


def start_cold(*arguments: str, **variables: str) -> "subprocess.Popen[str]":
    """Start `vramscope` in a process that has imported nothing; the caller ends it."""
    return subprocess.Popen(
        [sys.executable, "-m", "vramscope", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=environment(**variables),
    )


def no_library(folder: Path) -> dict[str, str]:
    """Return variables under which no NVIDIA library is found, whatever this machine has."""
    (folder / "libnvidia-ml.so.1").write_bytes(b"")
    return {"LD_LIBRARY_PATH": str(folder)}
