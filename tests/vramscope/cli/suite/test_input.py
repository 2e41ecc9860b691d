"""`--input FILE`: the same reports about what was recorded, in the clock of the file."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ..running import GIB, call
from .running import HEADER, TOTAL, report_of, run_input, write_series

SMI_LOG = """\
timestamp, index, memory.used [MiB], memory.total [MiB]
2026/01/05 10:00:00.000, 0, 40960 MiB, 81920 MiB
2026/01/05 10:00:00.010, 1, 20480 MiB, 81920 MiB
2026/01/05 10:00:01.000, 0, 77824 MiB, 81920 MiB
2026/01/05 10:00:01.010, 1, 20480 MiB, 81920 MiB
2026/01/05 10:00:02.000, 0, 77824 MiB, 81920 MiB
2026/01/05 10:00:02.010, 1, 20480 MiB, 81920 MiB
"""


def test_a_series_gives_the_allocators_figures(tmp_path: Path) -> None:
    path = write_series(tmp_path / "series.csv", seconds=100)
    report = run_input("profile", path)
    device = report["devices"]["0"]
    assert device["memory_source"] == "allocator"
    assert device["current_memory"]["allocated"] == 20 * GIB + 9 * 300_000_000
    assert device["current_memory"]["total"] == TOTAL
    assert device["statistics"]["num_snapshots"] == 100
    assert report["summary"]["monitoring_duration"] == 99.0
    assert (report["evidence"]["source"], report["evidence"]["clock"]) == ("input", "trace")
    assert device["device_uuid"] is None


def test_a_report_does_not_go_into_a_file_named_as_a_figure(tmp_path: Path) -> None:
    path = write_series(tmp_path / "series.csv", seconds=5)
    refused = call("profile", "--input", str(path), "-o", str(tmp_path / "smi.png"))
    assert (refused.code, refused.stdout) == (2, "")
    assert f"the report is JSON; --figure {tmp_path / 'smi.png'} draws a figure" in refused.stderr
    assert not (tmp_path / "smi.png").exists()


def test_growth_at_step_ends_is_forecast_and_a_leak(tmp_path: Path) -> None:
    path = write_series(tmp_path / "series.csv", seconds=700, growth=60_000_000)
    outcome = call("oom", "--input", str(path), "--fail-on", "medium")
    report = report_of(outcome, "oom")
    risk = report["devices"]["0"]["risk_assessment"]
    assert (outcome.code, risk["basis"]) == (3, "forecast")
    full_s = (TOTAL - 1.5 * GIB - 20 * GIB - 9 * 300_000_000) / 60_000_000 - 699
    low, high = risk["predicted_oom_time_low_seconds"], risk["predicted_oom_time_high_seconds"]
    assert low <= risk["predicted_oom_time_seconds"] <= high
    assert risk["predicted_oom_time_seconds"] == pytest.approx(full_s, rel=0.2)
    assert risk["growth_rate_mb_per_sec"] == pytest.approx(60_000_000 / 2**20, rel=0.1)
    assert [it["kind"] for it in report["findings"]] == ["oom"]
    leak = run_input("leak", path)
    assert leak["monitoring_summary"]["total_leaks_detected"] == 1
    (event,) = leak["leak_events"]
    assert event["leak_rate_mb_per_min"] == pytest.approx(60 * 60_000_000 / 2**20, rel=0.1)
    assert (event["device_id"], event["severity"], event["timestamp"]) == (0, "critical", None)
    assert leak["devices"]["0"]["leak_risk"] == "high"


def test_a_log_of_nvidia_smi_gives_device_memory_and_no_forecast(tmp_path: Path) -> None:
    path = tmp_path / "gpu.log"
    path.write_text(SMI_LOG, encoding="utf-8")
    report = run_input("oom", path)
    first, second = report["devices"]["0"], report["devices"]["1"]
    assert first["memory_source"] == "device"
    assert first["risk_assessment"]["risk_level"] == "critical"
    assert (first["risk_assessment"]["basis"], first["risk_assessment"]["forecast"]) == (
        "threshold",
        "unknown",
    )
    assert second["risk_assessment"]["risk_level"] == "low"
    assert report["evidence"]["clock"] == "wall"
    memory = run_input("profile", path)["devices"]["0"]["current_memory"]
    assert (memory["allocated"], memory["utilization"]) == (76 * GIB, 95.0)


def test_only_the_devices_asked_for_are_told(tmp_path: Path) -> None:
    path = tmp_path / "gpu.log"
    path.write_text(SMI_LOG, encoding="utf-8")
    assert set(run_input("profile", path, "--devices", "1")["devices"]) == {"1"}
    outcome = call("profile", "--input", str(path), "--devices", "5")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.stderr == "vramscope: --devices 5: no such device; the devices are 0, 1\n"


def test_what_limits_the_figures_of_a_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "gpu.log"
    path.write_text(SMI_LOG, encoding="utf-8")
    outcome = call("profile", "--input", str(path))
    (note,) = [line.removeprefix("vramscope: ") for line in outcome.stderr.splitlines()]
    assert "local time" in note
    assert note in report_of(outcome, "profile")["evidence"]["notes"]


def test_a_duration_ends_the_reading_in_the_time_of_the_file(tmp_path: Path) -> None:
    path = write_series(tmp_path / "series.csv", seconds=100)
    report = run_input("profile", path, "--duration", "30")
    assert report["evidence"]["last_s"] == 30.0


def test_an_interval_thins_the_snapshots_of_a_file(tmp_path: Path) -> None:
    path = write_series(tmp_path / "series.csv", seconds=100)
    report = run_input("profile", path, "--interval", "10")
    assert report["devices"]["0"]["statistics"]["num_snapshots"] == 10
    assert report["evidence"]["samples"] == 100


def test_a_capacity_stands_in_where_the_file_has_none(tmp_path: Path) -> None:
    path = tmp_path / "series.csv"
    path.write_text("time_s,device,allocated_bytes\n" + "".join(f"{t},0,{GIB}\n" for t in range(20)))
    unknown = run_input("profile", path)["devices"]["0"]["current_memory"]
    assert (unknown["total"], unknown["utilization"]) == (None, None)
    known = run_input("profile", path, "--capacity", "4GiB")["devices"]["0"]
    assert known["current_memory"]["utilization"] == 25.0
    assert known["utilization_of"] == "allocated"


@pytest.mark.parametrize("verb", ["profile", "oom", "leak", "fragment"])
@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "no such file"), ("", "the file is empty"), ("a,b\n1,2\n", "series.csv")],
    ids=["missing", "empty", "nothing known"],
)
def test_a_file_that_cannot_be_understood_is_refused(
    verb: str, content: str | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "series.csv"
    if content is not None:
        path.write_text(content)
    outcome = call(verb, "--input", str(path))
    assert (outcome.code, outcome.stdout) == (2, "")
    assert len(outcome.stderr.splitlines()) == 1
    assert said in outcome.stderr
    assert "series.csv" in outcome.stderr


def test_one_sample_is_a_report(tmp_path: Path) -> None:
    path = write_series(tmp_path / "series.csv", seconds=1)
    for verb in ("profile", "oom", "leak", "fragment"):
        report = report_of(call(verb, "--input", str(path)), verb)
        assert report["evidence"]["samples"] == 1


def _write_troubled_series(path: Path) -> Path:
    """Write an hour with figures that are none, times twice, late or missing, and a card that shrinks."""
    lines = []
    for at in range(3600):
        if 1200 <= at < 1500:
            continue
        total = TOTAL if at < 2400 else TOTAL // 2
        cells = ("nan", "inf", "", "-inf") if at % 50 == 7 else (20 * GIB, 30 * GIB, 31 * GIB, total)
        row = f"{at},0,{','.join(map(str, cells))},{at // 10 % 120}\n"
        lines += [row, row] if at % 40 == 3 else [row]
        lines += [f"{at - 5},0,{21 * GIB},,,,\n"] if at % 70 == 9 else []
        lines += [f"inf,0,{GIB},,,,\n", f"nan,0,{GIB},,,,\n"] if at == 100 else []
    path.write_text(HEADER + "".join(lines) + f"3599,1,{GIB},,,,\n", encoding="utf-8")
    return path


def _write_troubled_log(path: Path) -> Path:
    lines = SMI_LOG.splitlines()[:1]
    for at in range(600):
        used = {13: "nan MiB", 14: "inf", 15: "[N/A]", 16: "[GPU is lost]"}.get(at % 60, "40960 MiB")
        total = "81920 MiB" if at < 300 else "40960 MiB"
        time = f"2026/01/05 10:{at // 60:02}:{at % 60:02}.000"
        lines += [f"{time}, 0, {used}, {total}"] * (2 if at % 40 == 3 else 1)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("verb", ["profile", "oom", "leak", "fragment"])
@pytest.mark.parametrize("write", [_write_troubled_series, _write_troubled_log])
def test_a_file_full_of_trouble_is_a_report(verb: str, write: Callable[[Path], Path], tmp_path: Path) -> None:
    outcome = call(verb, "--input", str(write(tmp_path / "troubled")))
    assert outcome.code == 0, outcome.stderr
    json.loads(outcome.stdout, parse_constant=pytest.fail)
    report = report_of(outcome, verb)
    assert [it["title"] for it in report["findings"] if it["kind"] != "pressure"] == []
    notes = " ".join(report["evidence"]["notes"])
    assert "left out" in notes
    assert "capacity" in notes


def test_a_threshold_that_was_given_is_a_finding_said_live_and_in_the_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "climb.csv"
    rows = [f"{t},0,{round((0.73 + 0.259 * t / 59) * TOTAL)},{TOTAL}\n" for t in range(60)]
    path.write_text("time_s,device,used_bytes,total_bytes\n" + "".join(rows))
    flags = ("--threshold", "75", "--critical", "95", "--monitor", "--fail-on", "high")
    outcome = call("oom", "--input", str(path), *flags)
    assert outcome.code == 3
    medium, critical = outcome.stderr.splitlines()
    assert "vramscope: 5.0 s medium: GPU 0 at 75.2 % of its memory, above the threshold of 75 %" in medium
    assert "critical: GPU 0 at 95.4 % of its memory, above the critical threshold of 95 %" in critical
    (finding,) = report_of(outcome, "oom")["findings"]
    assert (finding["kind"], finding["severity"], finding["closed_s"]) == ("threshold", "critical", None)
    assert finding["title"].startswith("GPU 0 at 98.9 %")
    text = call("oom", "--input", str(path), *flags[:4], "--format", "text")
    assert "critical threshold crossed: GPU 0 at 98.9 %" in text.stdout
    assert (text.code, text.stderr) == (0, "")


def test_nothing_is_drawn_of_what_nobody_measured(tmp_path: Path) -> None:
    (tmp_path / "gpu.csv").write_text(SMI_LOG)
    drawn = call("profile", "--input", str(tmp_path / "gpu.csv"), "--figure", f"{tmp_path}/")
    stems = {path.stem for path in tmp_path.glob("*.png")}
    assert stems == {"gpu_0_memory_usage", "gpu_1_memory_usage", "memory_heatmap"}
    assert "device 0: no figure of fragmentation: no allocator data for this device" in drawn.stderr
