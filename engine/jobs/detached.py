"""Processes that are nobody's child: a job that waits for its own must not find ours."""

import os
import time
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import subprocess

STARTED_WITHIN_S = 10.0
_POLL_S = 0.005


class Start(IntEnum):
    """What became of a process that was started; the exit code of the one between."""

    SERVES = 0
    ENDED = 1
    LATE = 2


def start_detached(spawn: Callable[[], "subprocess.Popen[bytes]"], is_ready: Callable[[], bool]) -> Start:
    """Start a process from one between, and return once it is ready, has ended, or is late.

    Args:
        spawn: Starts it.
        is_ready: Tells whether it does what it was started for.
    """
    helper = os.fork()
    if helper == 0:
        _leave(lambda: _await(spawn(), is_ready))
    _, status = os.waitpid(helper, 0)
    code = os.waitstatus_to_exitcode(status)
    return Start(code) if code in set(Start) else Start.LATE


def _leave(action: Callable[[], Start]) -> NoReturn:
    """End this process with the code that an action returns, whatever happens: it is a copy of its parent."""
    code = Start.LATE
    try:
        code = action()
    finally:
        os._exit(code)


def _await(process: "subprocess.Popen[bytes]", is_ready: Callable[[], bool]) -> Start:
    deadline_s = time.monotonic() + STARTED_WITHIN_S
    while time.monotonic() < deadline_s:
        if is_ready():
            return Start.SERVES
        if process.poll() is not None:
            return Start.ENDED if process.returncode else Start.SERVES  # another was first
        time.sleep(_POLL_S)
    return Start.LATE
