"""Stand between a program and its terminal and count what passes.

python -m benchmarks.measure.tap MARK COUNT -- CMD

The program carries MARK in its environment, this process does not. The file COUNT holds the bytes that
the program has written so far, renewed ten times a second.
"""

import fcntl
import os
import pty
import select
import signal
import sys
import termios
import time
import tty
from pathlib import Path

from .processes import MARK

_CHUNK_BYTES = 65536
_RENEW_S = 0.1


def main(mark: str, count: str, command: list[str]) -> int:
    """Run a command in a pty of this terminal's size, copy both ways, keep the count."""
    size = _read_size(0)
    pid, inner = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, size)
        os.environ[MARK] = mark
        os.chdir(Path(count).parent)
        os.execvp(command[0], command)  # noqa: S606 - the program is what is measured
    signal.signal(signal.SIGWINCH, lambda *_: fcntl.ioctl(inner, termios.TIOCSWINSZ, _read_size(0)))
    tty.setraw(0)
    _pass_bytes(inner, Path(count))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _pass_bytes(inner: int, count: Path) -> None:
    """Copy until the program is gone; the count is replaced whole, so a reader never sees half of it."""
    written = 0
    renewed_s = 0.0
    while True:
        ready, _, _ = select.select([inner, 0], [], [], _RENEW_S)
        try:
            if 0 in ready:
                os.write(inner, os.read(0, _CHUNK_BYTES))
            if inner in ready:
                chunk = os.read(inner, _CHUNK_BYTES)
                written += len(chunk)
                os.write(1, chunk)
        except OSError:
            # Linux answers EIO once the last program on the other side is gone.
            return
        if time.monotonic() - renewed_s >= _RENEW_S:
            renewed_s = time.monotonic()
            partial = count.with_suffix(".partial")
            partial.write_text(f"{written}\n")
            partial.replace(count)


def _read_size(terminal: int) -> bytes:
    return fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[sys.argv.index("--") + 1 :]))
