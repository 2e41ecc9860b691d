"""What runs in a process is read from its files alone, without asking it."""

import subprocess
from pathlib import Path

import pytest

from vramscope.engine.errors import UsageError
from vramscope.engine.jobs.interpreter import find_interpreter
from vramscope.engine.sources.processes import read_status

from ...waiting import wait_until
from .interpreters import OLD, SUPPORTED, list_pythons
from .targets import BUSY, running

PYTHONS = list_pythons(*SUPPORTED)
READY = "print('ready')\n"


@pytest.mark.parametrize("version", sorted(PYTHONS))
def test_the_version_of_every_python_is_known(version: str, tmp_path: Path) -> None:
    with running(READY + BUSY, tmp_path, python=PYTHONS[version]) as target:
        target.wait_for("ready")
        found = find_interpreter(read_status(target.pid))
    assert ".".join(map(str, found.version)) == version
    assert set(found.functions) == {"Py_AddPendingCall", "PyRun_SimpleString", "mmap"}


@pytest.mark.parametrize("version", sorted(list_pythons(*OLD)))
def test_a_python_that_the_probe_cannot_live_in_is_refused(version: str, tmp_path: Path) -> None:
    with running(READY + BUSY, tmp_path, python=list_pythons(*OLD)[version]) as target:
        target.wait_for("ready")
        with pytest.raises(UsageError, match=r"runs a Python older than 3\.9"):
            find_interpreter(read_status(target.pid))


def test_what_is_not_python_is_refused() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            wait_until(lambda: read_status(process.pid).name == "sleep", what="its name")  # set within exec
            with pytest.raises(UsageError, match=rf"process {process.pid} \(sleep\) does not run Python"):
                find_interpreter(read_status(process.pid))
        finally:
            process.kill()


def test_no_process_and_one_that_has_ended_are_told_apart() -> None:
    process = subprocess.Popen(["true"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read()  # ends with the process
    process.stdout.close()
    status = Path(f"/proc/{process.pid}/status")
    while "State:\tZ" not in status.read_text():
        pass
    with pytest.raises(UsageError, match="has ended"):
        read_status(process.pid)
    process.wait()
    with pytest.raises(UsageError, match=f"there is no process {process.pid}"):
        read_status(process.pid)
