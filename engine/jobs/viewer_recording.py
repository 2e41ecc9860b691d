"""The recording that a viewer begins and ends: a process of its own, which outlives the viewer."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..errors import VramscopeError
from ..files.base.input_file import show_path
from ..paths import open_runtime_folder
from ..recording.announcement import RecorderNote, read_announced
from ..units import format_age, format_bytes
from .recorder import log_of, name_recording, read_complaint, spawn_recorder

LEFT_WITHIN_S = 5.0
"""How long a recording that ends with its viewer may take to close its file."""


class RecordingState(NamedTuple):
    """A recording that goes on."""

    path: Path
    passed_s: float
    size_bytes: int


class RecordingNews(NamedTuple):
    """What became of a recording, in sentences for people."""

    text: str
    is_failure: bool = False


class ViewerRecording:
    """Begins, watches and ends the recording that the viewers of one runtime folder share.

    Args:
        folder: The runtime folder.
        output: Where recordings go.
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
        """Whether a recording is about to begin or to end."""
        return self._is_ending or (self._process is not None and self._note is None)

    def switch(self, node: str) -> None:
        """Begin a recording, or end the one that goes on; what became of it is told by `take_news`.

        Args:
            node: Name of the node, for the name of the file.
        """
        if self.look() is not None:
            self._end()
        elif self._process is None:
            try:
                self._begin(node)
            except (VramscopeError, OSError) as error:
                told = error if isinstance(error, VramscopeError) else f"{self._output}: {error.strerror}"
                self._fail(str(told))

    def look(self) -> RecordingState | None:
        """Return the recording that goes on, whoever began it; None where none does."""
        before = self._note
        self._note = read_announced(self._folder)
        if self._note is None:
            self._judge_end(before)
            return None
        path = Path(self._note.path)
        if self._note.moved is not None and self._note.moved != (before and before.moved):
            self._fail(self._note.moved)
        if before is None and self._process is not None:
            end = "ends with this view" if self._is_private else "goes on when you quit"
            self._tell(f"Recording into {show_path(path)}: it {end}; R ends it.")
        return RecordingState(path, max(0.0, self._now_s() - self._note.since_s), _measure(path))

    def take_news(self) -> list[RecordingNews]:
        """Return what has become of recordings since the last call."""
        news = self._news
        self._news = []
        return news

    def leave(self) -> str | None:
        """Leave the recording to itself, or end it with a private agent; return what is to be said of it."""
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
        return f"the recording into {name} goes on: R in vramscope ends it, or kill {note.pid}"

    def _begin(self, node: str) -> None:
        self._output.mkdir(parents=True, exist_ok=True)
        path = name_recording(self._output.absolute(), node, self._now_s())
        open_runtime_folder(self._folder)
        # A private agent goes with its viewer, also when that is killed: nothing would be left to record.
        end = ("--until-exit", str(os.getpid())) if self._is_private else ()
        words = ("-o", str(path), "--with-past", "--for-viewers", *end)
        self._process = spawn_recorder(self._folder, os.getpid(), *words)

    def _end(self) -> None:
        if self._note is not None and not self._is_ending:
            self._is_ending = True
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self._note.pid, signal.SIGTERM)

    def _judge_end(self, before: RecorderNote | None) -> None:
        """Say how a recording ended that went on a moment ago, or why one did not begin."""
        if self._process is not None and self._process.poll() is None:
            self._note = before  # it has not begun yet, or is closing its file
            return
        complaint = None if self._process is None else read_complaint(log_of(self._folder, os.getpid()))
        if before is not None and (self._is_ending or complaint is None):
            path = Path(before.path)
            length = format_age(max(0.0, self._now_s() - before.since_s))
            name = show_path(path)
            self._tell(f"Recorded {length}, {format_bytes(_measure(path))}: vramscope replay {name}")
        elif self._process is not None:
            self._fail(complaint or "the recorder ended at once")
        self._process = None
        self._is_ending = False

    def _tell(self, text: str) -> None:
        self._news.append(RecordingNews(text))

    def _fail(self, reason: str) -> None:
        plain = reason.partition("; name another file with -o")[0]
        hint = "; record.folder chooses another folder" if plain != reason else ""
        self._news.append(RecordingNews(f"{plain[:1].upper()}{plain[1:]}{hint}.", is_failure=True))


def _measure(path: Path) -> int:
    """Return the bytes of a recording, those included that are not part of its file yet."""
    size_bytes = 0
    for name in (path.name, f"{path.name}-wal"):
        with suppress(OSError):
            size_bytes += path.with_name(name).stat().st_size
    return size_bytes
