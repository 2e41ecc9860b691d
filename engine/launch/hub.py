"""A hub for a job to report to: found, or started so that it is nobody's child and ends by itself."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from ..bus.lock import is_hub_alive
from ..bus.processes import HUB_LOG_NAME, command_of, last_line, spawn
from ..errors import HubUnreachableError
from ..paths import open_runtime_folder

FIRST_WITHIN_S = 600
"""A hub of a job ends if neither a viewer nor a probe has come by then: importing torch may take minutes."""
LINGER_S = 30
"""Between the end of one process and the start of the next a hub stays this long."""
STARTED_WITHIN_S = 5.0
_POLL_S = 0.005


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
    if os.waitstatus_to_exitcode(status) != 0 and not is_hub_alive(folder):
        reason = last_line(folder / HUB_LOG_NAME) or f"it did not start within {STARTED_WITHIN_S:g} s"
        raise HubUnreachableError(reason.removeprefix("vramscope: "))


def _leave(action: Callable[[], bool]) -> None:
    """End this process by what an action returns, whatever happens: it is a copy of its parent."""
    code = 1
    try:
        code = 0 if action() else 1
    finally:
        os._exit(code)


def _start(folder: Path) -> bool:
    """Start a hub and return whether it took the folder.

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
            return True
        if hub.poll() is not None:
            return hub.returncode == 0  # another was first
        time.sleep(_POLL_S)
    return False
