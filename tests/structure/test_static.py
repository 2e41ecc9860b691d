"""Format, lint, types and import contracts hold; `make check` runs the same tools."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.structure.tree import ROOT

pytestmark = pytest.mark.static


def _tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of the environment that runs the tests, at the root of the repository."""
    program = Path(sys.executable).parent / name
    return subprocess.run(
        [program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("ruff", "format", "--check", "--no-cache", "."), id="format"),
        pytest.param(("ruff", "check", "--no-cache", "."), id="lint"),
        pytest.param(("mypy",), id="types"),
        pytest.param(("lint-imports", "--no-cache"), id="import contracts"),
    ],
)
def test_tree_is_clean(command: tuple[str, ...]) -> None:
    result = _tool(*command)
    assert result.returncode == 0, result.stdout + result.stderr
