"""Traces in forks of a process that has loaded torch."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.structure.tree import ROOT
from tests.warm.starter import run_warm
from vramscope import estimates

HERE = Path(__file__).parent
TIMEOUT_S = 120
BOOT = """
import runpy, sys
sys.path[:0] = [{root!r}, {here!r}]
runpy.run_module({program!r}, run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Run the tracer warm, with the trainings of this folder at hand; returns what it writes on stderr."""
    errors: list[str] = []

    def call(command: Sequence[str]) -> int:
        boot = tmp_path / "boot.py"
        program, *words = command[command.index("-m") + 1 :]
        boot.write_text(BOOT.format(root=str(ROOT), here=str(HERE), program=program), encoding="utf-8")
        variables = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = run_warm((str(boot), *words), tmp_path, variables, TIMEOUT_S)
        errors.append(ended.stderr)
        return ended.returncode

    monkeypatch.setattr(estimates, "_call", call)
    return errors
