"""How far the reading of a file is, on stderr: a line written over in a terminal, else one a minute."""

import shutil
import sys
import time
from contextlib import suppress

QUIET_S = 1.0
"""What is over by then says nothing."""
_TERMINAL_EVERY_S, _FILE_EVERY_S = 0.5, 60.0
_CLEAR = "\r\x1b[K"


class FileProgress:
    """Tells how far one verb is.

    Args:
        program: What the line begins with.
    """

    def __init__(self, program: str) -> None:
        self._program = program
        self._is_terminal = sys.stderr.isatty()
        self._every_s = _TERMINAL_EVERY_S if self._is_terminal else _FILE_EVERY_S
        self._due_s = time.monotonic() + QUIET_S
        self._is_shown = False

    def show(self, share: float | None, samples: int | None = None) -> None:
        """Tell how far it is, when that is due.

        Args:
            share: Of all that is to be read, from 0 to 1; None where nobody knows.
            samples: Read so far; None where they are counted later.
        """
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._every_s
        told = [] if share is None else [f"{100 * share:.0f} % read"]
        told += [] if samples is None else [f"{samples:,} samples"]
        line = f"{self._program}: {', '.join(told)}"
        if self._is_terminal:
            columns = shutil.get_terminal_size().columns
            _write(f"{_CLEAR}{line[: max(1, columns - 1)]}")
            self._is_shown = True
        else:
            _write(f"{line}\n")

    def clear(self) -> None:
        """Take the line away, so that something else can be said."""
        if self._is_shown:
            _write(_CLEAR)
            self._is_shown = False


def _write(text: str) -> None:
    with suppress(OSError):  # nobody reads it
        sys.stderr.write(text)
        sys.stderr.flush()
