"""Keeps one analyzer worker process alive: starts it, watches it, restarts it, and says how that went."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from ..child_processes import command_of, last_line, spawn
from ..clock import Clock
from ..errors import RuntimeFolderError
from ..model import WorkerStatus
from ..wire.messages import WorkerReport

BACKOFF_S = (0.1, 0.5, 2.0, 10.0)
"""Wait before the next start, by the number of failures in a row."""
STEADY_S = 60.0
"""A worker that lived this long has its failures forgiven."""
SILENT_S = 10.0
"""A worker that has not reported for so long while samples flow is killed and started anew."""
ENDS_WITHIN_S = 0.5
"""A worker that has not gone by then, once its standard input is closed, is killed."""

Spawn = Callable[[list[str], Path], "subprocess.Popen[bytes]"]


def _spawn_worker(command: list[str], log: Path) -> "subprocess.Popen[bytes]":
    return spawn(command, log, own_session=True, stdin=subprocess.PIPE)


class WorkerSupervisor:
    """One worker of one hub."""

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
        """Process id of the worker, while it runs."""
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
            self._note_end(now_s, f"the worker had not reported for {SILENT_S:.0f} s and was ended")

    def _begin(self, now_s: float) -> None:
        """Start the worker; a program that cannot be run, as while it is replaced, is tried again later."""
        self._started_s = self._heard_s = now_s
        try:
            self._process = self._start(self._command, self._log)
        except (OSError, RuntimeFolderError) as error:
            why = error.strerror or error if isinstance(error, OSError) else error
            self._note_end(now_s, f"the worker cannot be started: {why}")

    def take_report(self, report: WorkerReport) -> None:
        """Remember what the worker last said of itself."""
        if report.pid == self.pid:
            self._report, self._heard_s = report, self._clock.monotonic_s()

    def status(self) -> WorkerStatus:
        """Return the worker as viewers see it."""
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
        """End the worker; it goes by itself when its standard input closes."""
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
