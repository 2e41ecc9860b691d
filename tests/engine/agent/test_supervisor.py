"""The supervisor: a worker that ends or goes silent is started anew, counted, and its reason is told."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.clocks import HandClock
from vramscope.engine.agent import supervisor as supervisor_module
from vramscope.engine.agent.supervisor import BACKOFF_S, SILENT_S, WorkerSupervisor
from vramscope.engine.wire.messages import WorkerReport

from ...waiting import wait_until


class Starter:
    """Starts a small real process in the worker's place."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.processes: list[subprocess.Popen[bytes]] = []

    def __call__(self, command: list[str], log: Path) -> "subprocess.Popen[bytes]":
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-c", self.program], stdin=subprocess.PIPE, stderr=stderr
            )
        self.processes.append(process)
        return process


WAITS = "import sys; sys.stdin.read()"
FAILS = "import sys; sys.exit('cannot import the analyzers')"


@pytest.fixture
def clock() -> HandClock:
    return HandClock(100.0)


def test_a_worker_that_ends_is_restarted_and_its_reason_told(clock: HandClock, tmp_path: Path) -> None:
    starter = Starter(FAILS)
    supervisor = WorkerSupervisor(tmp_path, clock, start=starter)
    supervisor.poll()
    assert supervisor.status().state == "starting"
    starter.processes[0].wait(timeout=60)
    supervisor.poll()
    assert supervisor.status().state == "restarting"
    assert supervisor.status().reason == "cannot import the analyzers"
    clock.now_s += BACKOFF_S[0]
    starter.program = WAITS
    supervisor.poll()
    assert (supervisor.status().restarts, supervisor.status().state) == (1, "starting")
    supervisor.stop()


def test_a_worker_that_keeps_failing_is_called_failed_and_tried_ever_less_often(
    clock: HandClock, tmp_path: Path
) -> None:
    starter = Starter(FAILS)
    supervisor = WorkerSupervisor(tmp_path, clock, start=starter)
    for _ in range(len(BACKOFF_S) + 1):
        supervisor.poll()
        starter.processes[-1].wait(timeout=60)
        supervisor.poll()
        clock.now_s += BACKOFF_S[-1]
    assert supervisor.status().state == "failed"
    clock.now_s -= BACKOFF_S[-1] - 0.1
    supervisor.poll()
    assert len(starter.processes) == len(BACKOFF_S) + 1


def test_a_silent_worker_is_ended_and_started_anew(clock: HandClock, tmp_path: Path) -> None:
    starter = Starter(WAITS)
    supervisor = WorkerSupervisor(tmp_path, clock, start=starter)
    supervisor.poll()
    pid = starter.processes[0].pid
    clock.now_s += SILENT_S - 1
    supervisor.take_report(WorkerReport("analyzers", pid, 1, 3, ("pressure",)))
    clock.now_s += SILENT_S - 1
    supervisor.poll()
    assert supervisor.status().state == "running"
    clock.now_s += 2
    supervisor.poll()
    assert starter.processes[0].returncode is not None
    status = supervisor.status()
    assert (status.restarts, status.samples_dropped) == (1, 3)
    assert "did not report for 10 s" in str(status.reason)


def test_stopping_ends_the_worker_by_closing_its_input(
    clock: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "ENDS_WITHIN_S", 60.0)
    starter = Starter(WAITS)
    supervisor = WorkerSupervisor(tmp_path, clock, start=starter)
    supervisor.poll()
    supervisor.stop()
    assert starter.processes[0].returncode == 0
    wait_until(lambda: supervisor.pid is None)


def test_a_worker_that_cannot_be_run_is_tried_again_and_the_hub_goes_on(
    clock: HandClock, tmp_path: Path
) -> None:
    starter = Starter(WAITS)

    def refuse(command: list[str], log: Path) -> "subprocess.Popen[bytes]":
        if clock.now_s == 100.0:
            raise PermissionError(13, "Permission denied")
        return starter(command, log)

    supervisor = WorkerSupervisor(tmp_path, clock, start=refuse)
    supervisor.poll()
    assert supervisor.status().reason == "cannot start the worker: Permission denied"
    clock.now_s += BACKOFF_S[0]
    supervisor.poll()
    assert supervisor.status().state == "starting"
    supervisor.stop()
