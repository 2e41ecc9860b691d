"""`vramscope run --record`: the job in a file from its start to its end, whatever ends it."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import REPOSITORY
from vramscope.engine.jobs.background import JobRecording
from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.recording import Recording, RecordingWriter
from vramscope.engine.wire.endpoints import holder_pid, is_hub_alive

from ...engine.recording.samples import IDENTITY
from ...waiting import wait_until
from .running import run

WAIT = "import os\ntry:\n    print(os.wait())\nexcept ChildProcessError:\n    print('none')"


@pytest.fixture(autouse=True)
def _end_all(private_environment: Path) -> Iterator[None]:
    yield
    folder = locate_runtime_folder()
    pid = holder_pid(folder) if folder.exists() and is_hub_alive(folder) else None
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the end of the agent")


def is_whole(path: Path) -> bool:
    """Return whether a recording is a single file that nobody writes any more."""
    if any(path.with_name(path.name + end).exists() for end in ("-wal", "-shm", "-journal")):
        return False
    with Recording(path) as recording:
        return not recording.is_unfinished


@pytest.mark.waits
def test_a_short_job_is_recorded_too_and_finds_no_child_that_is_not_its_own(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    outcome = run("run", "--quiet", f"--record={path}", "--", sys.executable, "-c", WAIT)
    assert (outcome.code, outcome.stdout) == (0, "none\n")
    assert outcome.stderr == f"vramscope run: recording into {path} until the job has ended\n"
    wait_until(lambda: is_whole(path), 30.0, "the end of the recording")
    with Recording(path) as recording:
        assert recording.sample_count >= 1


KILL_RECORDER = """
import os, psutil, signal, sys
found = [it for it in psutil.process_iter(["cmdline"]) if "--until-exit" in (it.info["cmdline"] or ())]
(recorder,) = [it for it in found if sys.argv[1] in it.info["cmdline"]]
recorder.send_signal(getattr(signal, sys.argv[2]))
recorder.wait()
"""


@pytest.mark.waits
@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGTERM"])
def test_a_recording_that_ends_before_its_job_is_named(tmp_path: Path, signal_name: str) -> None:
    path = tmp_path / "run.vscope"
    words = (sys.executable, "-c", KILL_RECORDER, str(path), signal_name)
    outcome = run("run", f"--record={path}", "--", *words)
    assert outcome.code == 0, outcome.stderr
    said = outcome.stderr.splitlines()
    assert said[0] == f"vramscope run: recording into {path} until the job has ended"
    assert said[1] == (
        f"vramscope run: {path}: recording stopped: its process has ended; "
        "what was recorded until then can be read"
    )
    assert len(said) == 3


def test_why_a_recording_stopped_is_what_its_recorder_said(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    recording = JobRecording(tmp_path, path, pid=1, job="gpt")
    log = tmp_path / "recorder-1.log"
    assert recording.find_failure() is None, "it has not begun"
    begun = f"vramscope record: recording into {path}; it ends with process 1\n"
    full = f"{path}: recording stopped: the disk is full; what was recorded until now can be read"
    log.write_text(begun)
    with RecordingWriter(path, IDENTITY):
        assert recording.find_failure() is None
        log.write_text(f"{begun}vramscope: {full}\n")
    assert recording.find_failure() == full
    assert recording.find_failure() is None, "once is enough"


def test_a_file_that_cannot_be_written_is_told_before_the_job_begins(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "run.vscope"
    outcome = run("run", f"--record={path}", "--", "echo", "begun", PWD=str(REPOSITORY))
    assert (outcome.code, outcome.stdout) == (125, "")
    assert outcome.stderr.splitlines()[-1] == (
        f"vramscope: {path}: cannot be written: no such file or directory; choose another file with -o"
    )
