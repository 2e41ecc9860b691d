"""The files between who attaches and the process: the payload, and the report of what became of it."""

import os
import re
from pathlib import Path

from ..sources.process_status import PROC, read_start_ticks
from .payload import write_payload

_NAME = re.compile(r"attach-(?P<attacher>\d+)-(?P<pid>\d+)-(?P<started>\d+)\.(?P<kind>py|txt|gdb)")


class Handover:
    """One payload for one process, in the runtime folder.

    Args:
        folder: Runtime folder.
        pid: The process.
    """

    def __init__(self, folder: Path, pid: int) -> None:
        self._pid = pid
        self._started = read_start_ticks(pid)
        self._folder = folder
        self.payload = folder / f"attach-{os.getpid()}-{pid}-{self._started or 0}.py"
        self._report = self.payload.with_suffix(".txt")

    def write(self) -> None:
        """Write the payload, and a report for it to fill in: one that was taken away is not made anew."""
        self._report.touch()
        self.payload.write_text(write_payload(self._folder, self.payload, self._report), encoding="utf-8")

    def read_report(self) -> str:
        """Return what the payload left, which may come in pieces; nothing where it has not run."""
        try:
            return self._report.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def close(self, *, is_pending: bool) -> None:
        """Take the files away, as nobody waits any more.

        Args:
            is_pending: The process may open the payload yet. It then stays until it runs, and takes itself
                away.
        """
        lives = self._started is not None and read_start_ticks(self._pid) == self._started
        if not (is_pending and lives and not self.read_report()):
            self.payload.unlink(missing_ok=True)
        self._report.unlink(missing_ok=True)


def sweep(folder: Path, proc: Path = PROC) -> None:
    """Remove what earlier attempts have left: payloads of processes that are gone, unawaited reports.

    Args:
        folder: Runtime folder.
        proc: Where the kernel tells of processes.
    """
    for path in folder.glob("attach-*"):
        found = _NAME.fullmatch(path.name)
        if found is None:
            continue
        is_awaited = (proc / found["attacher"]).exists()
        may_run = read_start_ticks(int(found["pid"]), proc) == int(found["started"])
        if not (is_awaited or (found["kind"] == "py" and may_run)):
            path.unlink(missing_ok=True)
