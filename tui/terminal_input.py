"""Reading keys without waking up when there are none: Textual's own reader looks ten times a second."""

import codecs
import os
import select
import threading
from collections.abc import Callable

from textual._xterm_parser import XTermParser
from textual.message import Message

READ_BYTES = 4096
TICK_MS = 100
"""How soon a lone escape is taken for the key and not for the beginning of a sequence."""
QUIET_TICKS = 5
"""After so many ticks without input nothing that was read is still waiting for the rest of it."""


class WakingEvent(threading.Event):
    """An event that a thread waiting in poll(2) notices too, through a descriptor."""

    def __init__(self) -> None:
        super().__init__()
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def set(self) -> None:
        """Set the event and wake who waits for the descriptor."""
        super().set()
        os.eventfd_write(self.descriptor, 1)

    def clear(self) -> None:
        """Clear the event, and the descriptor with it."""
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
    """Read keys and other reports of a terminal until the event is set or the terminal is gone.

    Args:
        descriptor: The terminal.
        exit_event: Ends the reading.
        on_message: Called with every key, click and report.
        is_debug: Whether the parser notes what it reads.
    """
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
