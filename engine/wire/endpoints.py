"""Where a hub is reached: its lock and its sockets."""

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path

import msgspec

from ..errors import HubTakenError, RuntimeFolderError
from ..paths import SOCKET_PATH_LIMIT_BYTES, explain_unwritable
from ..text import make_printable

LOCK_NAME = "hub.lock"
MOST_COMMAND_CHARS = 120

# `struct flock` of 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")


def _flock(kind: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)


class HubLock:
    """An open-file-description lock on `hub.lock`; the file has the pid of its owner."""

    def __init__(self, runtime_dir: Path) -> None:
        self.path = runtime_dir / LOCK_NAME
        self._name = str(self.path)
        self._fd: int | None = None

    def acquire(self) -> None:
        """Lock the folder for this process.

        Raises:
            HubTakenError: Another process has it; the text names it.
            RuntimeFolderError: Its file cannot be made; the text says why.
        """
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise RuntimeFolderError(explain_unwritable(self.path, error)) from error
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK))
        except BlockingIOError:
            os.close(fd)
            raise HubTakenError(
                f"an agent already serves {self.path.parent}: {describe_holder(self.path.parent)} has "
                f"locked {self.path.name}; watch it with `vramscope`, or end it first"
            ) from None
        with suppress(
            OSError
        ):  # on a disk that is full the lock holds all the same, and nobody learns the pid
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
        self._fd = fd

    def is_current(self) -> bool:
        """Return whether the locked file is still the one in the folder: it may have been removed."""
        try:
            found = os.lstat(self._name)
        except OSError:
            return False
        own = None if self._fd is None else os.fstat(self._fd)
        return own is not None and (own.st_dev, own.st_ino) == (found.st_dev, found.st_ino)

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def is_hub_alive(runtime_dir: Path) -> bool:
    """Return whether a process serves this folder; only reads, and cannot disturb one that is starting."""
    try:
        fd = os.open(runtime_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _flock(fcntl.F_RDLCK))
        return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
    finally:
        os.close(fd)


def holder_pid(runtime_dir: Path) -> int | None:
    """Return the pid that the lock's owner wrote, or None if it is unknown."""
    try:
        return int((runtime_dir / LOCK_NAME).read_text())
    except (OSError, ValueError):
        return None


def describe_holder(runtime_dir: Path) -> str:
    """Name the process that has the lock, with its command, as far as that is known."""
    pid = holder_pid(runtime_dir)
    return "another process" if pid is None else f"process {pid} ({_command_of(pid)})"


def _command_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "command unknown"
    text = " ".join(word.decode(errors="replace") for word in words if word)
    return make_printable(text, MOST_COMMAND_CHARS) or "command unknown"


# ZeroMQ sockets; probes use a plain socket in the same folder (`engine/ranks/messages.py`).
SOCKET_NAMES = ("stream.sock", "reports.sock", "control.sock")


class Endpoints(msgspec.Struct, frozen=True):
    # XPUB: samples, findings and the hub's state.
    stream: str
    # PULL: reports of workers.
    reports: str
    # ROUTER: history and other requests.
    control: str


def endpoints_of(runtime_dir: Path) -> Endpoints:
    """Return the addresses of the hub that serves a runtime folder.

    Raises:
        RuntimeFolderError: The path is too long for a socket.
    """
    paths = [runtime_dir / name for name in SOCKET_NAMES]
    longest = max(len(str(path).encode()) for path in paths)
    if longest > SOCKET_PATH_LIMIT_BYTES:
        raise RuntimeFolderError(
            f"the path of the runtime folder {runtime_dir} is too long for a socket ({longest} bytes, "
            f"at most {SOCKET_PATH_LIMIT_BYTES}): set VRAMSCOPE_RUNTIME_DIR to a shorter one"
        )
    return Endpoints(*(f"ipc://{path}" for path in paths))
