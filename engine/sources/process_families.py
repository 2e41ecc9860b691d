"""Parents and children of processes that hold device memory: launchers above them, data workers below."""

import os
from collections.abc import Iterable
from pathlib import Path

from ..model import ProcessReading
from .processes import ProcessTable

# From these a person or a system starts programs: whoever is above them has nothing to do with a job.
STARTERS = frozenset(
    {
        *(
            "init",
            "systemd",
            "launchd",
            "sshd",
            "sshd-session",
            "login",
            "su",
            "sudo",
            "cron",
            "crond",
            "atd",
        ),
        *("bash", "sh", "dash", "zsh", "fish", "ksh", "tcsh", "csh", "tmux: server", "screen", "SCREEN"),
        *("slurmstepd", "slurmd", "containerd-shim", "conmon", "docker-init", "tini", "dumb-init", "runc"),
    }
)
MOST_ANCESTORS = 8
# More than a job has on a node.
MOST_RELATIVES = 1024


class ProcessFamilies:
    """Looks for relatives of processes in /proc; the parents up to the shell or service that started them."""

    def __init__(self, root: Path = Path("/"), table: ProcessTable | None = None) -> None:
        self._proc = root / "proc"
        self._table = table or ProcessTable(root)

    def read(self, pids: Iterable[int]) -> dict[int, ProcessReading]:
        """Return all relatives of processes, by process id, without these themselves.

        It reads a file of every process of the machine: call it on a thread, and only while somebody looks.
        """
        wanted = set(pids)
        parents: dict[int, int] = {}
        names: dict[int, str] = {}
        try:
            entries = list(os.scandir(self._proc))
        except OSError:  # no Linux
            return {}
        for entry in entries:
            if entry.name.isdigit():
                self._note(int(entry.name), parents, names)
        found: list[int] = []
        for pid in wanted:
            above = parents.get(pid)
            for _ in range(MOST_ANCESTORS):
                if above is None or above <= 1 or names.get(above) in STARTERS:
                    break
                found.append(above)
                above = parents.get(above)
        children: dict[int, list[int]] = {}
        for pid, parent in parents.items():
            children.setdefault(parent, []).append(pid)
        waiting = list(wanted)
        seen = set(wanted)
        while waiting:
            for child in children.get(waiting.pop(), ()):
                if child not in seen:
                    seen.add(child)
                    found.append(child)
                    waiting.append(child)
        relatives = [pid for pid in dict.fromkeys(found) if pid not in wanted][:MOST_RELATIVES]
        readings = (self._table.read(pid, None) for pid in relatives)
        return {it.pid: it for it in readings if it.location in ("here", "container")}

    def _note(self, pid: int, parents: dict[int, int], names: dict[int, str]) -> None:
        try:
            text = (self._proc / str(pid) / "stat").read_bytes().decode("utf-8", "replace")
            name, _, rest = text.partition("(")[2].rpartition(")")
            parents[pid] = int(rest.split()[1])
        except (OSError, ValueError, IndexError):  # it has ended, or belongs to somebody who hides it
            return
        names[pid] = name
