"""A job on the simulated device: its allocator's figures, filters by process and job, the line that leaks."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY
from tests.components import require_package
from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.wire.endpoints import holder_pid, is_hub_alive

from ....engine.ranks.running import await_steps
from ....engine.uncompiled import UNCOMPILED
from ....waiting import wait_until
from ..running import Outcome, Program, run, start
from .running import report_of

MIB = 1 << 20
LEAKING = (
    UNCOMPILED
    + """
import os, sys, time, torch
torch.set_num_threads(1)
weights = torch.nn.Parameter(torch.zeros(1 << 20, device="cuda"))
optimizer = torch.optim.SGD([weights], lr=0.1)
kept = []
def remember(batch):
    kept.append(torch.ones(1 << 18, device="cuda"))
while os.getppid() != 1:
    try:
        (weights * 2.0).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        remember(None)
    except torch.OutOfMemoryError:
        kept.clear()
    time.sleep(0.05)
"""
)


@pytest.fixture
def job(tmp_path: Path, private_environment: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a job that keeps 1 MiB a step until it is ended, with an agent that sees it."""
    require_package("torch")
    script = tmp_path / "train.py"
    script.write_text(LEAKING)
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "vramscope",
            "run",
            "--quiet",
            "--job",
            "lab",
            "--simulate",
            "2GiB",
            "--fake",
            "--",
            sys.executable,
            script,
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)},
        stderr=subprocess.DEVNULL,
    )
    try:
        await_steps()
        yield process
    finally:
        process.kill()
        process.wait()
        end_agent()


def end_agent() -> None:
    """End the agent of the job."""
    folder = locate_runtime_folder()
    pid = holder_pid(folder) if is_hub_alive(folder) else None
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the end of the agent")


def watch_until_mapped() -> dict[str, Any]:
    """Return what is told of the device of the job; on a slow machine its first map takes a while."""
    for duration in ("4", "16", "48"):
        fragment = report_of(run("fragment", "--duration", duration, "--job", "lab"), "fragment")
        (device,) = fragment["devices"].values()
        if device["current_metrics"]["num_free_blocks"] is not None:
            return dict(device)
    raise AssertionError("the job told of no segment map")


@pytest.mark.waits
@pytest.mark.timeout(600)
def test_a_leaking_job_is_seen_from_the_inside_and_its_line_is_named(job: "subprocess.Popen[bytes]") -> None:
    """One job for all: what takes long is to start one, and the time until it is a leak."""
    with start("--json") as stream:
        check_reports(job.pid)
        check_line_found_by_the_agent(stream, job.pid)
    check_line_found_by_tracking(job.pid)


def check_reports(pid: int) -> None:
    """Check what is told of a job by its allocator, found by process or name."""
    outcome = run("profile", "--duration", "2", "--pid", str(pid))
    report = report_of(outcome, "profile")
    (device,) = report["devices"].values()
    assert device["memory_source"] == "allocator"
    assert 0 < device["current_memory"]["allocated"] <= device["current_memory"]["reserved"]
    assert device["current_memory"]["reserved"] < device["current_memory"]["used"] <= 2 << 30
    assert device["statistics"]["avg_fragmentation"] is not None
    assert (report["evidence"]["source"], report["evidence"]["pid"]) == ("agent", pid)

    device = watch_until_mapped()
    assert device["pid"] == pid
    assert sum(device["allocation_pattern"]["size_distribution"].values()) > 0

    outcome = run("leak", "--duration", "1", "--job", "other")
    assert (outcome.code, outcome.stdout) == (4, "")
    assert "job other was not seen on any device" in outcome.stderr


def check_line_found_by_the_agent(stream: Program, pid: int) -> None:
    """Check that the agent looks for the line of a leak by itself, and that the stream tells it."""
    assert stream.stdout is not None
    lines = (json.loads(line) for line in stream.stdout)
    found = (finding for line in lines for finding in line["findings"] if finding["kind"] == "leak")
    named = next((finding for finding in found if "kept by" in finding["title"]), None)
    stream.kill()
    assert named is not None, "the stream ended before the line was named"
    assert named["title"].endswith(", kept by remember() at train.py:13")
    assert named["advice"].startswith("Look at remember() at train.py:13: ")
    evidence = {each["name"]: each["value"] for each in named["evidence"]}
    assert evidence["process"] == pid
    assert evidence["source file"].endswith("/train.py:13")
    assert evidence["share of the growth"] == 100


def check_line_found_by_tracking(pid: int) -> None:
    """Check that tracking that is asked for names the line too."""
    process = start("leak", "--enable-tracking", "--duration", "0", "--interval", "1")
    assert process.stderr is not None
    try:
        said = next(line for line in process.stderr if "most of the growth is kept by" in line)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert f"process {pid}: most of the growth is kept by remember() at train.py:13" in said
    tracking = report_of(Outcome(0, printed, ""), "leak")["tracking"]
    assert (tracking["active"], tracking["pids"]) == (True, [pid])
    source = tracking["sources"][0]
    assert (source["line"], source["function"]) == (13, "remember")
    assert source["grown_bytes"] >= MIB


def test_without_a_job_tracking_says_why_it_could_not_be(tmp_path: Path) -> None:
    path = tmp_path / "series.csv"
    path.write_text("time_s,device,allocated_bytes\n1,0,1048576\n2,0,1048576\n")
    outcome = run("leak", "--enable-tracking", "--input", str(path))
    tracking = report_of(outcome, "leak")["tracking"]
    assert (tracking["requested"], tracking["active"]) == (True, False)
    assert "only a running job can record them" in tracking["reason"]
    assert "only a running job can record them" in outcome.stderr
