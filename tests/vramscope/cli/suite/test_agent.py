"""Beside an agent: it is asked, its past counts, and a watch goes on without it."""

import json
import signal

import pytest

from vramscope.engine.viewer.client import connect

from ....pretend_nvml.driver import PretendDriver
from ....waiting import wait_until
from ..running import GIB, run, start
from ..test_stream import agent
from .running import report_of


@pytest.mark.waits
def test_an_agent_is_asked_and_its_past_counts(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(used_bytes=80 * GIB - (100 << 20))
    with agent("--interval", "0.5"):
        with connect(timeout_s=30.0) as client:
            wait_until(lambda: client.snapshot(0.1).findings, 30.0, "a finding of the agent")
            (known,) = client.snapshot(0.1).findings
        outcome = run("oom", "--duration", "1", "--interval", "0.5", "--fail-on", "medium")
    report = report_of(outcome, "oom")
    assert (outcome.code, outcome.stderr) == (3, "")
    assert report["evidence"]["source"] == "agent"
    # A watch of a second could not have found what takes ten.
    (finding,) = report["findings"]
    assert (finding["id"], finding["opened_s"]) == (known.id, known.opened_s)
    assert finding["opened_s"] <= report["evidence"]["first_s"]


def test_a_watch_goes_on_where_its_agent_ends(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(used_bytes=12 * GIB)
    with agent("--interval", "0.2") as hub:
        process = start("profile", "--duration", "0", "--interval", "0.2", "--format", "json")
        try:
            with connect(timeout_s=30.0) as client:
                wait_until(lambda: getattr(client.snapshot(0.1).hub, "viewers", 0) == 2, 60.0, "the watch")
            hub.send_signal(signal.SIGTERM)
            hub.wait(timeout=60)
            calls = pretend_driver.devices[0].calls()
            wait_until(lambda: pretend_driver.devices[0].calls() > calls + 20, 60.0, "own readings")
            process.send_signal(signal.SIGINT)
            printed, complaints = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    evidence = json.loads(printed)["evidence"]
    assert evidence["source"] == "driver"
    (note,) = [note for note in evidence["notes"] if "sampling in this process from here on" in note]
    assert complaints == f"vramscope: {note}\n"
