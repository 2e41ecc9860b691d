"""The process of a pid: user, command line, start time and container, read from /proc and kept while it
lives.
"""

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Literal, NamedTuple

from ..errors import UsageError
from ..model import ProcessKind, ProcessReading
from ..text import make_printable
from .cgroups import Owner, find_owner
from .kernel_files import KeptFile, read_bytes

# Name of the kernel's first pid namespace (PROC_PID_INIT_INO), in which the host's processes are.
INITIAL_PID_NAMESPACE = "pid:[4026531836]"


def has_own_pids(proc: Path = Path("/proc")) -> bool:
    """Return whether this process is in its own pid namespace, where the driver's pids are unknown."""
    try:
        return os.readlink(proc / "self/ns/pid") != INITIAL_PID_NAMESPACE  # noqa: PTH115 - a name, no path
    except OSError:
        return False


MOST_COMMAND_BYTES = 2048
# How long a look at a pid is valid: one look serves all devices that list it in one round.
CHECK_INTERVAL_S = 1.0
# The same for a process whose end would be noticed: at most it runs another program meanwhile.
WATCHED_INTERVAL_S = 10.0
# Between two looks at what a process uses of the host; a list that comes a little early looks all the same.
USAGE_INTERVAL_S = 3.5
# The same for each process where there are many, so that what they cost has a bound; at most so long.
USAGE_PER_PROCESS_S = 0.1
MOST_USAGE_INTERVAL_S = 9.5
# How long a process that no device lists any more is remembered.
FORGET_AFTER_S = 60.0

Location = Literal["here", "container", "outside", "gone"]


class _Stat(NamedTuple):
    """The fields of /proc/PID/stat that identify a process."""

    name: str
    state: str
    start_ticks: int

    @property
    def program(self) -> tuple[int, str]:
        """Stays the same as long as a process runs one program."""
        return self.start_ticks, self.name


class _Known(NamedTuple):
    """What was read of one process, for as long as its start time and name stay the same."""

    stat: _Stat
    user: str | None
    command: str | None
    location: Location
    owner: Owner
    started_s: float | None


class _Seen(NamedTuple):
    """Result of the last look at a pid."""

    at_s: float
    user: str | None = None
    command: str | None = None
    location: Location = "here"
    owner: Owner = Owner()
    started_s: float | None = None
    holds_s: float = CHECK_INTERVAL_S


class _Usage(NamedTuple):
    """What a process used of the host at one moment, from /proc/PID/stat."""

    at_s: float
    start_ticks: int
    parent_pid: int
    # CPU time of all its threads, those that have ended too.
    cpu_ticks: int
    threads: int
    resident_pages: int
    # Percent of one core since the look before; None at the first.
    cpu_percent: float | None = None


class ProcessTable:
    """Looks up pids that a driver reports.

    A pid is looked at again every second: a new start time means a new process, a new name that it has run
    a new program. If the kernel reports its end, that is looked at every ten seconds. Inside a container the
    driver may report pids of the host; such a pid never counts as a process of ours that has the same number
    by accident.

    Args:
        is_hidden: Returns whether a pid that /proc does not show exists all the same (hidepid).
        device_files: Beginnings of the device files that whoever uses a device has open, in `/dev`.
        control_file: A file that is there if they are.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        clock_s: Callable[[], float] = monotonic,
        is_hidden: Callable[[int], bool] | None = None,
        *,
        device_files: tuple[str, ...] = ("/dev/nvidia",),
        control_file: str = "dev/nvidiactl",
    ) -> None:
        self._proc = root / "proc"
        self._prefix = f"{self._proc}/"
        self._clock_s = clock_s
        self._is_hidden = is_hidden or _exists_for_others
        self._known: dict[int, _Known] = {}
        self._seen: dict[int, _Seen] = {}
        self._usage: dict[int, _Usage] = {}
        self._stat_files: dict[int, KeptFile] = {}
        self._forget_due_s = clock_s() + FORGET_AFTER_S
        self._exits = ExitWatch() if root == Path("/") else None
        self._exits_due_s = clock_s()
        self._users: dict[int, str] = {}
        self._is_contained = has_own_pids(self._proc)
        self._device_files = device_files
        self._has_device_files = (root / control_file).exists()
        self._own_container = find_owner(self._read_text("self/cgroup") or "").container
        self._boot_s = self._read_boot_time_s()
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def read(
        self,
        pid: int,
        used_bytes: int | None,
        kind: ProcessKind | None = None,
        *,
        sm_percent: float | None = None,
        memory_bandwidth_percent: float | None = None,
    ) -> ProcessReading:
        """Return the details of a process with memory on a device, and what the driver knows of it."""
        now_s = self._clock_s()
        seen = self._see(pid, now_s)
        usage = self._use(pid, seen, now_s) if seen.location in ("here", "container") else None
        return ProcessReading(
            pid=pid,
            user=seen.user,
            command=seen.command,
            used_bytes=used_bytes,
            location=seen.location,
            container=seen.owner.container,
            pod=seen.owner.pod,
            slurm_job=seen.owner.slurm_job,
            slurm_step=seen.owner.slurm_step,
            started_s=seen.started_s,
            kind=kind,
            parent_pid=None if usage is None else usage.parent_pid,
            sm_percent=sm_percent,
            memory_bandwidth_percent=memory_bandwidth_percent,
            cpu_percent=None if usage is None else usage.cpu_percent,
            resident_bytes=None if usage is None else usage.resident_pages * self._page_bytes,
            threads=None if usage is None else usage.threads,
        )

    def _see(self, pid: int, now_s: float) -> _Seen:
        """Return who a pid is; what was seen lately still holds."""
        if now_s >= self._exits_due_s:
            self._exits_due_s = now_s + CHECK_INTERVAL_S
            self._note_ended(now_s)
        seen = self._seen.get(pid)
        if seen is None or not 0.0 <= now_s - seen.at_s < seen.holds_s:
            seen = self._seen[pid] = self._look(pid, now_s)
        return seen

    def _use(self, pid: int, seen: _Seen, now_s: float) -> _Usage | None:
        """Return what a process uses of the host; one look serves all devices that list it in one round."""
        before = self._usage.get(pid)
        most_s = min(MOST_USAGE_INTERVAL_S, USAGE_PER_PROCESS_S * len(self._usage))
        if before is not None and 0.0 <= now_s - before.at_s < max(USAGE_INTERVAL_S, most_s):
            return before
        usage = self._read_usage(pid, now_s)
        if usage is None or seen.started_s is None:
            self._forget_usage(pid)
            return None
        if before is not None and before.start_ticks == usage.start_ticks and now_s > before.at_s:
            used_s = (usage.cpu_ticks - before.cpu_ticks) / self._ticks_per_s
            percent = round(max(0.0, 100.0 * used_s / (now_s - before.at_s)), 1)
            usage = usage._replace(cpu_percent=percent)
        self._usage[pid] = usage
        return usage

    def _read_usage(self, pid: int, now_s: float) -> _Usage | None:
        """Read what a process uses; its file stays open, as opening it costs as much as reading it."""
        file = self._stat_files.get(pid)
        if file is None:
            file = KeptFile(f"{self._prefix}{pid}/stat")
            if len(self._stat_files) < MOST_PROCESSES:
                self._stat_files[pid] = file
        fields = (file.read() or b"").rpartition(b")")[2].split()
        try:
            return _Usage(
                at_s=now_s,
                start_ticks=int(fields[19]),
                parent_pid=int(fields[1]),
                cpu_ticks=int(fields[11]) + int(fields[12]),
                threads=int(fields[17]),
                resident_pages=int(fields[21]),
            )
        except (IndexError, ValueError):  # it has ended
            return None

    def _forget_usage(self, pid: int) -> None:
        self._usage.pop(pid, None)
        file = self._stat_files.pop(pid, None)
        if file is not None:
            file.close()

    def drop_ended(self, processes: tuple[ProcessReading, ...]) -> tuple[ProcessReading, ...]:
        """Return the processes of an older list that have not ended since, as they were read then.

        One that had ended already when the list was read stays: its memory was still in use. If none has
        ended, it is the same tuple.
        """
        left = tuple([it for it in processes if it.location == "gone" or not self._has_ended(it)])
        return processes if len(left) == len(processes) else left

    def _has_ended(self, process: ProcessReading) -> bool:
        now = self._see(process.pid, self._clock_s())
        return now.location == "gone" or now.started_s != process.started_s

    def _look(self, pid: int, now_s: float) -> _Seen:
        if self._exits is not None:
            self._exits.add(pid)
        stat = self._read_stat(pid)
        if stat is None and self._is_hidden(pid):
            return _Seen(now_s)
        if stat is None or stat.state in "ZXx":
            return self._describe_absent(pid, now_s)
        known = self._known.get(pid)
        if known is None or known.stat.program != stat.program or known.location == "outside":
            known = self._known[pid] = self._read_process(pid, stat)
        is_watched = self._exits is not None and pid in self._exits and known.location != "outside"
        return _Seen(
            now_s,
            known.user,
            known.command,
            known.location,
            known.owner,
            known.started_s,
            WATCHED_INTERVAL_S if is_watched else CHECK_INTERVAL_S,
        )

    def _describe_absent(self, pid: int, now_s: float) -> _Seen:
        """Describe a pid without a living process: exited, or of a namespace that we do not see."""
        former = self._known.get(pid)
        if former is not None and former.location != "outside":
            return _Seen(now_s, former.user, former.command, "gone", former.owner, former.started_s)
        return _Seen(now_s, location="outside" if self._is_contained else "gone")

    def _read_process(self, pid: int, stat: _Stat) -> _Known:
        if self._is_contained and self._is_chance_namesake(pid):
            return _Known(stat, None, None, "outside", Owner(), None)
        status = self._read_text(f"{pid}/status") or ""
        owner = find_owner(self._read_text(f"{pid}/cgroup") or "")
        container = owner.container
        is_nested = len(_find_field(status, "NSpid").split()) > 1
        is_elsewhere = is_nested or (container is not None and container != self._own_container)
        started_s = None if self._boot_s is None else self._boot_s + stat.start_ticks / self._ticks_per_s
        return _Known(
            stat=stat,
            user=self._find_user(status),
            command=self._read_command(pid, stat),
            location="container" if is_elsewhere else "here",
            owner=owner if is_elsewhere else owner._replace(container=None),
            started_s=started_s,
        )

    def _is_chance_namesake(self, pid: int) -> bool:
        """Return whether our process of this number cannot be the driver's: it has no device open.

        Without device files nothing is certain, and the pid is accepted.
        """
        if not self._has_device_files:
            return False
        try:
            with os.scandir(f"{self._prefix}{pid}/fd") as entries:
                links = [_read_link(Path(entry.path)) for entry in entries]
        except OSError:
            return True
        return not any(link is not None and link.startswith(self._device_files) for link in links)

    def _read_stat(self, pid: int) -> _Stat | None:
        text = self._read_text(f"{pid}/stat")
        if text is None:
            return None
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        if len(fields) < 20 or not fields[19].isdigit():
            return None
        return _Stat(name, fields[0], int(fields[19]))

    def _read_command(self, pid: int, stat: _Stat) -> str | None:
        text = self._read_text(f"{pid}/cmdline", MOST_COMMAND_BYTES)
        if text is None:
            return None
        command = text.replace("\0", " ").strip(" ") or f"[{stat.name}]"
        return make_printable(command)

    def _find_user(self, status: str) -> str | None:
        uids = _find_field(status, "Uid").split()
        if not uids or not uids[0].isdigit():
            return None
        uid = int(uids[0])
        if uid not in self._users:
            self._users[uid] = find_user_name(uid)
        return self._users[uid]

    def _read_boot_time_s(self) -> float | None:
        text = self._read_text("stat", 1 << 20) or ""
        boot = next((line.split()[1] for line in text.splitlines() if line.startswith("btime ")), None)
        return float(boot) if boot is not None and boot.isdigit() else None

    def _read_text(self, name: str, most_bytes: int = 4096) -> str | None:
        data = read_bytes(self._prefix + name, most_bytes)
        return None if data is None else data.decode("utf-8", errors="replace")

    def _note_ended(self, now_s: float) -> None:
        """Look again at processes that have ended, and forget those that no device lists any more."""
        for pid in () if self._exits is None else self._exits.take_ended():
            seen = self._seen.get(pid)
            if seen is not None:
                self._seen[pid] = seen._replace(holds_s=0.0)
        if now_s < self._forget_due_s:
            return
        self._forget_due_s = now_s + FORGET_AFTER_S
        for pid, seen in list(self._seen.items()):
            if now_s - seen.at_s > FORGET_AFTER_S:
                self._seen.pop(pid, None)
                self._known.pop(pid, None)
                self._forget_usage(pid)
                if self._exits is not None:
                    self._exits.remove(pid)


def _exists_for_others(pid: int) -> bool:
    """Return whether a process exists that belongs to another user; signal 0 only asks."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def find_user_name(uid: int) -> str:
    """The login name, or the id if it has none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _find_field(status: str, name: str) -> str:
    return next((line[len(name) + 1 :] for line in status.splitlines() if line.startswith(f"{name}:")), "")


def _read_link(path: Path) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 - links in /proc are names, not paths
    except OSError:
        return None


# Each takes two file descriptors, one of its /proc/PID/stat; further processes are not watched.
MOST_PROCESSES = 128


class ExitWatch:
    """Knows whether processes of this pid namespace still live; safe to use from several threads.

    It needs Linux 5.3 (pidfd_open(2)), and elsewhere knows of no process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._poll = select.poll()
        self._descriptors: dict[int, int] = {}
        self._pids: dict[int, int] = {}

    def __contains__(self, pid: int) -> bool:
        return pid in self._descriptors

    def add(self, pid: int) -> None:
        """Watch a process from now on, if possible; read its files only afterwards.

        What is read of the pid later is then of this process, unless `take_ended` names it.
        """
        # No Linux, an older one, a sandbox, no process any more, a number that is none.
        with self._lock, suppress(AttributeError, OSError, OverflowError):
            if pid in self._descriptors or len(self._descriptors) >= MOST_PROCESSES:
                return
            descriptor = os.pidfd_open(pid)
            self._descriptors[pid] = descriptor
            self._pids[descriptor] = pid
            self._poll.register(descriptor, select.POLLIN)

    def take_ended(self) -> list[int]:
        """Return the processes that have ended since the last call; they are watched no longer."""
        with self._lock:
            ended = [self._pids[descriptor] for descriptor, _ in self._poll.poll(0)] if self._pids else []
        for pid in ended:
            self.remove(pid)
        return ended

    def remove(self, pid: int) -> None:
        with self._lock:
            descriptor = self._descriptors.pop(pid, None)
            if descriptor is not None:
                del self._pids[descriptor]
                self._poll.unregister(descriptor)
                os.close(descriptor)

    def __del__(self) -> None:
        for descriptor in self._pids:
            os.close(descriptor)


PROC = Path("/proc")


class ProcessStatus(NamedTuple):
    """The fields of /proc/PID/status that decide whether a process can be attached to."""

    pid: int
    name: str
    # One letter, as in proc(5): R, S, D, T (stopped), t (stopped by a tracer), Z (ended).
    state: str
    uid: int
    # 0 for none.
    tracer_pid: int


class MappedFile(NamedTuple):
    path: str
    address: int
    offset: int


def read_status(pid: int, proc: Path = PROC) -> ProcessStatus:
    """Read the state of a process.

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
        raise UsageError(f"process {pid} ({status.name}) has ended, but its parent has not reaped it yet")
    return status


def read_inner_pid(pid: int, proc: Path = PROC) -> int:
    """Return the number by which a process knows itself: that of its innermost pid namespace.

    Raises:
        UsageError: There is no such process.
    """
    try:
        text = (proc / str(pid) / "status").read_text(errors="replace")
    except OSError:
        raise UsageError(f"there is no process {pid}") from None
    return int((_find_field(text, "NSpid").split() or [str(pid)])[-1])


def read_start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it is gone.

    With the pid it names a process for good (proc(5): field 22 of stat, counted after the program's name).
    """
    try:
        return int((proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def list_mapped_files(pid: int, proc: Path = PROC) -> list[MappedFile]:
    """Return the files that a process has mapped, each once, lowest address first; raises `OSError`."""
    found: dict[str, MappedFile] = {}
    for line in (proc / str(pid) / "maps").read_text(errors="surrogateescape").splitlines():
        addresses, _, offset, _, _, *path = line.split(maxsplit=5)
        if path and path[0].startswith("/"):
            start = int(addresses.partition("-")[0], 16)
            found.setdefault(path[0], MappedFile(path[0], start, int(offset, 16)))
    return list(found.values())


def read_variables(pid: int, proc: Path = PROC) -> dict[str, str]:
    """Return the environment that a process was started with; empty if it cannot be read."""
    try:
        data = (proc / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    entries = (entry.decode(errors="surrogateescape").partition("=") for entry in data.split(b"\0"))
    return {name: value for name, _, value in entries if name}
