"""The processes of an agent: its worker, what they use, and who is present."""

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from ..child_processes import command_of, last_line, spawn
from ..clock import Clock
from ..errors import RuntimeFolderError
from ..model import WorkerStatus
from ..wire.messages import WorkerReport

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class OwnUsage:
    """CPU time of this process and of given others between two calls."""

    def __init__(self) -> None:
        self._at_s: float | None = None
        self._cpu_s = 0.0

    def cpu_percent(self, now_s: float, other_pids: list[int]) -> float | None:
        """Percent of one core since the last call; None at the first, or if it cannot be read."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = own.ru_utime + own.ru_stime + sum(_cpu_s_of(pid) for pid in other_pids)
        before_s = self._at_s
        self._at_s = now_s
        used_s = cpu_s - self._cpu_s
        self._cpu_s = cpu_s
        if before_s is None or now_s <= before_s or used_s < 0:
            return None
        return round(100.0 * used_s / (now_s - before_s), 2)


def rss_bytes(pid: int | None = None) -> int | None:
    """Resident bytes of a process (this one by default), or None if they cannot be read."""
    try:
        fields = Path(f"/proc/{pid or 'self'}/statm").read_text().split()
        return int(fields[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None


def _cpu_s_of(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    except (OSError, ValueError, IndexError):
        return 0.0


# More than one machine can open connections to one port, as Linux gives out ports by default.
MOST_DESCRIPTORS = 65_536


def allow_many_descriptors() -> int:
    """Raise the limit of open files as far as this user may, and return it.

    Every connection is one, also of a stranger who is refused after seconds only; with all of them taken, an
    agent could not open the files that it samples. Its child processes have the same limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


# Wait before the next start, by the number of failures in a row.
BACKOFF_S = (0.1, 0.5, 2.0, 10.0)
# The failures of a worker that lived this long are forgiven.
STEADY_S = 60.0
# A worker without a report for so long while samples flow is killed and restarted.
SILENT_S = 10.0
# A worker that has not ended by then, once its standard input is closed, is killed.
ENDS_WITHIN_S = 0.5

Spawn = Callable[[list[str], Path], "subprocess.Popen[bytes]"]


def _spawn_worker(command: list[str], log: Path) -> "subprocess.Popen[bytes]":
    return spawn(command, log, own_session=True, stdin=subprocess.PIPE)


class WorkerSupervisor:
    def __init__(self, runtime_dir: Path, clock: Clock, *, start: Spawn = _spawn_worker) -> None:
        self.restarts = 0
        self._command = command_of("worker", "--runtime-dir", str(runtime_dir))
        self._log = runtime_dir / "worker.log"
        self._clock = clock
        self._start = start
        self._process: subprocess.Popen[bytes] | None = None
        self._start_due_s = clock.monotonic_s()
        self._started_s = 0.0
        self._failures = 0
        self._heard_s = 0.0
        self._report: WorkerReport | None = None
        self._dropped_before = 0
        self._reason: str | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def poll(self) -> None:
        """Start the worker when that is due, and notice when it has ended or gone silent."""
        now_s = self._clock.monotonic_s()
        if self._process is None:
            if now_s >= self._start_due_s:
                self._begin(now_s)
            return
        code = self._process.poll()
        if code is not None:
            self._note_end(now_s, last_line(self._log) or f"the worker ended with status {code}")
        elif now_s - self._heard_s > SILENT_S:
            self._process.kill()
            self._process.wait()
            self._note_end(now_s, f"the worker did not report for {SILENT_S:.0f} s and was stopped")

    def _begin(self, now_s: float) -> None:
        """Start the worker; a program that cannot be run, as while it is replaced, is tried again later."""
        self._started_s = self._heard_s = now_s
        try:
            self._process = self._start(self._command, self._log)
        except (OSError, RuntimeFolderError) as error:
            why = error.strerror or error if isinstance(error, OSError) else error
            self._note_end(now_s, f"cannot start the worker: {why}")

    def take_report(self, report: WorkerReport) -> None:
        if report.pid == self.pid:
            self._report, self._heard_s = report, self._clock.monotonic_s()

    def status(self) -> WorkerStatus:
        report = self._report
        is_reporting = report is not None and report.pid == self.pid
        state: Literal["starting", "running", "restarting", "failed"]
        if self._process is None:
            state = "failed" if self._failures > len(BACKOFF_S) else "restarting"
        else:
            state = "running" if is_reporting else "starting"
        dropped = self._dropped_before + (
            report.samples_dropped if report is not None and is_reporting else 0
        )
        return WorkerStatus(
            name="analyzers",
            pid=self.pid,
            state=state,
            restarts=self.restarts,
            samples_dropped=dropped,
            analyzers=report.analyzers if report is not None else (),
            reason=report.reason if report is not None and is_reporting else self._reason,
        )

    def stop(self) -> None:
        """End the worker; it ends by itself when its standard input closes."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _note_end(self, now_s: float, reason: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        if now_s - self._started_s > STEADY_S:
            self._failures = 0
        if self._report is not None:
            self._dropped_before += self._report.samples_dropped
        self._report = None
        self._process = None
        self._reason = reason
        self._start_due_s = now_s + BACKOFF_S[min(self._failures, len(BACKOFF_S) - 1)]
        self._failures += 1
        self.restarts += 1


MAX_ANALYZERS = 64
MAX_NAME_CHARACTERS = 100
MAX_REASON_CHARACTERS = 1000


def shorten_report(report: WorkerReport) -> WorkerReport:
    """Bound the part of a report that is published again and again: the worker's description of itself."""
    return WorkerReport(
        report.name[:MAX_NAME_CHARACTERS],
        report.pid,
        report.seen_seq,
        report.samples_dropped,
        tuple(it[:MAX_NAME_CHARACTERS] for it in report.analyzers[:MAX_ANALYZERS]),
        reason=None if report.reason is None else report.reason[:MAX_REASON_CHARACTERS],
    )


class WorkerSeat:
    """Allows one worker to report at a time; another may once it has been silent.

    Args:
        is_open: The agent runs no analyzers itself.
    """

    def __init__(self, *, is_open: bool, clock: Clock) -> None:
        self._is_open = is_open
        self._clock = clock
        self._holder: tuple[str, int] | None = None
        self._report: WorkerReport | None = None
        self._heard_s = 0.0

    def refuse(self, user: str, report: WorkerReport) -> str | None:
        """Return why a report is refused, in one sentence, or None; who reports has the seat."""
        if not self._is_open:
            return (
                "this agent runs its own analyzers; start it with --no-worker to use analyzers on "
                "another machine"
            )
        holder = (user, report.pid)
        if self._holder not in (None, holder) and not self._is_silent:
            return "another worker already analyzes for this agent"
        self._holder, self._report, self._heard_s = holder, report, self._clock.monotonic_s()
        return None

    def status(self) -> tuple[WorkerStatus, ...]:
        """The worker as viewers see it; () before the first."""
        report = self._report
        if report is None:
            return ()
        silent = (
            f"the worker on another machine has not reported for {SILENT_S:.0f} s"
            if self._is_silent
            else None
        )
        return (
            WorkerStatus(
                name=report.name,
                pid=report.pid,
                state="failed" if silent else "running",
                samples_dropped=report.samples_dropped,
                analyzers=report.analyzers,
                reason=silent or report.reason,
            ),
        )

    @property
    def _is_silent(self) -> bool:
        return self._clock.monotonic_s() - self._heard_s > SILENT_S


# A hub that a viewer started ends if none has arrived by then.
VIEWER_WITHIN_S = 15.0


class Attendance:
    """Counts viewers and training processes, and knows when the last of them left.

    Args:
        first_within_s: How long to wait for the first.
        linger_s: How long to wait for the next, once the last has left.
    """

    def __init__(self, *, first_within_s: float, linger_s: float, now_s: float) -> None:
        self.viewers = 0
        self._linger_s = linger_s
        self._ends_s = now_s + first_within_s

    def note_viewer(self, *, has_come: bool) -> None:
        self.viewers = max(0, self.viewers + (1 if has_come else -1))

    def await_return(self, now_s: float) -> None:
        """Wait for viewers that were disconnected as for the first one."""
        self._ends_s = max(self._ends_s, now_s + VIEWER_WITHIN_S)

    def is_over(self, now_s: float, *, has_ranks: bool) -> bool:
        """Return whether everybody has left and stayed away; call it several times a second."""
        if self.viewers or has_ranks:
            self._ends_s = now_s + self._linger_s
            return False
        return now_s >= self._ends_s
