"""Who must not be attached to, and what would permit it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vramscope.engine.errors import AttachRefusedError, UsageError
from vramscope.engine.jobs.attach import check_permitted, check_untraced
from vramscope.engine.sources.processes import ProcessStatus, read_status

from ...components import require
from ...vramscope.cli.running import Outcome, environment, run
from ...waiting import wait_until
from .targets import BUSY, running

READY = "print('ready')\n"
UNDUMPABLE = "import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
"""4 is PR_SET_DUMPABLE."""
TRACER = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
assert libc.ptrace(0x4206, %d, 0, 0) == 0, ctypes.get_errno()
print("ready")
import time
time.sleep(60)
"""
"""0x4206 is PTRACE_SEIZE."""


def make_status(pid: int = 42, **fields: object) -> ProcessStatus:
    known = ProcessStatus(pid=pid, name="python3", state="R", uid=os.geteuid(), tracer_pid=0)
    return known._replace(**fields)  # type: ignore[arg-type]  # what a test says fits


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        ("1", r"ptrace_scope is 1\); `sudo sysctl kernel.yama.ptrace_scope=0` would permit it"),
        ("2", r"ptrace_scope is 2\); CAP_SYS_PTRACE would permit it"),
        ("3", r"ptrace_scope is 3\); start the job with `vramscope run`"),
        (
            None,
            r"would permit it \(for a container: --cap-add=SYS_PTRACE\), or start the job with `vrams",
        ),
    ],
)
def test_the_rule_that_forbids_it_is_named(
    scope: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "42").mkdir()
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text("CapEff:\t0000000000000000\n")
    if scope is not None:
        (tmp_path / "sys/kernel/yama").mkdir(parents=True)
        (tmp_path / "sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("vramscope.engine.jobs.attach.os.open", refuse)
    with pytest.raises(AttachRefusedError, match=said) as caught:
        check_permitted(make_status(), tmp_path)
    assert caught.value.exit_code == 6


def test_a_process_of_this_user_is_permitted(tmp_path: Path) -> None:
    with running(READY + BUSY, tmp_path) as target:
        target.wait_for("ready")
        status = read_status(target.pid)
        check_untraced(status)
        try:
            check_permitted(status)
        except AttachRefusedError as error:
            pytest.skip(f"this system forbids ptrace: {error}")


FILTERED = """
import ctypes
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))
library = ctypes.CDLL(None, use_errno=True)
allow = (6).to_bytes(4, "little") + (0x7FFF0000).to_bytes(4, "little")
assert library.prctl(38, 1, 0, 0, 0) == 0
assert library.prctl(22, 2, ctypes.byref(Program(1, allow)), 0, 0) == 0, ctypes.get_errno()
"""
"""Sets PR_SET_NO_NEW_PRIVS, and by PR_SET_SECCOMP a filter of one line that allows everything."""


def test_a_process_that_restricts_its_system_calls_is_refused(tmp_path: Path) -> None:
    with running(FILTERED + READY + BUSY, tmp_path) as target:
        target.wait_for("ready")
        with pytest.raises(AttachRefusedError, match=r"restricts its own system calls \(seccomp\)"):
            check_permitted(read_status(target.pid))


def test_a_process_that_protects_itself_is_refused(tmp_path: Path) -> None:
    with running(UNDUMPABLE + READY + BUSY, tmp_path) as target:
        target.wait_for("ready")
        outcome = _run_without_rights("attach", str(target.pid))
    assert outcome.code == 6
    assert outcome.stderr.count("\n") == 1
    assert "would permit it" in outcome.stderr
    assert "vramscope run" in outcome.stderr


def _run_without_rights(*arguments: str) -> Outcome:
    drop = [require("setpriv"), "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"]
    done = subprocess.run(
        [*(drop if os.geteuid() == 0 else []), sys.executable, "-m", "vramscope", *arguments],
        capture_output=True,
        encoding="utf-8",
        env=environment(),
        timeout=60,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def test_a_process_of_another_user_is_refused() -> None:
    if os.geteuid() != 0:
        outcome = run("attach", "1")
    else:
        nobody = [require("setpriv"), "--reuid", "65534", "--clear-groups", "sleep", "60"]
        with subprocess.Popen(nobody) as process:
            wait_until(lambda: read_status(process.pid).uid == 65534, what="the other user")
            outcome = run("attach", str(process.pid))
            process.kill()
    assert outcome.code == 6
    assert "belongs to user" in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_one_that_is_being_traced_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tracer").mkdir()
    with running(READY + BUSY, tmp_path) as target:
        target.wait_for("ready")
        with running(TRACER % target.pid, tmp_path / "tracer") as tracer:
            tracer.wait_for("ready")
            with pytest.raises(AttachRefusedError, match=rf"being traced by process {tracer.pid} \(python"):
                check_untraced(read_status(target.pid))
            outcome = run("attach", str(target.pid))
    assert (outcome.code, outcome.stderr.count("\n")) == (6, 1)
    assert "only one process can trace it" in outcome.stderr


def test_one_that_is_stopped_is_refused_with_how_to_let_it_go_on(tmp_path: Path) -> None:
    with running(READY + BUSY, tmp_path) as target:
        target.wait_for("ready")
        target.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: read_status(target.pid).state == "T", what="the stop")
        with pytest.raises(UsageError, match=f"kill -CONT {target.pid}"):
            check_permitted(read_status(target.pid))
