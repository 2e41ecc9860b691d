"""A hub for a job to report to: found, or started so that it is nobody's child and ends by itself."""

import subprocess
from pathlib import Path

from ..child_processes import HUB_LOG_NAME, command_of, last_line, spawn
from ..errors import HubUnreachableError, RuntimeFolderError
from ..paths import explain_unwritable, open_runtime_folder
from ..wire.lock import is_hub_alive
from .detached import STARTED_WITHIN_S, Start, start_detached

FIRST_WITHIN_S = 600
"""A hub of a job ends if neither a viewer nor a probe has come by then: importing torch may take minutes."""
LINGER_S = 30
"""Between the end of one process and the start of the next a hub stays this long."""


def find_or_start_hub(folder: Path) -> None:
    """Return once a hub serves a runtime folder; where none does, start one.

    Raises:
        RuntimeFolderError: The folder is not private, or cannot be made or written.
        HubUnreachableError: The hub ended at once, or did not take the folder in time.
    """
    open_runtime_folder(folder)
    if is_hub_alive(folder):
        return
    log = folder / HUB_LOG_NAME
    try:
        log.open("ab").close()  # the process between could not say what is wrong
    except OSError as error:
        raise RuntimeFolderError(explain_unwritable(log, error)) from error
    became = start_detached(lambda: _spawn(folder), lambda: is_hub_alive(folder))
    if became is Start.SERVES or is_hub_alive(folder):
        return
    said = last_line(log) if became is Start.ENDED else None
    raise HubUnreachableError(
        said.removeprefix("vramscope: ") if said else f"it did not start within {STARTED_WITHIN_S:g} s"
    )


def _spawn(folder: Path) -> "subprocess.Popen[bytes]":
    return spawn(
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
