"""The units of systemd in docs/deployment: their command means something, and systemd finds nothing wrong."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.structure.tree import ROOT
from vramscope.cli.frame.parse import parse
from vramscope.engine.errors import HubTakenError, RuntimeFolderError, UsageError

SYSTEM = ROOT / "docs/deployment/vramscope-agent.service"
USER = ROOT / "docs/deployment/user/vramscope-agent.service"
EXEC_START = re.compile(r"^ExecStart=(\S+) (.*)$", re.MULTILINE)


@pytest.mark.parametrize(("unit", "listen"), [(SYSTEM, "*:5757"), (USER, None)])
def test_a_unit_starts_an_agent_and_lets_be_what_another_start_would_not_change(
    unit: Path, listen: str | None
) -> None:
    text = unit.read_text()
    found = EXEC_START.search(text)
    assert found is not None
    arguments = parse(found[2].split())
    assert (Path(found[1]).name, arguments.verb, arguments.listen) == ("vramscope", "agent", listen)
    hopeless = {str(kind.exit_code) for kind in (HubTakenError, RuntimeFolderError, UsageError)}
    given = re.search(r"^RestartPreventExitStatus=(.*)$", text, re.MULTILINE)
    assert given is not None
    assert set(given[1].split()) == hopeless


@pytest.mark.parametrize(("unit", "options"), [(SYSTEM, ()), (USER, ("--user",))])
def test_systemd_finds_nothing_wrong_with_a_unit(
    unit: Path, options: tuple[str, ...], tmp_path: Path
) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / unit.name
    copy.write_text(EXEC_START.sub(rf"ExecStart={sys.executable} \2", unit.read_text()))
    done = subprocess.run(
        [program, *options, "verify", "--recursive-errors=no", str(copy)],
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
