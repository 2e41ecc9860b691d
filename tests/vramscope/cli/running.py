"""Running the real command line in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests import REPOSITORY

GIB = 1 << 30


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


def run(*arguments: str, **variables: str) -> Outcome:
    """Run `vramscope` to its end; a minute is taken for a hang.

    Args:
        arguments: Words of the command line.
        variables: Environment variables besides this process's own.
    """
    done = subprocess.run(
        [sys.executable, "-m", "vramscope", *arguments],
        capture_output=True,
        encoding="utf-8",
        env=environment(**variables),
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def start(*arguments: str, **variables: str) -> "subprocess.Popen[str]":
    """Start `vramscope` with pipes; the caller ends it."""
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
