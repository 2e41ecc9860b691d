"""Nothing of an attempt to attach stays for longer than the process may need it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vramscope.engine.jobs.handover import Handover, remove_left_payloads
from vramscope.engine.sources.processes import read_start_ticks

from .targets import BUSY, Target, running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "runtime"
    path.mkdir()
    return path


def run_payload(payload: Path) -> None:
    subprocess.run([sys.executable, "-S", payload], check=True, timeout=60)


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("attach-"))


def test_a_payload_that_the_process_may_open_yet_stays_and_takes_itself_away(folder: Path) -> None:
    handover = Handover(folder, os.getpid())
    handover.write()
    handover.close(is_pending=True)
    assert list_names(folder) == [handover.payload.name]
    run_payload(handover.payload)
    assert list_names(folder) == []


def test_a_copy_that_runs_late_leaves_no_report(folder: Path, tmp_path: Path) -> None:
    handover = Handover(folder, os.getpid())
    handover.write()
    copy = tmp_path / "copy.py"
    copy.write_text(handover.payload.read_text())
    handover.close(is_pending=False)
    run_payload(copy)
    assert list_names(folder) == []


def test_a_payload_that_has_run_is_gone_and_its_report_is_read(folder: Path) -> None:
    handover = Handover(folder, os.getpid())
    handover.write()
    assert handover.read_report() == ""
    run_payload(handover.payload)
    assert handover.read_report() == "without torch"
    assert not handover.payload.exists()
    handover.close(is_pending=True)
    assert list_names(folder) == []


def test_a_process_that_has_ended_needs_no_payload(folder: Path, tmp_path: Path) -> None:
    with running(BUSY, tmp_path) as target:
        handover = Handover(folder, target.pid)
        handover.write()
    handover.close(is_pending=True)
    assert list_names(folder) == []


def test_what_attempts_of_the_past_left_is_swept_once_nobody_needs_it(folder: Path, tmp_path: Path) -> None:
    ours, attacher_gone = os.getpid(), 4194305  # beyond the largest pid of Linux

    def leave(target: Target, attacher: int, kind: str, later: int = 0) -> str:
        name = f"attach-{attacher}-{target.pid}-{(read_start_ticks(target.pid) or 0) + later}.{kind}"
        (folder / name).touch()
        return name

    (folder / "attach-notes.md").touch()
    with running(BUSY, tmp_path) as target:
        pending = leave(target, attacher_gone, "py")
        awaited = [leave(target, ours, kind) for kind in ("py", "txt", "gdb")]
        for kind in ("txt", "gdb"):
            leave(target, attacher_gone, kind)
        leave(target, attacher_gone, "py", later=1)  # its pid has been given to another process since
        remove_left_payloads(folder)
        assert list_names(folder) == sorted(["attach-notes.md", pending, *awaited])
    remove_left_payloads(folder)
    assert list_names(folder) == sorted(["attach-notes.md", *awaited])
