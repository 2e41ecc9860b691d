"""What the kernel tells of a process that somebody wants to attach to."""

from pathlib import Path
from typing import NamedTuple

from ..errors import UsageError

PROC = Path("/proc")


class ProcessStatus(NamedTuple):
    """The fields of /proc/PID/status that decide whether a process can be attached to."""

    pid: int
    name: str
    state: str
    """One letter, as proc(5) has it: R, S, D, T (stopped), t (stopped by a tracer), Z (ended)."""
    uid: int
    tracer_pid: int
    """The process that traces it; 0 for none."""


class MappedFile(NamedTuple):
    """The first mapping of a file into a process."""

    path: str
    address: int
    offset: int


def read_status(pid: int, proc: Path = PROC) -> ProcessStatus:
    """Return the state of a process.

    Raises:
        UsageError: There is no such process, or it has ended and only waits for its parent.
    """
    try:
        text = (proc / str(pid) / "status").read_text(errors="replace")
    except OSError:
        raise UsageError(f"there is no process {pid}") from None
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    status = ProcessStatus(
        pid=pid,
        name=fields.get("Name", "?"),
        state=fields.get("State", "?")[:1],
        uid=int(fields["Uid"].split()[1]),
        tracer_pid=int(fields.get("TracerPid", "0")),
    )
    if status.state in "ZX":
        raise UsageError(f"process {pid} ({status.name}) has ended; its parent has yet to take note of it")
    return status


def read_start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """Return when a process started, in clock ticks since boot; None where it is gone.

    With the pid it names a process for good (proc(5): field 22 of stat, counted behind the program's name).
    """
    try:
        return int((proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def list_mapped_files(pid: int, proc: Path = PROC) -> list[MappedFile]:
    """Return the files that a process has mapped, each once, lowest address first.

    Raises:
        OSError: The kernel does not tell this user.
    """
    found: dict[str, MappedFile] = {}
    for line in (proc / str(pid) / "maps").read_text(errors="surrogateescape").splitlines():
        addresses, _, offset, _, _, *path = line.split(maxsplit=5)
        if path and path[0].startswith("/"):
            start = int(addresses.partition("-")[0], 16)
            found.setdefault(path[0], MappedFile(path[0], start, int(offset, 16)))
    return list(found.values())


def read_variables(pid: int, proc: Path = PROC) -> dict[str, str]:
    """Return the environment that a process was started with; empty where it cannot be read."""
    try:
        data = (proc / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    entries = (entry.decode(errors="surrogateescape").partition("=") for entry in data.split(b"\0"))
    return {name: value for name, _, value in entries if name}
