"""Ending in time: signals end the view as `q` does, and nothing that hangs can hold it up."""

import os
import signal
import sys
import termios
import threading
from collections.abc import Callable
from types import FrameType

EXIT_PATIENCE_S = 0.9
"""Seconds from the wish to end until the process is ended whatever hangs."""

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

_MODES_OFF = b"".join(b"\x1b[?%dl" % mode for mode in (1000, 1003, 1006, 1015, 1016, 2004, 2048, 1004))
_RESTORE = _MODES_OFF + b"\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h"
"""Reports of mouse, paste, size and focus off, line wrap on, keyboard as before, main screen, cursor on
(xterm control sequences)."""


class Shutdown:
    """Ends an application on a signal, and the process if the application does not end."""

    def __init__(self, request_exit: Callable[[], object], patience_s: float = EXIT_PATIENCE_S) -> None:
        """Remember how the terminal is now.

        Args:
            request_exit: Asks the application to end; safe from any thread.
            patience_s: Seconds it may take.
        """
        self._request_exit = request_exit
        self._patience_s = patience_s
        self._timer: threading.Timer | None = None
        self._handlers: dict[int, object] = {}
        self._attributes = _terminal_attributes()
        self.signal_number: int | None = None

    def install(self) -> None:
        """Take over the signals that end a program; only the main thread may."""
        for number in ENDING_SIGNALS:
            self._handlers[number] = signal.signal(number, self._on_signal)

    def uninstall(self) -> None:
        """Give the signals back, and call off the end."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() gave, it takes
        if self._timer is not None:
            self._timer.cancel()

    def start_countdown(self) -> None:
        """End the process unless `uninstall` is called in time."""
        if self._timer is None:
            self._timer = threading.Timer(self._patience_s, self._end_now)
            self._timer.daemon = True
            self._timer.start()

    @property
    def exit_code(self) -> int:
        """0, or 128 and the signal that ended the view."""
        return 0 if self.signal_number is None else 128 + self.signal_number

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.signal_number = number
        self.start_countdown()
        self._request_exit()

    def _end_now(self) -> None:
        restore_terminal(self._attributes)
        os._exit(self.exit_code)


def _terminal_attributes() -> "list[int | list[bytes | int]] | None":
    try:
        return termios.tcgetattr(0)
    except (termios.error, OSError):
        return None


def restore_terminal(attributes: "list[int | list[bytes | int]] | None") -> None:
    """Bring the terminal back without waiting for it."""
    try:
        os.set_blocking(1, False)
        os.write(1, _RESTORE)
        os.set_blocking(1, True)
        if attributes is not None:
            termios.tcsetattr(0, termios.TCSANOW, attributes)
    except (termios.error, OSError) as error:
        # The terminal may be gone; there is nobody left to tell but the log of whoever started us.
        sys.stderr.write(f"vramscope: the terminal could not be restored: {error}\n")
