"""Ctrl-C and SIGTERM end a watch with the report of what was seen; progress goes to stderr."""

import json
import signal
import sys

import pytest

from ....pretend_nvml.driver import PretendDriver
from ....waiting import wait_until
from ..running import GIB, environment, start
from ..terminals import TerminalRun


def wait_for_readings(driver: PretendDriver) -> None:
    """Return once the first device has been read for a while."""
    device = driver.devices[0]
    calls = device.calls()
    wait_until(lambda: device.calls() > calls + 40, 60.0, "readings of the device")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("words", ["oom --threshold 85 --monitor", "profile --duration 0", "leak"])
def test_a_signal_ends_a_watch_with_its_report(
    words: str,
    number: signal.Signals,
    pretend_driver: PretendDriver,
    pretend_environment: dict[str, str],
) -> None:
    pretend_driver.add_device(used_bytes=12 * GIB)
    process = start(*words.split(), "--interval", "0.1")
    try:
        wait_for_readings(pretend_driver)
        process.send_signal(number)
        printed, complaints = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, complaints) == (0, "")
    assert json.loads(printed)["devices"]["0"]["device_id"] == 0


@pytest.mark.waits
def test_a_watch_that_is_ended_before_a_reading_blames_no_driver(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    device = pretend_driver.add_device()
    device.hang(is_unreachable=True)
    process = start("leak", "--interval", "0.1")
    try:
        wait_until(lambda: device.waiting > 0, 60.0, "a call that hangs")
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 5
    assert "ended before the first reading" in complaints


@pytest.mark.waits
def test_a_watch_that_was_ended_gives_3_for_what_it_found(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(used_bytes=80 * GIB - (100 << 20))
    process = start("oom", "--monitor", "--interval", "0.1", "--fail-on", "low")
    stderr = process.stderr
    assert stderr is not None
    try:
        # Pressure opens after ten seconds; a monitor says so as it happens.
        said = stderr.readline()
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert " medium: GPU 0 " in said
    assert process.returncode == 3
    assert [it["kind"] for it in json.loads(printed)["findings"]] == ["pressure"]


def test_a_monitor_ends_with_the_duration_that_was_given(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(used_bytes=10 * GIB)
    with start("oom", "--monitor", "--interval", "0.1", "--duration", "0.5") as process:
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(printed)["devices"]["0"]["device_id"] == 0


def test_a_threshold_that_was_given_is_said_at_once_without_being_asked_to_monitor(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    device = pretend_driver.add_device(used_bytes=58 * GIB)
    process = start("oom", "--threshold", "75", "--duration", "1h", "--interval", "0.1", "--fail-on", "high")
    stderr = process.stderr
    assert stderr is not None
    try:
        wait_for_readings(pretend_driver)
        device.set_memory(61 * GIB)
        first = stderr.readline()
        device.set_memory(79 * GIB)
        second = stderr.readline()
        process.send_signal(signal.SIGINT)
        printed, rest = process.communicate(timeout=60)
    finally:
        process.kill()
    assert " medium: GPU 0 at 76.2 % of its memory, above the threshold of 75 %" in first
    assert " critical: GPU 0 at 98.8 % of its memory, above the critical threshold of 95 %" in second
    assert (process.returncode, rest) == (3, "")
    assert [it["severity"] for it in json.loads(printed)["findings"]] == ["critical"]


def test_in_a_terminal_a_line_is_written_over_and_the_report_is_text(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(used_bytes=12 * GIB)
    command = [sys.executable, "-m", "vramscope", "profile", "--duration", "1h", "--interval", "0.2"]
    with TerminalRun(command, environment(TERM="xterm")) as terminal:
        terminal.wait_for(b"0: 12.0/80.0 GiB")
        assert b"\r\x1b[K" in terminal.shown
        terminal.type(b"\x03")
        assert terminal.wait_for_end() == 0
    text = terminal.shown.decode()
    assert "samples over" in text
    assert "no findings" in text
    assert '"schema"' not in text
