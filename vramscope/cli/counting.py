"""How many of a known number are done, as a bar on stderr: written over in a terminal, else a line each."""

import shutil
import sys
import time
from contextlib import suppress
from types import TracebackType

QUIET_S = 1.0
"""What is over by then says nothing, unless it is eager."""
_EVERY_S = 0.1
_BAR_CELLS = 24
_CLEAR = "\r\x1b[K"


class CountedProgress:
    """Tells how far one verb is; to be entered, and gone when it is left.

    Args:
        program: What the line begins with.
        what: What is counted, such as `figures drawn`.
        is_eager: Tell of every one from the first on, also where nobody watches.
    """

    def __init__(self, program: str, what: str, *, is_eager: bool = False) -> None:
        self._program = program
        self._what = what
        self._is_eager = is_eager
        self._is_terminal = sys.stderr.isatty()
        self._due_s = time.monotonic() + (0.0 if is_eager else QUIET_S)
        self._is_shown = False

    def __enter__(self) -> "CountedProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_shown:
            _write(_CLEAR)

    def show(self, done: int, total: int) -> None:
        """Tell how many are done, when that is due.

        Args:
            done: How many.
            total: Of how many.
        """
        now_s = time.monotonic()
        if self._is_terminal:
            if now_s < self._due_s and not self._is_eager:
                return
            self._due_s = now_s + _EVERY_S
            columns = shutil.get_terminal_size().columns
            _write(f"{_CLEAR}{self._describe(done, total)[: max(1, columns - 1)]}")
            self._is_shown = True
        elif self._is_eager and done:
            _write(f"{self._describe(done, total)}\n")

    def _describe(self, done: int, total: int) -> str:
        filled = _BAR_CELLS * done // total if total else _BAR_CELLS
        bar = "#" * filled + "." * (_BAR_CELLS - filled)
        return f"{self._program}: [{bar}] {done:,} of {total:,} {self._what}"


def _write(text: str) -> None:
    with suppress(OSError):  # nobody reads it
        sys.stderr.write(text)
        sys.stderr.flush()
