"""`vramscope guard --signal-job`: the processes of one job, once, and nobody else."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from msgspec.structs import replace

from tests.tui.canned import make_finding, make_sample, make_snapshot
from vramscope.cli.stall_guard import StallGuard
from vramscope.engine.model import Finding, RankSample, Severity
from vramscope.engine.viewer.snapshot import Snapshot

from .running import call


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes that wait for their input to close."""
    command = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(2)]
    yield started
    for process in started:
        process.kill()
        process.communicate()


def stall(severity: Severity = "high") -> Finding:
    return replace(
        make_finding(0), kind="host_stall", device_uuid=None, severity=severity, title="used up in 60 s"
    )


def show(processes: list[subprocess.Popen[bytes]], *findings: Finding, **changes: object) -> Snapshot:
    ranks = tuple(
        RankSample(
            pid=process.pid,
            started_s=None if process.poll() is not None else psutil.Process(process.pid).create_time(),
            job=f"job{number}",
        )
        for number, process in enumerate(processes)
    )
    snapshot = make_snapshot(sample=replace(make_sample(()), ranks=ranks), findings=findings)
    return replace(snapshot, connection="live", replay=None, **changes)


def test_the_named_job_is_signalled_once_and_no_other(processes: list[subprocess.Popen[bytes]]) -> None:
    guard = StallGuard("job1", signal.SIGTERM)
    assert guard.observe(show(processes)) == []
    assert guard.observe(show(processes, stall("low"))) == [], "a model that is being loaded"
    assert not guard.has_signalled
    [said] = guard.observe(show(processes, stall()))
    assert said == f"used up in 60 s; sent SIGTERM to process {processes[1].pid} of job job1"
    assert processes[1].wait(timeout=10) == -signal.SIGTERM
    assert processes[0].poll() is None
    assert guard.observe(show(processes, stall("critical"))) == [], "the same finding"


def test_a_process_id_that_belongs_to_another_by_now_is_left_alone(
    processes: list[subprocess.Popen[bytes]],
) -> None:
    snapshot = show(processes, stall())
    assert snapshot.sample is not None
    ranks = tuple(replace(it, started_s=(it.started_s or 0.0) - 1000.0) for it in snapshot.sample.ranks)
    [said] = StallGuard("job0", signal.SIGKILL).observe(
        replace(snapshot, sample=replace(snapshot.sample, ranks=ranks))
    )
    assert "belongs to another process" in said
    assert processes[0].poll() is None


def test_a_job_that_does_not_report_is_said(processes: list[subprocess.Popen[bytes]]) -> None:
    [said] = StallGuard("other", signal.SIGKILL).observe(show(processes, stall()))
    assert "no process of job other reports" in said


def test_old_data_signals_nobody(processes: list[subprocess.Popen[bytes]]) -> None:
    snapshot = replace(show(processes, stall()), connection="lost")
    assert StallGuard("job0", signal.SIGKILL).observe(snapshot) == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--connect", "a"), 2, "watches this node alone"),
        (("--json",), 2, "watches this node alone"),
        (("--read-only",), 6, "would signal a job"),
        ((), 7, "no agent serves"),
    ],
)
def test_what_it_refuses(arguments: tuple[str, ...], code: int, said: str, tmp_path: object) -> None:
    outcome = call("guard", "--signal-job", "train", *arguments, VRAMSCOPE_RUNTIME_DIR=str(tmp_path))
    assert outcome.code == code
    assert said in outcome.stderr
