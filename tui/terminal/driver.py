"""The driver: standard output that never blocks the application, and notice of a closed terminal."""

import codecs
import contextlib
import io
import os
import select
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from textual._ansi_sequences import SYNC_END, SYNC_START
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from .opening import ENTER_SCREEN

if TYPE_CHECKING:
    from textual.app import App

    from .opening import Opening


# Pending output of a terminal that does not read; beyond this, frames are dropped.
MAX_PENDING_BYTES = 1 << 20
# Pending output from which the terminal counts as not reading.
BLOCKED_BYTES = 1 << 16
DRAIN_PATIENCE_S = 0.3


class TerminalOutput:
    """A file for the driver to write to, which never waits.

    What the terminal takes at once is written at once; a thread writes what it does not take yet.
    """

    def __init__(
        self, descriptor: int, encoding: str, on_drained: Callable[[], object], on_gone: Callable[[], object]
    ) -> None:
        """Start the thread.

        Args:
            encoding: Of the terminal; characters it lacks are written as `?`.
            on_drained: Called when everything is written after output was dropped.
            on_gone: Called when nothing can be written any more.
        """
        self.encoding = encoding
        self._descriptor = descriptor
        self._on_drained = on_drained
        self._on_gone = on_gone
        self._unwaiting = _open_unwaiting(descriptor)
        self._pending = bytearray()
        # The thread has something to write; until it has, nobody else may.
        self._is_pumping = False
        self._has_lost = self._is_gone = self._is_closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._pump, name="terminal-output", daemon=True)
        self._thread.start()

    @property
    def is_blocked(self) -> bool:
        """Whether the terminal does not read what it is sent."""
        return len(self._pending) > BLOCKED_BYTES

    def write(self, text: str) -> int:
        """Queue text; it is dropped whole where too much is pending already."""
        data = text.encode(self.encoding, "replace")
        with self._changed:
            if not self._is_gone:
                if len(self._pending) + len(data) > MAX_PENDING_BYTES:
                    self._has_lost = True
                else:
                    self._pending += data
        return len(text)

    def flush(self) -> None:
        """Write what is queued, as far as the terminal takes it; wake the thread for the rest."""
        with self._changed:
            if self._pending and not self._is_pumping and self._unwaiting is not None:
                # A terminal that is gone is left to the thread, which reports it.
                with contextlib.suppress(OSError):
                    del self._pending[: os.write(self._unwaiting, self._pending)]
            if self._pending and not self._is_pumping:
                self._is_pumping = True
                self._changed.notify_all()

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def close(self) -> None:
        """Write the rest, waiting at most a moment for the terminal to read it."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(DRAIN_PATIENCE_S)
        with self._changed:
            if self._unwaiting is not None:
                os.close(self._unwaiting)
                self._unwaiting = None

    def _pump(self) -> None:
        try:
            while data := self._next():
                self._write_all(data)
                self._note_drained()
        except OSError:
            with self._changed:
                self._is_gone = True
                self._is_pumping = False
                self._pending.clear()
            self._on_gone()

    def _next(self) -> bytes:
        """Wait for output that was left to this thread and return it; empty at the end."""
        with self._changed:
            self._is_pumping = bool(self._pending) and (self._is_pumping or self._is_closing)
            self._changed.wait_for(lambda: self._is_pumping or self._is_closing)
            return bytes(self._pending)

    def _write_all(self, data: bytes) -> None:
        """Write, and only then make room: pending bytes stay counted."""
        view = memoryview(data)
        while view:
            written = os.write(self._descriptor, view)
            view = view[written:]
            with self._changed:
                del self._pending[:written]

    def _note_drained(self) -> None:
        with self._changed:
            has_recovered = self._has_lost and not self._pending
            if has_recovered:
                self._has_lost = False
        if has_recovered:
            self._on_drained()


def _open_unwaiting(descriptor: int) -> int | None:
    """Open a terminal again to write without waiting; None where that is not allowed.

    The mode belongs to what was opened, which the shell and other programs share.
    """
    try:
        return os.open(
            f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        )
    except OSError:
        return None


@runtime_checkable
class HasOpening(Protocol):
    """An application before which something else drew on the terminal; None where nothing did."""

    opening: "Opening | None"


class TerminalDriver(LinuxDriver):
    """Draws on standard output, so that standard error stays free for diagnostics."""

    def __init__(
        self,
        app: "App[object]",
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._is_watching = False
        self._output: TerminalOutput | None = None
        # Between the two marks of a frame, which is written whole.
        self._is_framing = False
        # Whether the alternate screen shows a first frame: some terminals clear it when it is entered again.
        self._has_screen = False
        self.exit_event: WakingEvent = WakingEvent()

    @property
    def is_blocked(self) -> bool:
        return self._output is not None and self._output.is_blocked

    def start_application_mode(self) -> None:
        stream = sys.__stdout__
        encoding = (stream.encoding if stream else None) or "ascii"
        self._output = TerminalOutput(
            1,
            encoding,
            lambda: self._app.post_message(TerminalDrained()),
            lambda: self._app.post_message(TerminalGone()),
        )
        self._file = cast("io.TextIOWrapper", self._output)
        opening = self._app.opening if isinstance(self._app, HasOpening) else None
        if opening is None or opening.is_taken_over:
            super().start_application_mode()  # type: ignore[no-untyped-call]  # untyped in Textual
        else:
            opening.take_over()
            self._has_screen = opening.is_drawn
            super().start_application_mode()  # type: ignore[no-untyped-call]  # untyped in Textual
            self._has_screen = False
            self.attrs_before = opening.attributes
        if not self._is_watching:
            self._is_watching = True
            threading.Thread(target=self._watch_hangup, name="terminal-hangup", daemon=True).start()

    def write(self, data: str) -> None:
        """Write without a detour over Textual's thread, whose hand-over costs more than the writing."""
        output = self._output
        if output is None or (self._has_screen and data == ENTER_SCREEN):
            return
        if data == SYNC_START:
            self._is_framing = True
        elif data == SYNC_END:
            self._is_framing = False
        output.write(data)
        if not self._is_framing:
            output.flush()

    def run_input_thread(self) -> None:
        """Read input until the application leaves the terminal."""
        with contextlib.suppress(OSError):  # the terminal is gone; the other thread reports it
            read_input(self.fileno, self.exit_event, self.process_message, is_debug=self._debug)

    def close(self) -> None:
        super().close()
        if self._output is not None:
            self._output.close()

    def _watch_hangup(self) -> None:
        """Wait, without waking, until the terminal hangs up."""
        poller = select.poll()
        poller.register(self.fileno, 0)
        with contextlib.suppress(OSError):
            poller.poll()
        self._app.post_message(TerminalGone())


class TerminalDrained(Message):
    """The terminal reads again, after output to it was lost."""


class TerminalGone(Message):
    """The terminal was closed."""


READ_BYTES = 4096
# Time after which a lone escape counts as the key and not as the beginning of a sequence.
TICK_MS = 100
# After so many ticks without input, nothing that was read is still waiting for its rest.
QUIET_TICKS = 5


class WakingEvent(threading.Event):
    """An event that also wakes a thread waiting in poll(2), through a descriptor."""

    def __init__(self) -> None:
        super().__init__()
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def set(self) -> None:
        super().set()
        os.eventfd_write(self.descriptor, 1)

    def clear(self) -> None:
        super().clear()
        try:
            os.eventfd_read(self.descriptor)
        except BlockingIOError:
            return  # it was not set


def read_input(
    descriptor: int,
    exit_event: WakingEvent,
    on_message: Callable[[Message], object],
    *,
    is_debug: bool = False,
) -> None:
    """Read keys and other reports of a terminal until the event is set or the terminal is gone."""
    parser = XTermParser(is_debug)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    poller.register(exit_event.descriptor, select.POLLIN)
    ticks = QUIET_TICKS
    while not exit_event.is_set():
        ready = dict(poller.poll(TICK_MS if ticks < QUIET_TICKS else None))
        ticks += 1
        if descriptor in ready:
            data = os.read(descriptor, READ_BYTES)
            if not data:
                return
            ticks = 0
            # Half a character decodes to nothing, and nothing means the end to the parser.
            if text := decoder.decode(data):
                for message in parser.feed(text):
                    on_message(message)
        for message in parser.tick():
            on_message(message)
