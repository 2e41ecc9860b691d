"""The terminal from the command to the application: keys wait unseen, and a child draws the first frame.

Textual takes longer to load than a driver takes to answer. A child that is forked before the first thread
measures once and draws, so neither a driver that hangs nor the memory of its library is in this process. The
application ends the child before it writes to the terminal itself.
"""

import gc
import mmap
import os
import signal
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NamedTuple, NoReturn

# What `termios.tcgetattr` returns: flags, speeds, control characters.
Attributes = list[int | list[bytes | int]]

# Alternate screen and cursor (xterm control sequences).
ENTER_SCREEN = "\x1b[?1049h"
_BEGIN = f"{ENTER_SCREEN}\x1b[?25l"
# A sequence that was cut off is cancelled first.
_LEAVE = "\x18\x1b[m\x1b[?1049l\x1b[?25h"

# Signals that end a process which does not handle them; an interrupt becomes an exception.
_ENDING = (signal.SIGTERM, signal.SIGHUP)

# Room for what the child measured; only the part that is used becomes memory.
SHARED_BYTES = 1 << 22
# The child's progress, and the length of what it measured, before that.
_HEAD_BYTES = 5
_NOTHING, _MEASURED, _DRAWING, _DRAWN = range(4)

# With so few processors the child would get but a part of one while the application is loaded.
FEW_PROCESSORS = 2
# For so long the application is not loaded there unless the child is done; a driver may be slow to start.
WAITS_AT_MOST_S = 0.3
# A child that was killed is gone at once, but for a call that the kernel cannot break off.
REAPED_WITHIN_S = 0.2
LOOKS_EVERY_S = 0.002


class FirstFrame(NamedTuple):
    """What the child measured, and the escape sequences that draw it."""

    sample: bytes
    drawing: str


class Opening:
    """The terminal until the application has it, and afterwards as it was.

    Make it, and call `begin`, while the process has one thread.
    """

    def __init__(self) -> None:
        # As they were found, and as they are left.
        self.attributes: Attributes = termios.tcgetattr(0)
        # Whether the application has the terminal, or had it.
        self.is_taken_over = False
        self._shared = mmap.mmap(-1, SHARED_BYTES)
        self._child: int | None = None
        self._handlers: dict[int, object] = {}

    def begin(self, measure: Callable[[], FirstFrame | None]) -> None:
        """Let keys wait for the application, and start a child that draws the first frame.

        Returns at once, except where there are few processors: the frame goes first there.

        Args:
            measure: Called in the child; None where there is nothing to show.
        """
        for number in _ENDING:
            self._handlers[number] = signal.signal(number, self._on_signal)
        termios.tcsetattr(0, termios.TCSANOW, _let_keys_wait())
        with suppress(OSError):  # no process can be started: the application begins with an empty screen
            self._start_child(measure)

    def _start_child(self, measure: Callable[[], FirstFrame | None]) -> None:
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            self._draw(measure, parent)
        self._child = child
        if len(os.sched_getaffinity(0)) <= FEW_PROCESSORS:
            self._await_child(WAITS_AT_MOST_S)

    @property
    def is_drawn(self) -> bool:
        """Whether the first frame is on the alternate screen, complete."""
        return self._shared[0] == _DRAWN

    @property
    def sample(self) -> bytes | None:
        """What the child measured; None if it did not get that far."""
        if self._shared[0] == _NOTHING:
            return None
        length = int.from_bytes(self._shared[1:_HEAD_BYTES], "little")
        return self._shared[_HEAD_BYTES : _HEAD_BYTES + length]

    def take_over(self) -> None:
        """End the child, so that only the application writes from here on."""
        self._end_child()
        self.is_taken_over = True

    def end(self) -> None:
        """Leave the terminal as it was found; the application has left the screens it entered."""
        self._end_child()
        with suppress(OSError, termios.error):  # the terminal may be gone
            if not self.is_taken_over and self._shared[0] >= _DRAWING:
                # A child that was killed may not have entered it yet, and only what was entered can be left.
                os.write(1, (_LEAVE if self.is_drawn else f"\x18{ENTER_SCREEN}{_LEAVE}").encode())
            termios.tcsetattr(0, termios.TCSANOW, self.attributes)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() gave, it takes
        self._handlers.clear()

    def _draw(self, measure: Callable[[], FirstFrame | None], parent: int) -> NoReturn:
        """Measure and draw, and end this process: whatever goes wrong, the application shows it."""
        try:
            for number in self._handlers:
                signal.signal(number, signal.SIG_DFL)
            gc.disable()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            frame = measure()
            if frame is not None and len(frame.sample) <= SHARED_BYTES - _HEAD_BYTES:
                self._share(frame.sample)
                if os.getppid() == parent:
                    self._write(frame.drawing)
        finally:
            os._exit(0)

    def _share(self, sample: bytes) -> None:
        self._shared[_HEAD_BYTES : _HEAD_BYTES + len(sample)] = sample
        self._shared[1:_HEAD_BYTES] = len(sample).to_bytes(_HEAD_BYTES - 1, "little")
        self._shared[0] = _MEASURED

    def _write(self, drawing: str) -> None:
        data = memoryview((_BEGIN + drawing).encode())
        self._shared[0] = _DRAWING
        while data:
            data = data[os.write(1, data) :]
        self._shared[0] = _DRAWN

    def _end_child(self) -> None:
        if self._child is None:
            return
        with suppress(ProcessLookupError):  # reaped by the kernel where SIGCHLD is ignored
            os.kill(self._child, signal.SIGKILL)
        self._await_child(REAPED_WITHIN_S)
        self._child = None

    def _await_child(self, timeout_s: float) -> None:
        """Return once the child is reaped, or when the time is up."""
        end_s = time.monotonic() + timeout_s
        while self._child is not None and time.monotonic() < end_s:
            try:
                is_gone = os.waitpid(self._child, os.WNOHANG)[0] != 0
            except ChildProcessError:
                is_gone = True
            if is_gone:
                self._child = None
            else:
                time.sleep(LOOKS_EVERY_S)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """End by a signal as if it was not handled, but for the terminal."""
        self.end()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _let_keys_wait() -> Attributes:
    """Return attributes with which keys are neither shown nor changed, as the application will read them.

    Ctrl-C works until then; Ctrl-Z and Ctrl-\\ are keys of the application.
    """
    found = termios.tcgetattr(0)
    input_flags, output_flags, control_flags, local_flags, *speeds, characters = found
    input_flags &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
    local_flags &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    characters = list(characters)
    characters[termios.VMIN] = 1
    characters[termios.VTIME] = 0
    characters[termios.VSUSP] = characters[termios.VQUIT] = b"\0"
    return [input_flags, output_flags, control_flags, local_flags, *speeds, characters]
