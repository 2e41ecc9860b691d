"""Child processes that run vramscope: their command lines, and what they inherit.

A child runs with `-P`, so that no file of the current folder takes the place of a module that it imports:
that folder may be a stranger's repository, and the child may be root's.
"""

import os
import site
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .errors import RuntimeFolderError
from .paths import explain_unwritable

HUB_LOG_NAME, WORKER_LOG_NAME, EXPORTER_LOG_NAME = LOG_NAMES = ("hub.log", "worker.log", "exporter.log")
# Folder in which jobs on simulated cards share the memory of a card.
LEDGERS_NAME = "ledgers"
MAX_REASON_CHARS = 300
# Further folders of PYTHONPATH for a child that imports a module of the user.
USER_PATH_VARIABLE = "VRAMSCOPE_USER_PATH"


def command_of(verb: str, *arguments: str) -> list[str]:
    """The command line that runs a verb of this very installation."""
    return module_command("vramscope", verb, *arguments)


def module_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of this very installation, with `own_environment`."""
    return [sys.executable, "-P", "-m", module, *arguments]


def spawn(
    command: list[str], log: Path, *, own_session: bool, stdin: int, keeps_log: bool = False
) -> subprocess.Popen[bytes]:
    """Start a process whose stderr goes to a log file.

    Args:
        own_session: Keep the terminal's signals (Ctrl-C, hang-up) away from it.
        stdin: `subprocess.DEVNULL`, or `subprocess.PIPE` for a process that ends when the pipe closes.
        keeps_log: Append to the log; another process may be writing it.

    Raises:
        RuntimeFolderError: The log cannot be written.
        OSError: The program cannot be started.
    """
    try:
        stderr = log.open("ab" if keeps_log else "wb")
    except OSError as error:
        raise RuntimeFolderError(explain_unwritable(log, error)) from error
    with stderr:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=own_session,
            env=own_environment(),
        )


def last_line(log: Path, since_bytes: int = 0) -> str | None:
    """Return the last line after `since_bytes` of a log (of all of a shorter one), shortened, or None."""
    try:
        content = log.read_bytes()
    except OSError:
        return None
    new = content[since_bytes:] if len(content) >= since_bytes else content
    lines = new.decode(errors="replace").split("\n")
    written = [line.strip() for line in lines if line.strip()]
    return written[-1][:MAX_REASON_CHARS] if written else None


def own_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a child that runs only code of ours.

    `vramscope` is found there wherever it is installed. Entries of PYTHONPATH that are empty or relative are
    left out: they name the current folder, or one below it.
    """
    environment = dict(os.environ if base is None else base)
    entries = [it for it in _list_entries(environment) if Path(it).is_absolute()]
    root = str(find_root())
    if root not in site.getsitepackages() and root in (str(Path(it).absolute()) for it in sys.path):
        entries = [root, *(it for it in entries if it != root)]
    environment.pop("PYTHONPATH", None)
    if entries:
        environment["PYTHONPATH"] = os.pathsep.join(entries)
    return environment


def user_code_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a child that imports a module of the user by `import_user_module`."""
    environment = own_environment(base)
    entries = map(Path, _list_entries(os.environ if base is None else base))
    relative = [str(it.absolute()) for it in entries if not it.is_absolute()]
    environment[USER_PATH_VARIABLE] = os.pathsep.join(relative)
    return environment


def find_root() -> Path:
    """Return the folder from which this very installation is imported."""
    package = sys.modules[__name__.partition(".")[0]]
    return Path(str(package.__file__)).parent.parent


def _list_entries(environ: Mapping[str, str]) -> list[str]:
    """Return the entries of PYTHONPATH as they are written; an empty one is the current folder."""
    text = environ.get("PYTHONPATH", "")
    return text.split(os.pathsep) if text else []
