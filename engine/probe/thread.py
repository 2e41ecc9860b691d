"""The thread that samples: woken ten times a second at most, never joined at the exit."""

from __future__ import annotations

import signal
import threading
from typing import Callable

NAME = "vramscope-probe"
_LONGEST_JOIN_S = 0.02
_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")
"""Signals that a thread raises itself: a handler of them, as faulthandler's, must still find ours."""


class SamplerThread:
    """Calls a function again and again, each time after as many seconds as it returned.

    Args:
        tick: Returns the seconds until the next call, or None to end.
    """

    def __init__(self, tick: Callable[[], float | None]) -> None:
        self._tick = tick
        self._thread: threading.Thread | None = None
        self._wake = threading.Lock()
        self._is_wanted = False

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread where it does not run; a RuntimeError where the system has none left."""
        if self.is_alive:
            return
        self._is_wanted = True
        self._wake = threading.Lock()
        self._wake.acquire()
        thread = threading.Thread(target=self._run, args=(self._wake,), name=NAME, daemon=True)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """Let the thread end, and wait for it for a moment: it may be inside a call of the driver."""
        thread = self._thread
        self._thread = None
        self._is_wanted = False
        if thread is None or thread is threading.current_thread():
            return
        self.wake()
        thread.join(_LONGEST_JOIN_S)

    def wake(self) -> None:
        """Let the next tick begin at once."""
        try:
            self._wake.release()
        except RuntimeError:
            # It is awake already.
            return

    def forget(self) -> None:
        """Drop a thread that a fork left behind in the parent."""
        self._thread = None
        self._is_wanted = False

    def _run(self, wake: threading.Lock) -> None:
        """Tick until told to end; each start has a lock of its own, so that a thread left behind ends too."""
        _leave_signals_to_the_program()
        while self._is_wanted and wake is self._wake:
            pause_s = self._tick()
            if pause_s is None:
                return
            wake.acquire(timeout=pause_s)


def _leave_signals_to_the_program() -> None:
    """Block in this thread every signal that is sent to the process.

    The kernel hands such a signal to any thread that does not block it (signal(7)): a program that blocks one
    in its own threads to wait for it would be ended by ours.
    """
    if hasattr(signal, "pthread_sigmask"):
        faults = {getattr(signal, name, None) for name in _FAULTS}
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)
