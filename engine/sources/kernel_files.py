"""Small files of /proc, /sys and control groups: the beginning as text or as a number, None without one."""

import os
from collections.abc import Callable
from pathlib import Path

# Longest number that any of these files may hold, in digits.
_MOST_DIGITS = 20
_MOST_BYTES = 4096
_NEWLINE, _ZERO, _NINE = b"\n09"


def list_names(folder: str | Path) -> list[str]:
    """Return the names in a folder; none if there is no such folder."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return []


def read_bytes(path: str | Path, most_bytes: int = _MOST_BYTES) -> bytes | None:
    """Return the beginning of a file; a file object would cost three times as much."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, most_bytes)
    except OSError:  # a process or device that it describes ended in between
        return None
    finally:
        os.close(descriptor)


def read_text(path: str | Path, most_bytes: int = _MOST_BYTES) -> str | None:
    """Return the beginning of a file without the blanks around it; None also if that is empty."""
    data = read_bytes(path, most_bytes)
    return None if data is None else data.decode("utf-8", errors="replace").strip() or None


def parse_number(data: bytes | None) -> int | None:
    """Return a decimal number; None for anything else, such as the `max` of a control group."""
    text = (data or b"").strip()
    return int(text) if text.isdigit() and len(text) <= _MOST_DIGITS else None


class KeptFile:
    """Reads a file of /proc or of a control group through one open descriptor, again on every call.

    A control group that was removed refuses to be read; the file is opened again then, and is absent if it
    still cannot be read.

    Args:
        most_bytes: How much of its beginning to read.
    """

    def __init__(self, path: str, most_bytes: int = 4096) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._descriptor: int | None = None

    def read(self) -> bytes | None:
        """Return the file's beginning as it is now; None if it cannot be read."""
        if self._descriptor is not None:
            try:
                return os.pread(self._descriptor, self._most_bytes, 0)
            except OSError:
                self.close()
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._descriptor, self._most_bytes, 0)
        except OSError:
            self.close()
            return None

    def prepare_read(self, buffer: memoryview) -> Callable[[], int]:
        """Return a call that reads a number into a buffer, as text that a newline ends; 0 if there is one.

        It opens no file: it fails until `read` has been called, and again after `close`.
        """
        room = [buffer[:-1]]

        def read_number() -> int:
            descriptor = self._descriptor
            if descriptor is None:
                return 1
            try:
                count = os.preadv(descriptor, room, 0)
            except OSError:
                return 1
            buffer[count] = _NEWLINE
            return 0 if _ZERO <= buffer[0] <= _NINE else 1

        return read_number

    def close(self) -> None:
        """The next reading opens the file again."""
        descriptor = self._descriptor
        self._descriptor = None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class NumberFile:
    """A file with one decimal number, read again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = KeptFile(str(path), 64)

    def read(self) -> int | None:
        """Return the number; None if the file is absent, empty or holds anything else."""
        return parse_number(self._file.read())

    def prepare_read(self, buffer: memoryview) -> Callable[[], int]:
        """As of `KeptFile`."""
        return self._file.prepare_read(buffer)

    def close(self) -> None:
        """The next reading opens the file again."""
        self._file.close()
