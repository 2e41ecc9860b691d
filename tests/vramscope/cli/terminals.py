"""A terminal of its own for a command, as a person's shell gives it one."""

import fcntl
import os
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from ...waiting import wait_until


class TerminalRun:
    """A command whose input, output and controlling terminal is a new pseudoterminal."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._ours, theirs = os.openpty()
        os.set_blocking(self._ours, False)
        self.shown = b""
        self.attributes_before = self.attributes
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one thread only
        )
        os.close(theirs)

    def __enter__(self) -> "TerminalRun":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    @property
    def attributes(self) -> list[object]:
        """How the terminal treats keys and output, see termios(3)."""
        return termios.tcgetattr(self._ours)

    def resize(self, width: int, height: int) -> None:
        """Give the terminal another size, as a person does who drags its window."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._ours, keys)

    def wait_for(self, text: bytes, *, after: bytes = b"") -> None:
        """Return once a text was shown behind another."""
        wait_until(lambda: self._shows(text, after), 30.0, f"{text!r} on the terminal")

    def wait_until_it_reads(self) -> None:
        """Return once the main thread sleeps, as it does from a prompt to the next key.

        Python loses an interrupt that comes after the prompt was written and before it waits for keys.
        """
        status = Path(f"/proc/{self.process.pid}/stat")
        wait_until(
            lambda: status.read_text().rpartition(") ")[2].startswith("S"), 30.0, "a prompt that reads"
        )

    def wait_for_end(self) -> int:
        """Return the exit code of the command, once all it wrote is in `shown`."""
        wait_until(lambda: (self._read(), self.process.poll() is not None)[1], 30.0, "the end")
        self._read()
        return self.process.returncode

    def _shows(self, text: bytes, after: bytes) -> bool:
        shown = self._read()
        return shown.find(text, max(shown.find(after), 0)) >= 0 and after in shown

    def _read(self) -> bytes:
        try:
            while data := os.read(self._ours, 65536):
                self.shown += data
        except (BlockingIOError, OSError):  # EIO once nobody holds the other end
            pass
        return self.shown
