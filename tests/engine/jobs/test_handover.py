"""Nothing of an attempt to attach stays for longer than the process may need it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vramscope.engine.jobs.handover import Handover, remove_left_payloads, write_pointer
from vramscope.engine.sources.processes import read_start_ticks

from .targets import BUSY, Target, running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "runtime"
    path.mkdir()
    return path


@contextmanager
def waiting_process() -> Iterator["subprocess.Popen[str]"]:
    """Run a Python that runs the files that it is given the paths of."""
    code = "import sys\nfor path in sys.stdin: exec(open(path.strip()).read()); print('done', flush=True)"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.communicate(timeout=60)


def run_payload(process: "subprocess.Popen[str]", payload: Path) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{payload}\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("attach-"))


def test_a_payload_that_the_process_may_open_yet_stays_and_takes_itself_away(folder: Path) -> None:
    with waiting_process() as process:
        handover = Handover(folder, process.pid)
        handover.write()
        handover.close(is_pending=True)
        assert list_names(folder) == [handover.payload.name]
        run_payload(process, handover.payload)
    assert list_names(folder) == []


def test_a_copy_that_runs_late_leaves_no_report(folder: Path, tmp_path: Path) -> None:
    with waiting_process() as process:
        handover = Handover(folder, process.pid)
        handover.write()
        copy = tmp_path / "copy.py"
        copy.write_text(handover.payload.read_text())
        handover.close(is_pending=False)
        run_payload(process, copy)
    assert list_names(folder) == []


def test_a_payload_that_has_run_is_gone_and_its_report_is_read(folder: Path) -> None:
    with waiting_process() as process:
        handover = Handover(folder, process.pid)
        handover.write()
        assert handover.read_report() == ""
        run_payload(process, handover.payload)
        assert handover.read_report() == "without torch"
        assert not handover.payload.exists()
        handover.close(is_pending=True)
    assert list_names(folder) == []


def test_a_child_that_inherits_the_call_leaves_the_payload_to_its_parent(folder: Path) -> None:
    with waiting_process() as parent, waiting_process() as child:
        handover = Handover(folder, parent.pid)
        handover.write()
        run_payload(child, handover.payload)
        assert handover.read_report() == ""
        run_payload(parent, handover.payload)
        assert handover.read_report() == "without torch"
        handover.close(is_pending=False)


def test_the_short_text_raises_nothing_and_leaves_no_name(tmp_path: Path) -> None:
    payload = tmp_path / "pay'lo\u00e4d.py"
    payload.write_text("import sys; sys.ran = True\nraise SystemExit(3)\n")
    text = write_pointer(payload).decode("ascii")
    script = f"open = exec = None\nbefore = {{*globals(), 'before'}}\n{text}print({{*globals()}} - before)\n"
    done = subprocess.run(
        [sys.executable, "-S", "-X", "dev", "-c", f"{script}import sys; print(sys.ran)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "set()\nTrue\n", "")
    payload.unlink()
    compile(text, "text", "exec")
    exec(text, {})  # noqa: S102 - the file is gone


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
