"""The recipes of docs/alert-recipes.md, run with stand-ins for `scontrol` and `vramscope`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.alerts.findings import make_finding
from tests.structure.tree import ROOT
from vramscope.engine.alerts.deliverer import deliver
from vramscope.engine.alerts.delivery import DeliveryJob, Hook, make_alert
from vramscope.engine.alerts.state import Crossing
from vramscope.engine.model import Severity
from vramscope.engine.settings.model import AlertEvent

DEPLOYMENT = ROOT / "docs/deployment"
REQUEUE = DEPLOYMENT / "slurm-requeue.py"
CHECK = DEPLOYMENT / "node-problem-detector/check-gpus.py"
MONITOR = DEPLOYMENT / "node-problem-detector/vramscope-gpus.json"
STATUS = {
    "devices": [
        {
            "uuid": "GPU-a",
            "processes": [{"pid": 1, "slurm_job": "812"}, {"pid": 2, "slurm_job": "812"}, {"pid": 3}],
        },
        {"uuid": "GPU-b", "processes": [{"pid": 4, "slurm_job": "900"}]},
        {"uuid": "GPU-c", "processes": None},
    ],
    "findings": [],
}


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with what a stand-in for `scontrol` notes and what one for `vramscope` prints."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (
        ("scontrol", f'#!/bin/sh\nprintf "%s|" "$@" >> {tmp_path}/said; echo >> {tmp_path}/said\n'),
        ("vramscope", f'#!/bin/sh\n[ "$*" = "--once --json" ] && cat {tmp_path}/status\n'),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (tmp_path / "status").write_text(json.dumps(STATUS))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURMD_NODENAME", "node07")
    return tmp_path


def alert(
    folder: Path,
    *words: str,
    kind: str = "device_error",
    severity: Severity = "critical",
    event: AlertEvent = "opened",
    uuid: str = "GPU-a",
    is_test: bool = False,
) -> list[list[str]]:
    """Deliver an alert to the script as the agent does; return the words of each call of `scontrol`."""
    finding = make_finding(kind, severity, uuid=uuid, title="GPU 0 XID 79: fell off the bus")
    made = make_alert(Crossing(event, finding, severity), "9.9", is_test=is_test)
    deliver(DeliveryJob(Hook(command=(sys.executable, str(REQUEUE), *words), timeout_s=30.0), made))
    said = folder / "said"
    return [line.rstrip("|").split("|") for line in said.read_text().splitlines()] if said.exists() else []


def test_a_failed_gpu_drains_the_node_and_requeues_its_jobs_once_each(stand_ins: Path) -> None:
    assert alert(stand_ins) == [
        ["update", "NodeName=node07", "State=DRAIN", "Reason=vramscope: GPU 0 XID 79: fell off the bus"],
        ["requeue", "812"],
    ]


def test_of_a_gpu_without_readable_processes_nothing_is_requeued(stand_ins: Path) -> None:
    assert [words[0] for words in alert(stand_ins, uuid="GPU-c")] == ["update"]


def test_a_dry_run_a_test_alert_and_other_findings_change_nothing(stand_ins: Path) -> None:
    assert alert(stand_ins, "--dry-run") == []
    assert alert(stand_ins, is_test=True) == []
    assert alert(stand_ins, kind="leak") == []
    assert alert(stand_ins, severity="medium") == []
    assert alert(stand_ins, event="closed") == []


@pytest.mark.parametrize(
    ("findings", "code", "text"),
    [
        ([], 0, "no GPU has a problem"),
        ([("leak", "critical", None)], 0, "no GPU has a problem"),
        ([("device_error", "medium", None)], 0, "no GPU has a problem"),
        ([("device_error", "critical", 5.0)], 0, "no GPU has a problem"),
        ([("host_stall", "high", None), ("device_lost", "critical", None)], 1, "device_lost"),
    ],
)
def test_the_check_of_node_problem_detector_says_the_worst(
    stand_ins: Path, findings: list[tuple[str, str, float | None]], code: int, text: str
) -> None:
    told = [
        {"kind": kind, "severity": severity, "closed_s": closed_s, "title": kind + " " + "x" * 300}
        for kind, severity, closed_s in findings
    ]
    (stand_ins / "status").write_text(json.dumps({**STATUS, "findings": told}))
    assert check() == (code, text if code == 0 else f"device_lost {'x' * 135} (and 1 more)")


def test_the_check_says_unknown_where_vramscope_says_nothing(stand_ins: Path) -> None:
    (stand_ins / "status").write_text("vramscope: no GPU")
    assert check()[0] == 2


def check() -> tuple[int, str]:
    done = subprocess.run([sys.executable, CHECK], capture_output=True, encoding="utf-8", check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.rstrip("\n")


def test_the_monitor_has_the_fields_that_the_detector_reads_and_passes_its_rules() -> None:
    """`pkg/custompluginmonitor/types/config.go` and `types.go` of node-problem-detector."""
    config = json.loads(MONITOR.read_text())
    assert config.keys() <= {"plugin", "pluginConfig", "source", "conditions", "rules", "metricsReporting"}
    assert config["plugin"] == "custom"
    assert config["pluginConfig"].keys() <= {
        "invoke_interval",
        "timeout",
        "max_output_length",
        "concurrency",
        "enable_message_change_based_condition_update",
        "skip_initial_status",
    }
    (rule,) = config["rules"]
    assert rule.keys() <= {"type", "condition", "reason", "path", "args", "timeout", "invoke_interval"}
    assert rule["type"] == "permanent"
    assert rule["condition"] in {it["type"] for it in config["conditions"]}
    assert int(rule["timeout"][:-1]) <= int(config["pluginConfig"]["timeout"][:-1])
    assert rule["path"].endswith(CHECK.name)
    assert "MOST_CHARS = 160" in CHECK.read_text()
    assert config["pluginConfig"]["max_output_length"] == 160
