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


_known: dict[tuple[object, ...], tuple[int, str, bytes | None]] = {}
"""By what was asked for, and where: how a trace ended, what it said, and its result."""


class WarmTracer:
    """Runs the tracer in forks, in place of `estimates._call`.

    The same step is traced once for all: a trace depends on nothing but what is asked for.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.errors: list[str] = []

    def __call__(self, command: Sequence[str]) -> int:
        program, asked, answered = command[command.index("-m") + 1 :]
        key = program, Path(asked).read_bytes(), Path.cwd(), os.environ.get("PYTHONPATH")
        if key not in _known:
            _known[key] = self._trace(program, asked, answered)
        code, said, result = _known[key]
        if result is not None:
            Path(answered).write_bytes(result)
        self.errors.append(said)
        return code

    def _trace(self, program: str, asked: str, answered: str) -> tuple[int, str, bytes | None]:
        boot = self._folder / "boot.py"
        boot.write_text(BOOT.format(root=str(ROOT), here=str(HERE), program=program), encoding="utf-8")
        variables = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = run_warm((str(boot), asked, answered), self._folder, variables, TIMEOUT_S)
        result = Path(answered)
        return ended.returncode, ended.stderr, result.read_bytes() if result.is_file() else None


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Run the tracer warm, with the trainings of this folder at hand; returns what it writes on stderr."""
    tracer = WarmTracer(tmp_path)
    monkeypatch.setattr(estimates, "_call", tracer)
    return tracer.errors
