"""A hub for a job to report to: found, or started so that it is nobody's child and ends by itself."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ..bus.lock import is_hub_alive
from ..bus.processes import HUB_LOG_NAME, command_of, last_line, spawn
from ..errors import HubUnreachableError
from ..paths import open_runtime_folder

FIRST_WITHIN_S = 600
"""A hub of a job ends if neither a viewer nor a probe has come by then: importing torch may take minutes."""
LINGER_S = 30
"""Between the end of one process and the start of the next a hub stays this long."""
STARTED_WITHIN_S = 10.0
_POLL_S = 0.005
_SERVES, _ENDED, _LATE = 0, 1, 2
"""What became of a hub, as the exit code of the process that started it."""


def find_or_start_hub(folder: Path) -> None:
    """Return once a hub serves a runtime folder; where none does, start one.

    Raises:
        RuntimeFolderError: The folder is not private, or cannot be made.
        HubUnreachableError: The hub ended at once, or did not take the folder in time.
    """
    open_runtime_folder(folder)
    if is_hub_alive(folder):
        return
    helper = os.fork()
    if helper == 0:
        _leave(lambda: _start(folder))
    _, status = os.waitpid(helper, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == _SERVES or is_hub_alive(folder):
        return
    said = last_line(folder / HUB_LOG_NAME) if code == _ENDED else None
    raise HubUnreachableError(
        said.removeprefix("vramscope: ") if said else f"it did not start within {STARTED_WITHIN_S:g} s"
    )


def _leave(action: Callable[[], int]) -> NoReturn:
    """End this process with the code that an action returns, whatever happens: it is a copy of its parent."""
    code = _LATE
    try:
        code = action()
    finally:
        os._exit(code)


def _start(folder: Path) -> int:
    """Start a hub and return what became of it.

    This runs in a process between the job and the hub, so that the hub is not a child that the job would find
    when it waits for its own.
    """
    hub = spawn(
        command_of(
            "agent",
            "--leave-with-viewers",
            *("--first-within", str(FIRST_WITHIN_S), "--linger", str(LINGER_S)),
            *("--runtime-dir", str(folder)),
        ),
        folder / HUB_LOG_NAME,
        own_session=True,
        stdin=subprocess.DEVNULL,
        keeps_log=True,
    )
    deadline_s = time.monotonic() + STARTED_WITHIN_S
    while time.monotonic() < deadline_s:
        if is_hub_alive(folder):
            return _SERVES
        if hub.poll() is not None:
            return _ENDED if hub.returncode else _SERVES  # another was first
        time.sleep(_POLL_S)
    return _LATE
