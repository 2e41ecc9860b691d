"""Reports period after period, each in a file of its own."""

import itertools
import json
import re
import signal
from pathlib import Path

from ....pretend_nvml.driver import PretendDriver
from ....waiting import wait_until
from ..running import GIB, call, run, start
from .running import read_report, write_series


def test_a_file_is_reported_period_after_period_in_its_own_time(tmp_path: Path) -> None:
    series, archive = write_series(tmp_path / "series.csv", seconds=95), tmp_path / "reports" / "here"
    outcome = call("profile", "--input", str(series), "--every", "30s", "--archive", str(archive))
    assert (outcome.code, outcome.stdout) == (0, "")
    files = sorted(archive.iterdir())
    assert all(re.fullmatch(r"profile-\d{8}\.\d{3}s\.json", path.name) for path in files)
    counts = [read_report(path, "profile")["evidence"]["samples"] for path in files]
    assert sum(counts) == 95
    assert len(counts) == 4
    assert outcome.stderr.count("wrote the report to ") == 4


def test_a_node_is_reported_until_ctrl_c(
    tmp_path: Path, pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(used_bytes=GIB)
    archive = tmp_path / "reports"
    process = start("oom", "--every", "1s", "--interval", "0.1", "--archive", str(archive))
    try:
        wait_until(
            lambda: archive.is_dir() and len(list(archive.glob("oom-*.json"))) >= 2, 30.0, "two reports"
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.communicate()
    reports = [read_report(path, "oom") for path in sorted(archive.iterdir())]
    assert all(re.fullmatch(r"oom-\d{8}T\d{6}Z(-\d+)?\.json", path.name) for path in archive.iterdir())
    spans = sorted((it["evidence"]["first_s"], it["evidence"]["last_s"]) for it in reports)
    assert all(last < first for (_, last), (first, _) in itertools.pairwise(spans))


def test_a_finding_that_stays_open_is_in_every_period(tmp_path: Path) -> None:
    path, archive = tmp_path / "gpu.csv", tmp_path / "reports"
    total = 80 * GIB
    rows = [f"{t},0,{total - (100 << 20)},{total}\n" for t in range(120)]
    path.write_text("time_s,device,used_bytes,total_bytes\n" + "".join(rows), encoding="utf-8")
    outcome = run(
        "oom", "--input", str(path), "--every", "40", "--archive", str(archive), "--fail-on", "medium"
    )
    assert outcome.code == 3
    found = [json.loads(file.read_bytes())["findings"] for file in sorted(archive.iterdir())]
    ids = [{it["id"] for it in findings if it["kind"] == "pressure"} for findings in found]
    assert len(ids) >= 3
    assert len(set.union(*ids)) == 1
