"""The step into the job: this process becomes its command, so that nothing stands between."""

import errno
import os
import signal
from collections.abc import Mapping, Sequence

EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
EXIT_OWN_FAILURE = 125
"""As env(1) and the shells have them."""

_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFZ", "SIGXFSZ")
"""An interpreter ignores these from its start, and what is ignored stays so across exec."""


def become(command: Sequence[str], environment: Mapping[str, str]) -> OSError:
    """Replace this process by a command, found in PATH; on success it never returns.

    Returns:
        Why the command could not be run.
    """
    _restore_signals()
    try:
        os.execvpe(command[0], list(command), environment)  # noqa: S606 - a shell would stand between
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            return _become_script(command, environment, error)
        return error


def is_runnable(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether a command is likely to run; `become` then says what is wrong with one that is not."""
    import shutil

    return shutil.which(command[0], path=environment.get("PATH", os.defpath)) is not None


def exit_code_of(error: OSError) -> int:
    """Return the exit code for a command that could not be run: 127 where it was not found, else 126."""
    return EXIT_NOT_FOUND if error.errno == errno.ENOENT else EXIT_NOT_EXECUTABLE


def _become_script(command: Sequence[str], environment: Mapping[str, str], error: OSError) -> OSError:
    """Run a script without a first line that names its interpreter by the shell, as execvp(3) does."""
    import shutil

    path = shutil.which(command[0], path=environment.get("PATH", os.defpath))
    if path is None:
        return error
    try:
        os.execve("/bin/sh", ["/bin/sh", path, *command[1:]], environment)  # noqa: S606 - what execvp(3) does
    except OSError as second:
        return second


def _restore_signals() -> None:
    for name in _IGNORED_BY_PYTHON:
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, signal.SIG_DFL)
