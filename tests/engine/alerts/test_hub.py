"""Alerts of a real hub: decisions that every viewer sees, hooks that are told once, whatever happens."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import zmq

from tests.engine.agent.hubs import RunningHub, make_sample
from tests.engine.alerts.findings import make_finding
from tests.engine.alerts.receiver import Receiver
from tests.waiting import wait_until
from vramscope.engine.alerts.desk import AlertDesk
from vramscope.engine.alerts.state import FindingDecision
from vramscope.engine.model import Finding
from vramscope.engine.settings import AlertSettings
from vramscope.engine.viewer.client import Client
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.engine.wire.endpoints import endpoints_of
from vramscope.engine.wire.messages import Request, WorkerReport, encode

Report = Callable[..., None]


@contextmanager
def worker_of(folder: Path) -> Iterator[Report]:
    """Yield what reports findings to a hub, as a worker would."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(endpoints_of(folder).reports)

        def report(*findings: Finding, open_ids: tuple[str, ...] | None = None) -> None:
            push.send(encode("report", "", WorkerReport("w", 1, 1, 0, ("leak",), findings, open_ids)))

        yield report


def until(client: Client, condition: Callable[[Snapshot], object]) -> Snapshot:
    found = [client.snapshot(timeout_s=0.0)]

    def is_met() -> bool:
        found.append(client.snapshot(timeout_s=0.05))
        return bool(condition(found[-1]))

    wait_until(is_met, 60.0, "the viewer's picture")
    return found[-1]


def decide(client: Client, verb: str, finding: Finding, scope: str | None = None) -> None:
    client.decide(FindingDecision(verb, finding.id, scope))  # type: ignore[arg-type]  # words of the test


def test_what_one_viewer_decides_every_viewer_sees(private_environment: Path) -> None:
    leak, oom = make_finding(), make_finding("oom")
    with (
        RunningHub(private_environment) as running,
        worker_of(private_environment) as report,
        Client(private_environment) as one,
    ):
        running.producer.push([make_sample(1)])
        with Client(private_environment) as other:
            report(leak, oom)
            until(one, lambda s: len(s.findings) == 2)
            until(other, lambda s: len(s.findings) == 2)
            decide(one, "acknowledge", leak)
            decide(one, "mute", oom, "hour")
            seen = until(other, lambda s: s.alerts.is_silent(leak) and s.alerts.is_silent(oom))
            assert [change.what for change in seen.alerts.changes_of(oom)] == [
                "opened, high",
                "muted for an hour",
            ]
        with Client(private_environment) as late:
            assert until(late, lambda s: s.sample).alerts == seen.alerts
        decide(one, "release", leak)
        assert until(one, lambda s: not s.alerts.is_silent(leak)).alerts.is_silent(oom)


def test_decisions_that_cannot_be_carried_out_are_refused_with_the_reason(private_environment: Path) -> None:
    closed = make_finding(closed_s=1_760_011_300.0)
    with (
        RunningHub(private_environment) as running,
        worker_of(private_environment) as report,
        Client(private_environment) as client,
    ):
        running.producer.push([make_sample(1)])
        report(closed)
        until(client, lambda s: s.findings)
        decide(client, "acknowledge", make_finding("unknown"))
        refused = until(client, lambda s: s.decision_refused).decision_refused
        assert refused is not None
        assert refused.reason.startswith("unknown finding")
        decide(client, "mute", closed, "open")
        second = until(client, lambda s: s.decision_refused != refused).decision_refused
        assert second is not None
        assert second.reason == "that finding has already closed"
        decide(client, "mute", closed)
        until(client, lambda s: s.decision_refused and "no mute time" in s.decision_refused.reason)


def test_requests_without_a_decision_do_not_end_the_hub(private_environment: Path) -> None:
    with RunningHub(private_environment) as running, zmq.Context() as context:
        with context.socket(zmq.DEALER) as socket:
            socket.connect(endpoints_of(private_environment).control)
            socket.send(encode("request", "", Request("decide", 1)))
        running.producer.push([make_sample(1)])
        with Client(private_environment) as client:
            assert until(client, lambda s: s.sample).connection == "live"


def test_a_hook_is_told_once_though_the_worker_tells_the_past_again(private_environment: Path) -> None:
    past = [
        make_finding(severity="medium"),
        make_finding(severity="high", updated_s=1_760_011_210.0),
        make_finding(severity="high", closed_s=1_760_011_220.0),
    ]
    still_open = make_finding("oom")
    with Receiver() as receiver:
        desk = AlertDesk(AlertSettings(webhook_url=receiver.url()), version="9.9")
        with (
            RunningHub(private_environment, alerts=desk) as running,
            worker_of(private_environment) as report,
            Client(private_environment) as client,
        ):
            running.producer.push([make_sample(1)])
            report(*past, still_open)
            until(client, lambda s: s.hub and s.hub.hooks and s.hub.hooks[0].delivered == 4)
            for _ in range(3):
                report(*past, still_open, open_ids=(still_open.id,))
            report(make_finding("idle_held"))
            status = until(client, lambda s: s.hub and s.hub.hooks[0].delivered == 5).hub
    assert status is not None
    assert status.hooks[0].failed == 0
    told = [(body["finding"]["kind"], body["event"]) for body in receiver.bodies]
    assert told == [
        ("leak", "opened"),
        ("leak", "raised"),
        ("leak", "closed"),
        ("oom", "opened"),
        ("idle_held", "opened"),
    ]


def test_a_muted_finding_is_told_to_no_hook(private_environment: Path) -> None:
    leak = make_finding(severity="medium")
    with Receiver() as receiver:
        desk = AlertDesk(AlertSettings(webhook_url=receiver.url()), version="9.9")
        with (
            RunningHub(private_environment, alerts=desk) as running,
            worker_of(private_environment) as report,
            Client(private_environment) as client,
        ):
            running.producer.push([make_sample(1)])
            report(leak)
            until(client, lambda s: s.hub and s.hub.hooks and s.hub.hooks[0].delivered == 1)
            decide(client, "mute", leak, "always")
            until(client, lambda s: s.alerts.is_silent(leak))
            report(make_finding(severity="critical", updated_s=leak.opened_s + 1), make_finding("oom"))
            until(client, lambda s: s.hub and s.hub.hooks[0].delivered == 2)
    assert [body["finding"]["kind"] for body in receiver.bodies] == ["leak", "oom"]


def test_a_hook_that_hangs_delays_no_sample(private_environment: Path) -> None:
    with Receiver(0) as receiver:
        desk = AlertDesk(AlertSettings(webhook_url=receiver.url()), version="9.9")
        with (
            RunningHub(private_environment, alerts=desk) as running,
            worker_of(private_environment) as report,
            Client(private_environment) as client,
        ):
            running.producer.push([make_sample(1)])
            report(make_finding(), make_finding("oom"))
            wait_until(lambda: receiver.requests, 60.0, "the request that hangs")
            for seq in range(2, 20):
                running.producer.push([make_sample(seq)])
                until(client, lambda s, seq=seq: s.sample and s.sample.seq == seq)  # type: ignore[misc]
            status = until(client, lambda s: s.hub and s.hub.hooks[0].waiting == 2).hub
            assert status is not None
        receiver.released.set()
        receiver.answers.append(200)
        wait_until(lambda: desk.finish(0.05) is None, 30.0, "the rest to be delivered")


def test_what_cannot_be_kept_is_among_the_notes_of_the_hub(private_environment: Path) -> None:
    desk = AlertDesk(path=private_environment / "file" / "alerts.json")
    (private_environment / "file").touch()
    with (
        RunningHub(private_environment, alerts=desk) as running,
        worker_of(private_environment) as report,
        Client(private_environment) as client,
    ):
        running.producer.push([make_sample(1)])
        report(make_finding())
        until(client, lambda s: s.findings)
        decide(client, "acknowledge", make_finding())
        notes = until(client, lambda s: s.hub and s.hub.notes).hub
        assert notes is not None
        assert "cannot save acknowledged and muted findings" in notes.notes[0]
