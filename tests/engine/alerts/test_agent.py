"""A real agent with a real worker: hooks are told without a viewer, once, and the agent stays light."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.engine.alerts.receiver import Receiver
from tests.pretend_nvml.driver import PretendDriver
from tests.vramscope.cli.running import GIB, run, start_cold
from tests.vramscope.cli.test_stream import agent
from tests.waiting import wait_until
from vramscope.engine.alerts.state import FindingDecision
from vramscope.engine.model import Finding, HubStatus
from vramscope.engine.viewer.client import Client, connect

pytestmark = pytest.mark.waits


def hub_of(client: Client) -> HubStatus:
    hub = client.snapshot(0.05).hub
    assert hub is not None
    return hub


def wait_for_finding(client: Client) -> Finding:
    wait_until(lambda: client.snapshot(0.05).findings, 30.0, "a finding")
    return client.snapshot(0.0).findings[0]


def test_a_worker_that_is_killed_makes_no_alert_go_out_twice(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = pretend_driver.add_device(used_bytes=79 * GIB)
    with Receiver() as receiver:
        monkeypatch.setenv("VRAMSCOPE_ALERTS_WEBHOOK_URL", receiver.url())
        monkeypatch.setenv("VRAMSCOPE_ALERTS_LEVEL", "low")
        with agent("--interval", "0.2"), connect() as client:
            wait_until(lambda: receiver.bodies, 30.0, "the alert")
            opened = wait_for_finding(client)
            worker = hub_of(client).workers[0].pid
            assert worker is not None
            os.kill(worker, signal.SIGKILL)
            wait_until(lambda: hub_of(client).workers[0].restarts == 1, 30.0, "the worker to be started anew")
            wait_until(lambda: hub_of(client).workers[0].state == "running", 30.0, "the worker to report")
            device.set_memory(used_bytes=10 * GIB)
            wait_until(lambda: any(b["event"] == "closed" for b in receiver.bodies), 60.0, "its end")
    told = [(body["finding"]["id"], body["event"]) for body in receiver.bodies]
    assert len(told) == len(set(told))
    assert (opened.id, "opened") in told
    body = receiver.bodies[0]
    assert body["finding"]["node"] == opened.node
    assert body["finding"]["evidence"]


def test_an_agent_with_hooks_stays_light(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_driver.add_device(used_bytes=79 * GIB)
    with Receiver() as receiver:
        monkeypatch.setenv("VRAMSCOPE_ALERTS_WEBHOOK_URL", receiver.url())
        monkeypatch.setenv("VRAMSCOPE_ALERTS_LEVEL", "low")
        with agent("--interval", "0.2", start=start_cold) as process, connect() as client:
            wait_until(lambda: hub_of(client).hooks and hub_of(client).hooks[0].delivered, 30.0, "the alert")
            mapped = Path(f"/proc/{process.pid}/maps").read_text()
            rss_bytes = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf(
                "SC_PAGE_SIZE"
            )
    assert "_ssl." not in mapped
    assert "libssl" not in mapped
    assert "numpy" not in mapped
    assert rss_bytes <= 32 << 20


def test_the_doctor_says_why_a_hook_is_not_told(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_driver.add_device(used_bytes=79 * GIB)
    with Receiver(404) as receiver:
        monkeypatch.setenv("VRAMSCOPE_ALERTS_WEBHOOK_URL", receiver.url())
        monkeypatch.setenv("VRAMSCOPE_ALERTS_LEVEL", "low")
        with agent("--interval", "0.2"), connect() as client:
            wait_until(lambda: hub_of(client).hooks and hub_of(client).hooks[0].failed, 30.0, "the failure")
            (report,) = run("doctor", "--json").lines
    (check,) = [check for check in report["checks"] if check["name"] == "alerts"]
    where = f"http://127.0.0.1:{receiver.port}/…"
    assert check["status"] == "warning"
    assert check["found"] == f"webhook {where}: 0 delivered, 1 failed, 0 dropped"
    assert check["advice"] == f"webhook: {where} answered 404 Not Found"
    assert "s3cret" not in str(report)


def test_decisions_outlive_the_agent(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], private_environment: Path
) -> None:
    pretend_driver.add_device(used_bytes=79 * GIB)
    with agent("--interval", "0.2") as process, connect() as client:
        finding = wait_for_finding(client)
        client.decide(FindingDecision("acknowledge", finding.id))
        wait_until(lambda: client.snapshot(0.05).alerts.acknowledged, what="the decision")
        process.terminate()
        assert process.wait(60) == 0
    with agent("--interval", "0.2"), connect() as client:
        again = wait_for_finding(client)
        assert again.id != finding.id
        wait_until(lambda: client.snapshot(0.05).alerts.is_acknowledged(again), what="the decision to be met")
    files = list((private_environment / "home/.local/state/vramscope").glob("alerts-*.json"))
    assert len(files) == 1


def test_an_agent_that_ends_says_what_it_could_not_deliver(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_driver.add_device(used_bytes=79 * GIB)
    with Receiver(0) as receiver:
        monkeypatch.setenv("VRAMSCOPE_ALERTS_WEBHOOK_URL", receiver.url("/s3cret"))
        monkeypatch.setenv("VRAMSCOPE_ALERTS_LEVEL", "low")
        with agent("--interval", "0.2") as process, connect():
            wait_until(lambda: receiver.requests, 30.0, "the request that hangs")
            process.terminate()
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0
    assert "alerts that may not have been delivered: 1 for the webhook" in said
    assert "s3cret" not in said


def test_hooks_can_be_tried_out(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Receiver() as receiver:
        outcome = run(
            *("agent", "--test-alert"),
            VRAMSCOPE_ALERTS_WEBHOOK_URL=receiver.url(),
            VRAMSCOPE_ALERTS_COMMAND=f"{sys.executable} -c \"open('{out}', 'w').write('told')\"",
            VRAMSCOPE_ALERTS_LEVEL="critical",
        )
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout.splitlines() == [
        f"command {sys.executable}: delivered",
        f"webhook http://127.0.0.1:{receiver.port}/…: delivered",
    ]
    assert out.read_text() == "told"
    assert receiver.bodies[0]["is_test"] is True
    assert receiver.bodies[0]["text"].startswith("TEST, nothing is wrong.")


def test_a_hook_that_fails_its_trial_is_told() -> None:
    with Receiver(404) as receiver:
        outcome = run("agent", "--test-alert", VRAMSCOPE_ALERTS_WEBHOOK_URL=receiver.url())
        assert outcome.code == 1
        where = f"http://127.0.0.1:{receiver.port}/…"
        assert outcome.stdout == f"webhook {where}: not delivered: webhook: {where} answered 404 Not Found\n"


def test_without_a_hook_there_is_nothing_to_try() -> None:
    outcome = run("agent", "--test-alert")
    assert outcome.code == 2
    assert "set alerts.command or alerts.webhook_url" in outcome.stderr
