"""Progress of a verb in one line on stderr: overwritten in a terminal, otherwise a new line every minute."""

import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from vramscope.engine.text import make_printable
from vramscope.engine.units import format_age

from .emit import write_over

# Work that takes less shows no progress in a terminal.
QUIET_S = 1.0
_TERMINAL_EVERY_S = 0.5
_FILE_EVERY_S = 60.0
_TICK_S = 1.0
_BAR_CELLS = 24


class ProgressLine:
    """Shows the progress of a verb; quiet at first, and gone when it is cleared or its context ends.

    As a context it also counts the seconds in a terminal while nothing is reported, so that work without a
    known end does not look dead.
    """

    def __init__(self, program: str, what: str = "", *, is_eager: bool = False) -> None:
        self._program = program
        self._what = what
        self._is_eager = is_eager
        self._is_terminal = sys.stderr.isatty()
        self._started_s = time.monotonic()
        self._due_s = self._started_s + (QUIET_S if self._is_terminal else _FILE_EVERY_S)
        self._text = "working"
        self._is_shown = False
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> "ProgressLine":
        if self._is_terminal:
            self._ticker = threading.Thread(target=self._tick, name="progress-line", daemon=True)
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._ticker is not None:
            self._ticker.join()
        self.clear()

    def show(self, describe: Callable[[], str]) -> None:
        """Show a text when one is due; `describe` is called only then."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + (_TERMINAL_EVERY_S if self._is_terminal else _FILE_EVERY_S)
        self._text = describe()
        self._write(self._text)

    def show_share(self, share: float | None, samples: int | None = None) -> None:
        """Show how much was read, when that is due.

        Args:
            share: Share of the input read so far, 0 to 1; None where it is unknown.
            samples: Samples read so far; None where they are counted later.
        """
        read = [] if share is None else [f"{100 * share:.0f} % read"]
        self.show(lambda: ", ".join(read + ([] if samples is None else [f"{samples:,} samples"])))

    def show_count(self, done: int, total: int, detail: str = "") -> None:
        """Show how many of a known number are done, when that is due.

        Args:
            detail: Text in place of the bar.
        """
        filled = _BAR_CELLS * done // total if total else _BAR_CELLS
        bar = "#" * filled + "." * (_BAR_CELLS - filled)
        count = f"{done:,} of {total:,} {self._what}"
        text = f"{count}, {detail}" if detail else f"[{bar}] {count}"
        if self._is_eager and (done or self._is_terminal):
            self._due_s = 0.0
        self.show(lambda: text)

    def clear(self) -> None:
        """Clear the line, so that something else can be printed."""
        with self._lock:
            if self._is_shown:
                write_over("")
                self._is_shown = False

    def _tick(self) -> None:
        while not self._ended.wait(_TICK_S):
            self._write(f"{self._text}, {format_age(time.monotonic() - self._started_s)}")

    def _write(self, text: str) -> None:
        line = f"{self._program}: {text}"
        with self._lock:
            if self._is_terminal:
                columns = shutil.get_terminal_size().columns
                write_over(line[: max(1, columns - 1)])
                self._is_shown = True
            else:
                with suppress(OSError):  # nobody reads it
                    print(make_printable(line), file=sys.stderr, flush=True)
