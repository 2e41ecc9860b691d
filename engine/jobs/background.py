"""Processes that outlive their starter: agents and recorders, and the recording of a viewer."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from ..child_processes import HUB_LOG_NAME, command_of, last_line, spawn
from ..errors import HubUnreachableError, OutputFileError, RuntimeFolderError, VramscopeError
from ..files.base.input_file import show_path
from ..paths import explain_unwritable, open_runtime_folder
from ..recording.follower import RecorderNote, read_announced
from ..recording.schema import SUFFIX
from ..recording.sqlite import is_being_recorded
from ..sources.processes import read_start_ticks
from ..units import format_age, format_bytes
from ..wire.endpoints import is_hub_alive

STARTED_WITHIN_S = 10.0
_POLL_S = 0.005


class Start(IntEnum):
    """State of a process that was started; exit code of the process in between."""

    SERVES = 0
    ENDED = 1
    LATE = 2


def start_detached(spawn: Callable[[], "subprocess.Popen[bytes]"], is_ready: Callable[[], bool]) -> Start:
    """Start a process through one in between, and return once it is ready, has ended, or is late."""
    helper = os.fork()
    if helper == 0:
        # The child is a copy of its parent: it must end here, whatever happens.
        code: int = Start.LATE
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a parent that waits for signals has blocked them
            code = _await(spawn(), is_ready)
        finally:
            os._exit(code)
    _, status = os.waitpid(helper, 0)
    code = os.waitstatus_to_exitcode(status)
    return Start(code) if code in set(Start) else Start.LATE


def _await(process: "subprocess.Popen[bytes]", is_ready: Callable[[], bool]) -> Start:
    deadline_s = time.monotonic() + STARTED_WITHIN_S
    while time.monotonic() < deadline_s:
        if is_ready():
            return Start.SERVES
        if process.poll() is not None:
            return Start.ENDED if process.returncode else Start.SERVES  # another was first
        time.sleep(_POLL_S)
    return Start.LATE


# A hub of a job ends if neither a viewer nor a probe has come by then: importing torch may take minutes.
FIRST_WITHIN_S = 600
# Between the end of one process and the start of the next a hub stays this long.
LINGER_S = 30
# Checks, each 5 s after the one before. An agent that its service manager starts again, which waits for
# 5 s, serves by the third.
_MISSED_BEFORE_START = 3
_MOST_MISSED = 96


def find_or_start_hub(folder: Path) -> None:
    """Return once a hub serves a runtime folder; if there is none, start one.

    Raises:
        RuntimeFolderError: The folder is not private, or cannot be made or written.
        HubUnreachableError: The hub ended at once, or did not take the folder in time.
    """
    open_runtime_folder(folder)
    if is_hub_alive(folder):
        return
    log = folder / HUB_LOG_NAME
    try:
        log.open("ab").close()  # the process between could not say what is wrong
    except OSError as error:
        raise RuntimeFolderError(explain_unwritable(log, error)) from error
    became = start_detached(lambda: _spawn(folder), lambda: is_hub_alive(folder))
    if became is Start.SERVES or is_hub_alive(folder):
        return
    said = last_line(log) if became is Start.ENDED else None
    raise HubUnreachableError(
        said.removeprefix("vramscope: ") if said else f"it did not start within {STARTED_WITHIN_S:g} s"
    )


class HubKeeper:
    """Starts a hub for a job, and again where its process has ended, as on a host that had no memory left.

    Args:
        complain: Prints why none can be started, once until one serves again.
    """

    def __init__(self, folder: Path, complain: Callable[[str], None]) -> None:
        self._folder = folder
        self._complain = complain
        self._missed = 0
        self._patience = _MISSED_BEFORE_START

    def start(self) -> None:
        """Start a hub if none serves; without one the job still runs."""
        try:
            find_or_start_hub(self._folder)
        except (VramscopeError, OSError) as error:
            if self._patience == _MISSED_BEFORE_START:
                self._complain(str(error))
            self._patience = min(2 * self._patience, _MOST_MISSED)

    def check(self) -> None:
        """Start a hub if several checks have found none; more of them after each failure to start one."""
        if is_hub_alive(self._folder):
            self._missed, self._patience = 0, _MISSED_BEFORE_START
            return
        self._missed += 1
        if self._missed >= self._patience:
            self._missed = 0
            self.start()


def _spawn(folder: Path) -> "subprocess.Popen[bytes]":
    return spawn(
        command_of(
            "agent",
            "--leave-with-viewers",
            *("--first-within", str(FIRST_WITHIN_S), "--linger", str(LINGER_S)),
            *("--runtime-dir", str(folder)),
        ),
        folder / HUB_LOG_NAME,
        own_session=True,
        stdin=subprocess.DEVNULL,
        keeps_log=True,
    )


# What a recorder prints once its file is open and its source is found.
BEGUN = "recording into "
_LOG_NAME = "recorder-{}.log"
_STRANGE = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_STEM = 64


def spawn_recorder(folder: Path, starter: int, *words: str) -> "subprocess.Popen[bytes]":
    """Start a recorder that no signal of this terminal reaches; its log is named by `starter`, a pid."""
    # Logs of recorders whose starters have ended.
    for log in folder.glob(_LOG_NAME.format("*")):
        pid = log.stem.rpartition("-")[2]
        if pid.isdecimal() and read_start_ticks(int(pid)) is None:
            log.unlink(missing_ok=True)
    return spawn(
        command_of("record", *words, "--runtime-dir", str(folder)),
        log_of(folder, starter),
        own_session=True,
        stdin=subprocess.DEVNULL,
    )


def log_of(folder: Path, starter: int) -> Path:
    return folder / _LOG_NAME.format(starter)


def has_begun(log: Path) -> bool:
    try:
        return BEGUN in log.read_text(errors="replace")
    except OSError:
        return False


def read_complaint(log: Path) -> str | None:
    """Return why the recorder of a log failed; None if there is no failure in it."""
    said = last_line(log)
    return said.removeprefix("vramscope: ") if said is not None and said.startswith("vramscope: ") else None


class JobRecording:
    """A recorder that ends with a job.

    Args:
        pid: Process that starts the job, and becomes it or waits for it.
    """

    def __init__(self, folder: Path, path: Path, *, pid: int, job: str) -> None:
        self._folder = folder
        self._path = path.absolute()
        self._pid = pid
        self._job = job
        self._log = log_of(folder, pid)
        self._is_judged = False

    def start(self) -> str | None:
        """Return once it records; if it may not do so yet, say why in one sentence.

        Raises:
            OutputFileError: It has ended at once.
        """
        words = ("-o", str(self._path), "--until-exit", str(self._pid), "--until-job", self._job)
        self._log.unlink(missing_ok=True)
        became = start_detached(
            lambda: spawn_recorder(self._folder, self._pid, *words), lambda: has_begun(self._log)
        )
        if became is Start.ENDED:
            raise OutputFileError(
                read_complaint(self._log) or f"the recording ended at once; see {self._log}"
            )
        late = f"the recording has not started within {STARTED_WITHIN_S:g} s; it still may: see {self._log}"
        return late if became is Start.LATE else None

    def find_failure(self) -> str | None:
        """Return why it records no longer while the job still runs: once, and None while all is well."""
        if self._is_judged or not has_begun(self._log) or is_being_recorded(self._path):
            return None
        self._is_judged = True
        killed = f"{show_path(self._path)}: recording stopped: its process has ended"
        return read_complaint(self._log) or f"{killed}; what was recorded until then can be read"


def name_recording(folder: Path, stem: str, now_s: float) -> Path:
    """Return a file that does not exist, named by `stem`, awkward characters replaced, and by the time."""
    plain = _STRANGE.sub("-", stem).strip("-.")[:_MOST_STEM] or "node"
    name = f"{plain}-{datetime.fromtimestamp(now_s):%Y%m%d-%H%M%S}"
    number = 1
    path = folder / f"{name}{SUFFIX}"
    while path.exists() or path.is_symlink():
        number += 1
        path = folder / f"{name}-{number}{SUFFIX}"
    return path


# How long a recording that ends with its viewer may take to close its file.
LEFT_WITHIN_S = 5.0


class RecordingState(NamedTuple):
    path: Path
    passed_s: float
    size_bytes: int


class RecordingNews(NamedTuple):
    """An event of a recording, in sentences for people."""

    text: str
    is_failure: bool = False


class ViewerRecording:
    """Begins, watches and ends the recording that the viewers of one runtime folder share.

    Args:
        is_private: The agent ends with this viewer, and so does the recording.
        now_s: Wall time; injected in tests.
    """

    def __init__(
        self, folder: Path, output: Path, *, is_private: bool = False, now_s: Callable[[], float] = time.time
    ) -> None:
        self._folder = folder
        self._output = output
        self._is_private = is_private
        self._now_s = now_s
        self._process: subprocess.Popen[bytes] | None = None
        self._note: RecorderNote | None = None
        self._is_ending = False
        self._news: list[RecordingNews] = []

    @property
    def is_changing(self) -> bool:
        return self._is_ending or (self._process is not None and self._note is None)

    def switch(self, node: str) -> None:
        """Begin a recording, or end the running one; `take_news` reports the outcome."""
        if self.look() is not None:
            if self._note is not None and not self._is_ending:
                self._is_ending = True
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(self._note.pid, signal.SIGTERM)
        elif self._process is None:
            try:
                self._begin(node)
            except (VramscopeError, OSError) as error:
                why = error if isinstance(error, VramscopeError) else f"{self._output}: {error.strerror}"
                self._fail(str(why))

    def look(self) -> RecordingState | None:
        """Return the running recording, whoever began it, or None."""
        before = self._note
        self._note = read_announced(self._folder)
        if self._note is None:
            self._judge_end(before)
            return None
        path = Path(self._note.path)
        if self._note.moved is not None and self._note.moved != (before and before.moved):
            self._fail(self._note.moved)
        if before is None and self._process is not None:
            end = "ends with this view" if self._is_private else "continues after you quit"
            self._add_news(f"Recording into {show_path(path)}: it {end}; R ends it.")
        return RecordingState(path, max(0.0, self._now_s() - self._note.since_s), _measure(path))

    def take_news(self) -> list[RecordingNews]:
        """Return the events since the last call."""
        news = self._news
        self._news = []
        return news

    def leave(self) -> str | None:
        """Leave the recording running, or end it with a private agent; return a message about it."""
        self.look()
        note = self._note
        if self._is_private and self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.terminate()
                self._process.wait(LEFT_WITHIN_S)
            name = "" if note is None else show_path(Path(note.path))
            return f"recorded into {name}: vramscope replay {name}" if name else None
        if note is None:
            return None
        name = show_path(Path(note.path))
        return f"still recording into {name}: end it with R in vramscope, or kill {note.pid}"

    def _begin(self, node: str) -> None:
        self._output.mkdir(parents=True, exist_ok=True)
        path = name_recording(self._output.absolute(), node, self._now_s())
        open_runtime_folder(self._folder)
        # A private agent goes with its viewer, also when that is killed: nothing would be left to record.
        end = ("--until-exit", str(os.getpid())) if self._is_private else ()
        words = ("-o", str(path), "--with-past", "--for-viewers", *end)
        self._process = spawn_recorder(self._folder, os.getpid(), *words)

    def _judge_end(self, before: RecorderNote | None) -> None:
        """Report how a recording ended that ran a moment ago, or why one did not begin."""
        if self._process is not None and self._process.poll() is None:
            self._note = before  # it has not begun yet, or is closing its file
            return
        complaint = None if self._process is None else read_complaint(log_of(self._folder, os.getpid()))
        if before is not None and (self._is_ending or complaint is None):
            path = Path(before.path)
            length = format_age(max(0.0, self._now_s() - before.since_s))
            name = show_path(path)
            self._add_news(f"Recorded {length}, {format_bytes(_measure(path))}: vramscope replay {name}")
        elif self._process is not None:
            self._fail(complaint or "the recorder ended at once")
        self._process = None
        self._is_ending = False

    def _add_news(self, text: str) -> None:
        self._news.append(RecordingNews(text))

    def _fail(self, reason: str) -> None:
        plain = reason.partition("; choose another file with -o")[0]
        hint = "; record.folder chooses another folder" if plain != reason else ""
        self._news.append(RecordingNews(f"{plain[:1].upper()}{plain[1:]}{hint}.", is_failure=True))


def _measure(path: Path) -> int:
    """Return the bytes of a recording, with those that are not part of its file yet."""
    size_bytes = 0
    for name in (path.name, f"{path.name}-wal"):
        with suppress(OSError):
            size_bytes += path.with_name(name).stat().st_size
    return size_bytes
