"""`vramscope --once`: the table, the object, and the exit code that says what is missing."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests import REPOSITORY

from ...pretend_nvml.driver import PretendDriver
from ...pretend_nvml.layout import FunctionClass
from ...waiting import wait_until
from .running import GIB, no_library, run, start

SCHEMA: dict[str, Any] = json.loads((REPOSITORY / "docs/status.schema.json").read_text(encoding="utf-8"))


def test_the_table_shows_each_device_the_processes_and_the_host(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    for number in range(2):
        pretend_driver.add_device(name=f"Card {number}", used_bytes=(10 + number) * GIB)
    pretend_driver.devices[1].set_processes([(os.getpid(), 3 * GIB, "compute")])
    outcome = run("--once")
    assert (outcome.code, outcome.stderr) == (0, "")
    rows = {line.split()[0]: line for line in outcome.stdout.splitlines() if line[:1].isdigit()}
    assert "Card 0" in outcome.stdout
    assert "10.0/80.0" in outcome.stdout
    assert "11.0/80.0" in outcome.stdout
    assert f"{os.getpid()}" in rows["1"]
    assert "3.0 GiB" in rows["1"]
    assert "OOM risk unknown" in outcome.stdout
    assert "host memory" in outcome.stdout


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 200])
def test_the_table_fits_the_columns_it_is_given(
    columns: int, pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    device = pretend_driver.add_device(name="A card with a name longer than most of them are")
    device.set_processes([(os.getpid(), GIB, "compute")])
    outcome = run("--once", COLUMNS=str(columns))
    assert max(map(len, outcome.stdout.splitlines())) <= columns
    assert "1.0/80.0" in outcome.stdout


def test_in_a_pipe_the_table_has_80_columns_and_no_colour(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(name="A card with a name longer than most of them are")
    outcome = run("--once", TERM="xterm-256color")
    assert max(map(len, outcome.stdout.splitlines())) <= 80
    assert "\x1b" not in outcome.stdout


def test_colour_can_be_asked_for_and_refused(pretend_environment: dict[str, str]) -> None:
    assert "\x1b[" in run("--once", "--color", NO_COLOR="1").stdout
    assert "\x1b[" in run("--once", VRAMSCOPE_COLOR="true").stdout
    assert "\x1b[" not in run("--once", "--no-color", VRAMSCOPE_COLOR="true").stdout
    assert "\x1b[" not in run("--once", "--color", "--theme", "mono").stdout


def test_ascii_prints_nothing_else(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(name="Kärtchen")
    assert run("--once", "--ascii").stdout.isascii()
    assert not run("--once").stdout.isascii()


def test_a_locale_without_utf8_gets_ascii(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device()
    outcome = run("--once", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii")
    assert outcome.code == 0
    assert outcome.stdout.isascii()


def test_the_object_follows_its_schema_and_holds_what_was_promised(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    device = pretend_driver.add_device(name="Card", used_bytes=12 * GIB)
    device.set_processes([(os.getpid(), GIB, "compute")])
    outcome = run("--once", "--json")
    assert (outcome.code, outcome.stderr) == (0, "")
    (status,) = outcome.lines
    jsonschema.validate(status, SCHEMA)
    assert status["schema"] == "vramscope.status/1"
    assert abs(status["time"] - time.time()) < 60
    assert status["host"]["total_bytes"] > 0
    (shown,) = status["devices"]
    assert shown["uuid"] == device.uuid
    assert (shown["index"], shown["name"], shown["state"], shown["reason"]) == (0, "Card", "ok", None)
    assert 0 <= shown["age_s"] < 5
    memory = shown["memory"]
    assert (memory["total_bytes"], memory["used_bytes"]) == (80 * GIB, 12 * GIB)
    assert memory["used_min_bytes"] <= memory["used_bytes"] <= memory["used_max_bytes"]
    assert memory["free_bytes"] == 68 * GIB
    assert (shown["utilization_percent"], shown["temperature_c"], shown["power_w"]) == (50, 55, 350)
    (process,) = shown["processes"]
    assert (process["pid"], process["used_bytes"]) == (os.getpid(), GIB)
    assert "python" in process["command"] or "pytest" in process["command"]
    assert status["findings"] == []
    assert status["notes"] == []


def test_what_the_driver_does_not_tell_is_null_and_a_dash(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    device = pretend_driver.add_device()
    for function_class in (FunctionClass.UTILIZATION, FunctionClass.TEMPERATURE, FunctionClass.POWER):
        device.fail(function_class, 3)
    (status,) = run("--once", "--json").lines
    jsonschema.validate(status, SCHEMA)
    shown = status["devices"][0]
    assert (shown["utilization_percent"], shown["temperature_c"], shown["power_w"]) == (None, None, None)
    row = next(line for line in run("--once").stdout.splitlines() if line.startswith("0 "))
    assert row.count("—") == 4, "and no trend yet"


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        ((9, 5), "NVIDIA driver not loaded"),
        ((18, 5), "NVIDIA driver/library version mismatch"),
        ((4, 6), "The NVIDIA driver refused this user"),
        ((999, 4), "NVML could not be started"),
    ],
)
@pytest.mark.parametrize("flags", [("--once",), ("--once", "--json")], ids=["table", "json"])
def test_each_trouble_with_the_driver_has_its_sentence_and_exit_code(
    trouble: tuple[int, int],
    sentence: str,
    flags: tuple[str, ...],
    pretend_driver: PretendDriver,
    pretend_environment: dict[str, str],
) -> None:
    pretend_driver.raw.init_error, code = trouble
    outcome = run(*flags)
    assert outcome.code == code
    assert outcome.stderr.startswith(f"vramscope: {sentence}")
    assert len(outcome.stderr.splitlines()) == 1
    assert "host" in outcome.stdout
    if "--json" in flags:
        jsonschema.validate(outcome.lines[0], SCHEMA)
        assert outcome.lines[0]["notes"][0].startswith(sentence)


def test_without_the_library_the_host_is_shown_and_the_code_is_4(tmp_path: Path) -> None:
    outcome = run("--once", **no_library(tmp_path))
    assert outcome.code == 4
    assert "host memory" in outcome.stdout
    assert outcome.stderr.startswith("vramscope: No NVIDIA driver library: libnvidia-ml.so.1 was not found")


def test_a_driver_without_devices_is_no_device(pretend_environment: dict[str, str]) -> None:
    outcome = run("--once", "--json")
    assert outcome.code == 4
    assert outcome.lines[0]["devices"] == []
    assert outcome.stderr.count("\n") == 1


@pytest.mark.waits
def test_a_driver_that_hangs_holds_nothing_up(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device()
    pretend_driver.raw.init_hang = 1
    outcome = run("--once")
    assert outcome.code == 5
    assert "the NVIDIA driver does not answer" in outcome.stderr
    assert "host memory" in outcome.stdout


def test_a_driver_that_takes_seconds_to_start_is_waited_for(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device()
    pretend_driver.raw.init_hang = 1
    process = start("--once", "--json")
    wait_until(lambda: pretend_driver.raw.init_waiting, what="the driver to be asked")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1.2)
    pretend_driver.raw.init_hang = 0
    printed, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (0, "")
    assert len(json.loads(printed)["devices"]) == 1


def test_nothing_is_started_and_nothing_is_left(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], private_environment: Path
) -> None:
    pretend_driver.add_device()
    run("--once")
    assert list((private_environment / "run").iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "forbidden"),
    [
        (("--version",), ("rich", "textual", "zmq", "psutil", "pynvml")),
        (("--once", "--json"), ("rich", "textual", "zmq")),
        (("--json", "--duration", "2"), ("rich", "textual", "zmq")),
        (("--once",), ("textual", "zmq")),
    ],
    ids=" ".join,
)
def test_the_headless_path_loads_no_heavy_library(
    flags: tuple[str, ...],
    forbidden: tuple[str, ...],
    pretend_driver: PretendDriver,
    pretend_environment: dict[str, str],
) -> None:
    pretend_driver.add_device()
    outcome = run(*flags, PYTHONPROFILEIMPORTTIME="1")
    assert outcome.code == 0
    loaded = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in outcome.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "vramscope" in loaded
    assert loaded.isdisjoint(forbidden)
