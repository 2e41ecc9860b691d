"""The dashboard, the alert rules and the example of docs/prometheus, held against what is really served."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.components import require
from tests.exporters.prometheus.scraped import make_picture, make_training, render, scrape
from tests.structure.tree import ROOT

FOLDER = ROOT / "docs/prometheus"
NAME = re.compile(r"\bvramscope_[a-z0-9_]+")
RISK_LABELS = {"node": "n", "device": "0", "pid": "7", "level": "high"}
FULL_DEVICE = 'vramscope_device_{}{{node="n",device="0",uuid="GPU-a"}}'


def promtool(*words: str | Path, text: bytes | None = None) -> str:
    """Run promtool and return what it said; it has to find nothing wrong."""
    done = subprocess.run(
        [require("promtool"), *words], input=text, capture_output=True, check=False, timeout=60, cwd=FOLDER
    )
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


def test_promtool_finds_nothing_wrong_with_what_is_served() -> None:
    text = render(make_picture(make_training())).encode()
    assert promtool("check", "metrics", text=text) == ""


def test_promtool_finds_nothing_wrong_with_rules_and_example() -> None:
    assert "8 rules found" in promtool("check", "config", FOLDER / "prometheus.yml")


@pytest.mark.parametrize("name", ["dashboard.json", "alerts.yml"])
def test_every_metric_that_is_asked_for_is_served(name: str) -> None:
    asked = set(NAME.findall((FOLDER / name).read_text()))
    assert len(asked) > 8
    assert asked <= scrape(make_picture(make_training())).names


def test_panels_of_the_dashboard_stand_beside_each_other_and_each_asks_for_something() -> None:
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    cells = [
        (x, y)
        for panel in panels
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert all(NAME.search(target["expr"]) for panel in panels for target in panel["targets"])
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_rules_fire_where_they_should_and_nowhere_else(tmp_path: Path) -> None:
    """A card that an allocator fills is healthy; the same card without a process that reports is told of."""
    risk = 'vramscope_oom_risk_level{node="n",device="0",uuid="GPU-a",rank="3",pid="7",level="high"}'
    series = {
        FULL_DEVICE.format("used_max_bytes"): "99x20",
        FULL_DEVICE.format("capacity_bytes"): "100x20",
        FULL_DEVICE.format("used_max_bytes").replace("GPU-a", "GPU-b"): "99x20",
        FULL_DEVICE.format("capacity_bytes").replace("GPU-a", "GPU-b"): "100x20",
        'vramscope_rank_up{node="n",device="0",uuid="GPU-a",rank="3",pid="7"}': "1x20",
        FULL_DEVICE.format("up").replace("GPU-a", "GPU-c"): "0x20",
        risk: "0 0 1x18",
        risk.replace("GPU-a", "GPU-d").replace('rank="3"', 'rank=""'): "0 0 1x18",
    }
    fired = {
        "VramscopeDeviceFull": ["GPU-b"],
        "VramscopeOutOfMemorySoon": ["GPU-a", "GPU-d"],
        "VramscopeDeviceDown": ["GPU-c"],
        "VramscopeAgentDown": [],
    }
    tests = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count by (alertname, uuid) (ALERTS{{alertname="{alert}",alertstate="firing"}})',
                "eval_time": "10m",
                "exp_samples": [
                    {"labels": f'{{alertname="{alert}",uuid="{uuid}"}}', "value": 1} for uuid in uuids
                ],
            }
            for alert, uuids in fired.items()
        ],
    }
    tests["alert_rule_test"] = [
        {
            "eval_time": "10m",
            "alertname": "VramscopeOutOfMemorySoon",
            "exp_alerts": [
                {
                    "exp_labels": {**RISK_LABELS, "uuid": uuid, **rank, "severity": "critical"},
                    "exp_annotations": {
                        "summary": f"n: {who} on GPU 0 is estimated to run out of memory (high risk)"
                    },
                }
                # A process of a job without ranks has an empty label.
                for uuid, rank, who in (("GPU-a", {"rank": "3"}, "rank 3"), ("GPU-d", {}, "process 7"))
            ],
        }
    ]
    path = tmp_path / "rules.json"  # JSON is YAML
    path.write_text(json.dumps({"rule_files": [str(FOLDER / "alerts.yml")], "tests": [tests]}))
    assert "SUCCESS" in promtool("test", "rules", path)
