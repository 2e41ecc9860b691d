"""What viewers know of a recording that one of them began: a note in the runtime folder."""

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from ..errors import OutputFileError, UsageError
from ..files.base.input_file import show_path
from ..files.base.output_file import replacing
from ..sources.processes import read_start_ticks, read_status

NOTE_NAME = "recorder.json"
_MOST_BYTES = 16_384


class RecorderNote(msgspec.Struct, frozen=True):
    """A recording that goes on, and the process that writes it."""

    pid: int
    start_ticks: int
    """When the process started, so that another of its number is not taken for it."""
    path: str
    """File that it is written into, absolute."""
    since_s: float
    """When it began, in seconds since the epoch."""
    moved: str | None = None
    """What somebody else did to its file, and where it goes on; None where nothing."""


def refuse_second(folder: Path) -> None:
    """Return where nothing is recorded for the viewers of a runtime folder.

    Raises:
        OutputFileError: Another process does so already.
    """
    other = read_announced(folder)
    if other is not None:
        raise OutputFileError(
            f"process {other.pid} records already what viewers see here, into {show_path(Path(other.path))}"
        )


def announce(folder: Path, path: Path, since_s: float, moved: str | None = None) -> None:
    """Tell the viewers of a runtime folder that this process records for them.

    Args:
        since_s: When it began, in seconds since the epoch.
        moved: What somebody else did to its file.
    """
    ticks = read_start_ticks(os.getpid()) or 0
    note = RecorderNote(os.getpid(), ticks, str(path.absolute()), since_s, moved)
    with replacing(folder / NOTE_NAME) as stream:
        stream.write(msgspec.json.encode(note))


def withdraw(folder: Path) -> None:
    """Take the note of this process away."""
    note = _read(folder)
    if note is not None and note.pid == os.getpid():
        with suppress(OSError):
            (folder / NOTE_NAME).unlink()


def read_announced(folder: Path) -> RecorderNote | None:
    """Return what is recorded for the viewers of a runtime folder; None where nothing is."""
    note = _read(folder)
    return note if note is not None and is_running(note.pid, note.start_ticks) else None


def is_running(pid: int, start_ticks: int | None) -> bool:
    """Return whether a process of this number and start runs; one that waits for its parent does not."""
    if start_ticks is None or read_start_ticks(pid) != start_ticks:
        return False
    try:
        read_status(pid)
    except UsageError:
        return False
    return True


def _read(folder: Path) -> RecorderNote | None:
    try:
        with (folder / NOTE_NAME).open("rb") as file:
            return msgspec.json.decode(file.read(_MOST_BYTES), type=RecorderNote)
    except (OSError, ValueError):
        return None
