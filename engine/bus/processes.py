"""Processes that vramscope starts of itself: hubs and workers."""

import os
import subprocess
import sys
from pathlib import Path

HUB_LOG_NAME, WORKER_LOG_NAME, EXPORTER_LOG_NAME = LOG_NAMES = ("hub.log", "worker.log", "exporter.log")
LEDGERS_NAME = "ledgers"
"""Folder in which the jobs on simulated cards settle what each process takes."""
MAX_REASON_CHARS = 300


def command_of(verb: str, *arguments: str) -> list[str]:
    """Return the command line that runs a verb of this very installation."""
    return [sys.executable, "-m", "vramscope", verb, *arguments]


def spawn(
    command: list[str], log: Path, *, own_session: bool, stdin: int, keeps_log: bool = False
) -> subprocess.Popen[bytes]:
    """Start a process whose stderr goes to a log file.

    Args:
        command: Command line.
        log: File for stderr.
        own_session: Keep the terminal's signals (Ctrl-C, hang-up) away from it.
        stdin: `subprocess.DEVNULL`, or `subprocess.PIPE` for a process that ends when the pipe closes.
        keeps_log: Add to the log instead of beginning it anew; another process may be writing it.
    """
    with log.open("ab" if keeps_log else "wb") as stderr:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=own_session,
            env=own_environment(),
        )


def last_line(log: Path) -> str | None:
    """Return the last line that a process wrote to its log, shortened, or None."""
    try:
        lines = log.read_text(errors="replace").split("\n")
    except OSError:
        return None
    told = [line.strip() for line in lines if line.strip()]
    return told[-1][:MAX_REASON_CHARS] if told else None


def own_environment() -> dict[str, str]:
    """Return this environment, in which `-m vramscope` finds the package that runs now, and first."""
    root = str(Path(__file__).resolve().parents[2])
    environment = dict(os.environ)
    if root in sys.path or str(Path.cwd()) == root:
        found = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = root if not found else f"{root}{os.pathsep}{found}"
    return environment
