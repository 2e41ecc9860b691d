"""Opening a view: check the terminal, run the application, end in time, restore the terminal."""

import gc
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...engine.clock import SystemClock
from ...engine.settings import Settings
from ...engine.viewer.feed import Feed
from ..terminal.abilities import check_terminal
from .process_memory import share_one_heap

if TYPE_CHECKING:
    from ...engine.jobs.background import ViewerRecording
    from ..screens.terminal_app import TerminalApp
    from ..terminal.opening import Attributes, Opening


# From the request to end until the process is ended even if something hangs.
EXIT_PATIENCE_S = 0.9

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

# Reports of mouse, paste, size and focus off, line wrap on, keyboard as before, main screen, cursor on (xterm
# control sequences).
_MODES_OFF = b"".join(b"\x1b[?%dl" % mode for mode in (1000, 1003, 1006, 1015, 1016, 2004, 2048, 1004))
_RESTORE = _MODES_OFF + b"\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h"


class Shutdown:
    """Ends an application on a signal, and the process if the application does not end in time."""

    def __init__(
        self,
        request_exit: Callable[[], object],
        patience_s: float = EXIT_PATIENCE_S,
        attributes: "Attributes | None" = None,
    ) -> None:
        """Save the state of the terminal.

        Args:
            request_exit: Asks the application to end, safe from any thread.
            attributes: Of the terminal as it was found; None if nothing has changed it.
        """
        self._request_exit = request_exit
        self._patience_s = patience_s
        self._timer: threading.Timer | None = None
        self._handlers: dict[int, object] = {}
        self._attributes = attributes or _terminal_attributes()
        self.signal_number: int | None = None

    def install(self) -> None:
        """Handle the signals that end a program; only the main thread may."""
        for number in ENDING_SIGNALS:
            self._handlers[number] = signal.signal(number, self._on_signal)

    def uninstall(self) -> None:
        """Restore the signal handlers, and cancel the countdown."""
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


def _terminal_attributes() -> "Attributes | None":
    try:
        return termios.tcgetattr(0)
    except (termios.error, OSError):
        return None


def restore_terminal(attributes: "Attributes | None") -> None:
    """Restore the terminal without waiting for it."""
    try:
        os.set_blocking(1, False)
        os.write(1, _RESTORE)
        os.set_blocking(1, True)
        if attributes is not None:
            termios.tcsetattr(0, termios.TCSANOW, attributes)
    except (termios.error, OSError) as error:
        # The terminal may be gone; only the log of the parent process is left.
        sys.stderr.write(f"vramscope: the terminal could not be restored: {error}\n")


# Thresholds of the garbage collector by generation.
COLLECTED_AFTER = (20_000, 20, 20)


Example = Literal["demo", "replay"]


class Examples(NamedTuple):
    """What a node without a GPU offers instead."""

    # Why the demo cannot run here; None where it can.
    demo_refusal: str | None
    # Called before the view ends; its caller opens the example.
    choose: Callable[[Example], None]


def run_app(
    feed: Feed,
    *,
    settings: Settings,
    save_settings: Callable[[Mapping[str, object]], Path] | None = None,
    local_node: str | None = None,
    duration_s: float | None = None,
    is_replay: bool = False,
    recording: "ViewerRecording | None" = None,
    readers: Mapping[str, Callable[..., object]] | None = None,
    examples: "Examples | None" = None,
    opening: "Opening | None" = None,
) -> int:
    """Show a feed until the user quits, and return the exit code: 0, or 128 and the signal that ended it.

    Args:
        feed: Source of snapshots; started and stopped here.
        save_settings: Writes settings by name and returns the file; None where they cannot be saved.
        local_node: Name of the node whose processes can be signalled from here; None for any.
        duration_s: Seconds after which the view ends by itself; None for never.
        is_replay: Whether the feed is a `ReplayFeed`, which keys control.
        recording: Begins and ends recordings of the feed; None where none can be made.
        readers: What reads the words typed for a tool, by the tool's room.
        examples: What is offered while the node has no GPU; None for nothing.
        opening: Where a first frame is drawn already; None for nothing.

    Raises:
        UsageError: Nothing can be drawn here.
    """
    from ..app import VramscopeApp
    from ..live.process_signals import SignalPolicy

    abilities = check_terminal(settings)
    attributes = None if opening is None else opening.attributes
    shutdown = Shutdown(lambda: app.call_later(app.exit), attributes=attributes)
    app = VramscopeApp(
        feed,
        settings=settings,
        abilities=abilities,
        clock=SystemClock(),
        signal_policy=SignalPolicy(settings.read_only, local_node, is_replay),
        save_settings=save_settings,
        recording=recording,
        on_exit_asked=shutdown.start_countdown,
        opening=opening,
    )
    for room, read in (readers or {}).items():
        app.tools[room].read = read
    app.examples = examples
    return run_to_end(app, shutdown, settings, duration_s=duration_s)


def _relax_garbage_collector() -> None:
    """Let the garbage collector run less often: what is loaded stays, and samples hold no reference cycles.

    With its defaults it takes a fifth of the CPU time of a view of a thousand nodes.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


def run_to_end(
    app: "TerminalApp", shutdown: "Shutdown", settings: Settings, *, duration_s: float | None = None
) -> int:
    """Run an application to its end and return the exit code.

    Args:
        duration_s: Seconds after which it ends by itself; None for never.

    Raises:
        Exception: What the application did not expect; its terminal is restored, and nothing was printed.
    """
    # Textual would print a page of local variables; the caller reports the error.
    app.error_console.quiet = True
    has_mouse = app.abilities.has_mouse if settings.mouse is None else settings.mouse
    timer = threading.Timer(duration_s or 0.0, lambda: app.call_later(app.action_quit))
    timer.daemon = True
    if duration_s is not None:
        timer.start()
    shutdown.install()
    share_one_heap()
    _relax_garbage_collector()
    try:
        app.run(mouse=has_mouse)
    finally:
        timer.cancel()
        shutdown.uninstall()
    if app._exception is not None:  # Textual keeps it there and offers no other way
        raise app._exception
    return shutdown.exit_code or app.return_code or 0
