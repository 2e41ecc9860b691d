"""Through gdb: the payload runs once for each time, and the process goes on as if nothing had been."""

import ctypes
import os
from pathlib import Path

import pytest

from vramscope.engine.errors import AttachRefusedError, DebuggerMissingError
from vramscope.engine.jobs import gdb
from vramscope.engine.jobs.interpreter import ADD_CALL, Interpreter, find_interpreter
from vramscope.engine.sources.processes import list_mapped_files, read_status

from ...components import require
from ...waiting import wait_until
from .targets import HAMMER, SPINNING, Target, running

TIMES = 5
"""The benchmark does it more often."""


@pytest.fixture
def payload(tmp_path: Path) -> Path:
    """Code that can be counted."""
    path = tmp_path / "payload.py"
    path.write_text("beat.append(1); print('beat', len(beat))\n")
    return path


def _look_into(target: Target) -> Interpreter:
    return find_interpreter(read_status(target.pid))


def test_a_process_that_hammers_malloc_and_the_collector_survives(tmp_path: Path, payload: Path) -> None:
    require("gdb")
    with running(f"{HAMMER}print('ready')\n{SPINNING}", tmp_path) as target:
        target.wait_for("ready")
        for turn in range(1, TIMES + 1):
            gdb.inject(_look_into(target), payload)
            target.wait_for(f"beat {turn}\n")
        assert target.process.poll() is None
        assert read_status(target.pid).tracer_pid == 0
    assert target.said.count("beat") == TIMES


def test_a_main_thread_that_sleeps_is_not_woken_early(tmp_path: Path, payload: Path) -> None:
    require("gdb")
    script = """
import time
beat = []
print("ready")
begun = time.monotonic()
time.sleep(2)
print("slept", time.monotonic() - begun >= 2)
time.sleep(60)
"""
    with running(script, tmp_path) as target:
        target.wait_for("ready")
        gdb.inject(_look_into(target), payload)
        target.wait_for("beat 1\n")
        target.wait_for("slept True\n")


def test_no_file_of_the_debugger_stays_behind(tmp_path: Path, payload: Path) -> None:
    require("gdb")
    with running(f"beat = []\nprint('ready')\n{SPINNING}", tmp_path) as target:
        target.wait_for("ready")
        gdb.inject(_look_into(target), payload)
    assert not list(tmp_path.glob("*.gdb"))


def test_a_call_that_hangs_is_abandoned_and_the_process_goes_on(
    tmp_path: Path, payload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("gdb")
    monkeypatch.setattr(gdb, "ANSWERS_WITHIN_S", 2.0)
    script = "n = 0\nprint('ready')\nwhile True:\n    n += 1\n    if n % 100000 == 0: print('at', n)\n"
    with running(script, tmp_path) as target:
        target.wait_for("ready")
        found = _look_into(target)
        hanging = found._replace(functions={**found.functions, ADD_CALL: _find_pause(target.pid)})
        with pytest.raises(AttachRefusedError, match=f"could not reach process {target.pid}"):
            gdb.inject(hanging, payload)
        said = len(target.said)
        wait_until(lambda: len(target.said) > said + 20, what="the process to go on")
        assert target.process.poll() is None


def _find_pause(pid: int) -> int:
    """Return where a process has pause(2), which waits for ever; its libc is the one of this process."""

    def start(of: int) -> int:
        return next(f.address for f in list_mapped_files(of) if Path(f.path).name.startswith("libc.so"))

    here = ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p).value
    assert here is not None
    return here - start(os.getpid()) + start(pid)


def test_without_gdb_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DebuggerMissingError, match="apt-get install gdb"):
        gdb.find_gdb()


def test_a_process_that_ends_meanwhile_is_told(tmp_path: Path, payload: Path) -> None:
    require("gdb")
    with running(f"print('ready')\n{SPINNING}", tmp_path) as target:
        target.wait_for("ready")
        found = _look_into(target)
    with pytest.raises(AttachRefusedError, match=f"could not reach process {found.pid}") as refused:
        gdb.inject(found, payload)
    assert "did not answer within" not in str(refused.value), "it is told as soon as gdb knows"
