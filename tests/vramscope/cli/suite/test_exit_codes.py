"""Exit codes: 0 done, 3 a finding that was asked about, 2 what cannot be understood, 4 nothing to watch."""

import json
import signal
from pathlib import Path

import pytest

from ....engine.cluster.remote import free_port
from ....pretend_nvml.driver import PretendDriver
from ....waiting import wait_until
from ..running import GIB, call, no_library, run, start
from .running import report_of, write_series

FULL_MIB, TOTAL_MIB = 81400, 81920


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """Return a log of a device that is nearly full for a minute: a finding of medium severity."""
    path = tmp_path / "gpu.log"
    rows = [f"2026/01/05 10:00:{t:02d}.000, 0, {FULL_MIB} MiB, {TOTAL_MIB} MiB" for t in range(60)]
    header = "timestamp, index, memory.used [MiB], memory.total [MiB]"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ((), 0),
        (("--fail-on", "low"), 3),
        (("--fail-on", "medium"), 3),
        # The report calls the device critical by its usage alone, and the exit code agrees with it.
        (("--fail-on", "high"), 3),
        (("--fail-on", "high", "--critical", "99.9"), 0),
    ],
)
def test_a_finding_fails_a_run_only_where_that_was_asked(
    full: Path, flags: tuple[str, ...], code: int
) -> None:
    outcome = call("oom", "--input", str(full), *flags)
    assert outcome.code == code
    (finding,) = [it for it in report_of(outcome, "oom")["findings"] if it["kind"] == "pressure"]
    assert finding["severity"] == "medium"
    assert (finding["device"], finding["device_uuid"]) == (0, None)
    assert finding["closed_s"] is None
    assert 0 <= finding["opened_s"] - report_of(outcome, "oom")["evidence"]["first_s"] <= 20


def test_a_verb_tells_and_judges_its_own_findings_only(full: Path) -> None:
    outcome = call("leak", "--input", str(full), "--fail-on", "low")
    assert (outcome.code, report_of(outcome, "leak")["findings"]) == (0, [])
    outcome = call("profile", "--input", str(full), "--fail-on", "low")
    assert outcome.code == 3


def test_growth_above_a_threshold_that_was_given_counts(tmp_path: Path) -> None:
    path = write_series(tmp_path / "series.csv", seconds=120, growth=2 << 20)
    assert call("leak", "--input", str(path), "--fail-on", "high").code == 0
    assert call("leak", "--input", str(path), "--fail-on", "high", "--threshold", "10").code == 3
    assert call("leak", "--input", str(path), "--fail-on", "high", "--threshold", "500").code == 0


def test_a_finding_that_passed_is_closed_and_still_counts(full: Path) -> None:
    rows = [f"2026/01/05 10:01:{t:02d}.000, 0, 1000 MiB, {TOTAL_MIB} MiB\n" for t in range(60)]
    full.write_text(full.read_text(encoding="utf-8") + "".join(rows), encoding="utf-8")
    outcome = call("oom", "--input", str(full), "--fail-on", "medium")
    assert outcome.code == 3
    (finding,) = [it for it in report_of(outcome, "oom")["findings"] if it["kind"] == "pressure"]
    assert finding["opened_s"] < finding["closed_s"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("profile --duration soon", "--duration soon: not a duration"),
        ("profile --interval 0", "--interval 0: expected from 0.1 s to 3600 s"),
        ("profile --max-snapshots 0", "--max-snapshots 0: expected a whole number from 1"),
        ("oom --threshold 120", "--threshold 120: expected a number from 0 to 100"),
        ("oom --threshold 90 --critical 80", "--critical 80 is below --threshold 90"),
        ("leak --threshold much", "--threshold much: expected a number"),
        ("fragment --max-history none", "--max-history none: expected a whole number"),
        ("profile --fail-on bad", "--fail-on bad: expected low, medium, high, critical"),
        ("profile --every 1h", "--every and --archive need each other"),
        ("profile --archive reports", "--every and --archive need each other"),
        ("profile --pid me", "--pid me: expected a whole number"),
        ("profile --pid 1 --input x.csv", "--pid and --job do not go with --input"),
        ("profile --capacity 80GiB", "--capacity needs --input"),
        ("profile --output missing/report.json", "there is no folder missing"),
        ("profile --dutarion 5", "did you mean --duration?"),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_line(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run(*words.split())
    assert (outcome.code, outcome.stdout) == (2, "")
    assert len(outcome.stderr.splitlines()) == 1
    assert said in outcome.stderr


@pytest.mark.parametrize("verb", ["profile", "oom", "leak", "fragment"])
def test_without_a_device_a_verb_says_why_at_once(verb: str, tmp_path: Path) -> None:
    outcome = run(verb, "--duration", "1h", **no_library(tmp_path))
    assert (outcome.code, outcome.stdout) == (4, "")
    assert outcome.stderr.startswith("vramscope: No NVIDIA driver library")


def test_a_driver_that_is_not_loaded_has_its_own_code(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.raw.init_error = 9
    assert run("profile", "--duration", "1h").code == 5


def test_a_device_that_is_not_there_is_said(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(used_bytes=GIB)
    outcome = run("profile", "--devices", "3", "--duration", "1")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.stderr == "vramscope: --devices 3: no such device; the devices are 0\n"


def test_a_process_that_is_not_there_is_said(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(used_bytes=GIB)
    outcome = run("profile", "--pid", "1", "--duration", "1")
    assert (outcome.code, outcome.stdout) == (4, "")
    assert "process 1 was not seen on any device" in outcome.stderr


def test_text_and_json_can_be_asked_for(tmp_path: Path) -> None:
    path = write_series(tmp_path / "series.csv", seconds=30)
    text = call("profile", "--input", str(path), "--format", "text").stdout
    assert text.startswith("30 samples over 29 s from")
    output = tmp_path / "report.json"
    outcome = call("profile", "--input", str(path), "--output", str(output), "--format", "json")
    assert json.loads(outcome.stdout)["devices"] == json.loads(output.read_text())["devices"]


def test_a_report_whose_folder_has_gone_is_not_lost(
    tmp_path: Path, pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(used_bytes=GIB)
    folder = tmp_path / "gone"
    folder.mkdir()
    process = start(
        "profile", "--duration", "0", "--interval", "0.1", "--output", str(folder / "report.json")
    )
    try:
        calls = pretend_driver.devices[0].calls()
        wait_until(lambda: pretend_driver.devices[0].calls() > calls + 20, 60.0, "readings of the device")
        folder.rmdir()
        process.send_signal(signal.SIGINT)
        printed, complaints = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 2
    assert json.loads(printed)["devices"]["0"]["device_id"] == 0
    assert "the report was printed on standard output instead" in complaints


def test_a_report_is_not_written_over_the_file_that_it_is_of(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("time_s,device,used_bytes\n0,0,1\n1,0,2\n")
    before = path.read_bytes()
    outcome = call("leak", "--input", str(path), "--output", str(path))
    assert (outcome.code, outcome.stderr) == (
        2,
        f"vramscope: {path}: this is the file of --input; name another\n",
    )
    assert path.read_bytes() == before


@pytest.mark.waits
def test_a_watch_that_a_hanging_driver_kept_from_measuring_says_so_and_is_no_success(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], tmp_path: Path
) -> None:
    pretend_driver.add_device()
    pretend_driver.raw.init_hang = 1
    verbs = ("profile", "oom", "leak", "fragment", f"distributed --role master --port {free_port()}")
    flags = ("--duration", "1", "--format", "json")
    watches = {verb: start(*verb.split(), *flags) for verb in verbs}
    for verb, watch in watches.items():
        printed, complaints = watch.communicate(timeout=60)
        assert watch.returncode == 5, verb
        assert "the NVIDIA driver does not answer" in complaints.splitlines()[-1]
        assert bool(printed) == verb.startswith("distributed"), "of others a report, of itself none"


@pytest.mark.waits
def test_a_watch_of_devices_that_never_answered_says_so_and_names_the_one_that_hangs_beside_others(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    hanging = pretend_driver.add_device()
    hanging.hang()
    watches = [start(verb, "--duration", "1") for verb in ("profile", "oom", "leak", "fragment")]
    ended = [(*watch.communicate(timeout=60), watch.returncode) for watch in watches]
    assert [(printed, code) for printed, _, code in ended] == [("", 5)] * 4
    assert all("nothing was measured: device 0: a driver call has not returned" in it[1] for it in ended)
    pretend_driver.add_device()
    outcome = run("profile", "--duration", "1")
    assert outcome.code == 0
    assert "device 0 was not measured: a driver call has not returned" in outcome.stderr
    hanging.release()
