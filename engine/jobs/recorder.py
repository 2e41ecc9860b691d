"""A recorder beside a job or a viewer: a process of its own, which ends with the job or when told to."""

import re
import subprocess
from datetime import datetime
from pathlib import Path

from ..child_processes import command_of, last_line, spawn
from ..errors import OutputFileError
from ..recording.schema import SUFFIX
from ..sources.process_status import read_start_ticks
from .detached import STARTED_WITHIN_S, Start, start_detached

BEGUN = "recording into "
"""What a recorder says once its file is open and its source is found."""
_LOG_NAME = "recorder-{}.log"
_STRANGE = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_STEM = 64


def spawn_recorder(folder: Path, starter: int, *words: str) -> "subprocess.Popen[bytes]":
    """Start a recorder that no signal of this terminal reaches.

    Args:
        folder: Runtime folder of the agent to follow.
        starter: Pid of the process for which it is started; names its log.
        words: Further arguments of `vramscope record`.
    """
    _sweep_logs(folder)
    return spawn(
        command_of("record", *words, "--runtime-dir", str(folder)),
        log_of(folder, starter),
        own_session=True,
        stdin=subprocess.DEVNULL,
    )


def log_of(folder: Path, starter: int) -> Path:
    """Return what a recorder writes its words to."""
    return folder / _LOG_NAME.format(starter)


def has_begun(log: Path) -> bool:
    """Return whether the recorder of a log has said that it records."""
    try:
        return BEGUN in log.read_text(errors="replace")
    except OSError:
        return False


def read_complaint(log: Path) -> str | None:
    """Return why the recorder of a log failed; None where it told of no failure."""
    said = last_line(log)
    return said.removeprefix("vramscope: ") if said is not None and said.startswith("vramscope: ") else None


def record_job(folder: Path, path: Path, *, pid: int, job: str) -> str | None:
    """Return once a recorder is there that ends with a job; why it may not be, in one sentence, else None.

    Args:
        folder: Runtime folder of the agent to follow.
        path: File to record into.
        pid: First process of the job.
        job: Its name.

    Raises:
        OutputFileError: It cannot record.
    """
    words = ("-o", str(path.absolute()), "--until-exit", str(pid), "--until-job", job)
    log = log_of(folder, pid)
    log.unlink(missing_ok=True)
    became = start_detached(lambda: spawn_recorder(folder, pid, *words), lambda: has_begun(log))
    if became is Start.ENDED:
        raise OutputFileError(read_complaint(log) or f"the recording ended at once; see {log}")
    late = f"the recording has not begun within {STARTED_WITHIN_S:g} s; it may yet: see {log}"
    return late if became is Start.LATE else None


def name_recording(folder: Path, stem: str, now_s: float) -> Path:
    """Return a file that does not exist, named by what is recorded and by the time.

    Args:
        folder: Where it is to be.
        stem: Name of the node or of the job; what is awkward in a file's name is replaced.
        now_s: Wall time.
    """
    plain = _STRANGE.sub("-", stem).strip("-.")[:_MOST_STEM] or "node"
    name = f"{plain}-{datetime.fromtimestamp(now_s):%Y%m%d-%H%M%S}"
    number = 1
    path = folder / f"{name}{SUFFIX}"
    while path.exists() or path.is_symlink():
        number += 1
        path = folder / f"{name}-{number}{SUFFIX}"
    return path


def _sweep_logs(folder: Path) -> None:
    """Remove what recorders of processes that have ended have said."""
    for log in folder.glob(_LOG_NAME.format("*")):
        pid = log.stem.rpartition("-")[2]
        if pid.isdecimal() and read_start_ticks(int(pid)) is None:
            log.unlink(missing_ok=True)
