"""A terminal without a screen: runs a program in a pty, keeps every byte with its time, presses keys."""

import fcntl
import os
import pty
import re
import signal
import struct
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P_^][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B]|[=>78cDEHM])"
)
_CHUNK_BYTES = 65536


def strip_escapes(written: bytes) -> str:
    """Return what a program wrote without its escape sequences (ECMA-48)."""
    return _ESCAPES.sub(b"", written).decode(errors="replace")


class Terminal:
    """A pty with a reader thread; time is the monotonic clock's, from the moment before exec."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], columns: int = 200, rows: int = 70
    ) -> None:
        self.started_s = time.monotonic()
        self._chunks: list[tuple[float, bytes]] = []
        self._arrived = threading.Condition()
        self._ended = False
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            _become(command, env, columns, rows)
        # The child may have looked already; a change of size is what a terminal may do at any time.
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()

    def __enter__(self) -> "Terminal":
        """Return the terminal, to be closed at the end of a with block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the terminal."""
        self.close()

    @property
    def bytes_written(self) -> int:
        """How many bytes the program has written so far."""
        with self._arrived:
            return sum(len(chunk) for _, chunk in self._chunks)

    @property
    def chunks(self) -> list[tuple[float, bytes]]:
        """What the program has written so far, with the moment at which each piece came."""
        with self._arrived:
            return list(self._chunks)

    def text(self, since: int = 0) -> str:
        """Return what was written after the first `since` bytes, escape sequences removed."""
        with self._arrived:
            return strip_escapes(b"".join(chunk for _, chunk in self._chunks)[since:])

    def press(self, keys: str) -> float:
        """Type keys and return when."""
        pressed_s = time.monotonic()
        os.write(self._fd, keys.encode())
        return pressed_s

    def wait_for(self, pattern: str, timeout_s: float, since: int = 0) -> float | None:
        """Return when a pattern was first complete in what was written after `since` bytes, or None."""
        wanted = re.compile(pattern)
        deadline_s = time.monotonic() + timeout_s
        with self._arrived:
            while True:
                written = b"".join(chunk for _, chunk in self._chunks)[since:]
                if wanted.search(strip_escapes(written)):
                    return self._chunks[-1][0]
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or self._ended:
                    return None
                self._arrived.wait(left_s)

    def wait_for_end(self, timeout_s: float) -> float | None:
        """Return when the program had ended, or None when it still ran after the timeout."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            pid, _ = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return time.monotonic()
            time.sleep(0.002)
        return None

    def close(self) -> None:
        """End the program, by force where it must be, and close the terminal."""
        if self.pid:
            for number in (signal.SIGTERM, signal.SIGKILL):
                os.kill(self.pid, number)
                if self.wait_for_end(2.0) is not None:
                    break
        os.close(self._fd)

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._fd, _CHUNK_BYTES)
            except OSError:
                # Linux answers EIO once the last program on the other side is gone.
                chunk = b""
            with self._arrived:
                if chunk:
                    self._chunks.append((time.monotonic(), chunk))
                else:
                    self._ended = True
                self._arrived.notify_all()
            if not chunk:
                return


def _become(command: Sequence[str], env: Mapping[str, str], columns: int, rows: int) -> None:
    """Replace the forked child by the program; on failure say so where the reader sees it."""
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    try:
        os.execvpe(command[0], list(command), dict(env))  # noqa: S606 - the program is what is measured
    except OSError as error:
        os.write(2, f"{command[0]}: {error}\n".encode())
        os._exit(127)
