"""The hub's end of the hooks: it never waits, forgets nothing in silence, and keeps to its bounds."""

import os
import subprocess
import sys

import msgspec
import pytest

from tests.engine.alerts.findings import NOON_S, HandClock, make_finding
from tests.engine.alerts.receiver import Receiver
from tests.waiting import wait_until
from vramscope.engine.alerts.delivery import BURST, MAX_WAITING, Delivery, DeliveryJob, Start
from vramscope.engine.alerts.state import Crossing, CrossingLog
from vramscope.engine.model import Finding
from vramscope.engine.settings import AlertSettings

COMMAND = AlertSettings(command=("tell",), level="low")


class Started:
    """Starts processes that do nothing but wait for their end, which a test brings about."""

    def __init__(self, code: int = 0, says: str = "") -> None:
        self.jobs: list[DeliveryJob] = []
        self.running: list[subprocess.Popen[bytes]] = []
        self._program = f"import sys; sys.stdin.read(); sys.stderr.write({says!r}); sys.exit({code})"

    def __call__(self, job: bytes) -> tuple[subprocess.Popen[bytes], int]:
        self.jobs.append(msgspec.json.decode(job, type=DeliveryJob))
        said = os.memfd_create("said")
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", self._program], stdin=subprocess.PIPE, stderr=said
        )
        self.running.append(process)
        return process, said

    def end_one(self) -> None:
        """Let the process that has run longest end, and wait until it has."""
        process = self.running.pop(0)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def make_delivery(settings: AlertSettings, start: Start, clock: HandClock | None = None) -> Delivery:
    return Delivery(settings, "9.9", clock=clock or HandClock(), start=start)


def cross(*findings: Finding) -> list[Crossing]:
    return CrossingLog().note(findings)


def openings(count: int) -> list[Crossing]:
    return cross(*(make_finding(opened_s=NOON_S + n) for n in range(count)))


def test_alerts_go_out_one_after_the_other_in_their_order() -> None:
    started = Started()
    delivery = make_delivery(COMMAND, started)
    delivery.put(cross(make_finding(severity="low"), make_finding(), make_finding(closed_s=NOON_S + 9)))
    for count in (1, 2, 3):
        delivery.poll()
        delivery.poll()
        assert len(started.jobs) == count
        started.end_one()
    delivery.poll()
    assert [job.alert.event for job in started.jobs] == ["opened", "raised", "closed"]
    assert [job.alert.id.partition("-")[2] for job in started.jobs] == ["opened", "raised-high", "closed"]
    assert not delivery.is_busy
    (status,) = delivery.status()
    assert (status.name, status.target, status.delivered, status.waiting) == ("command", "tell", 3, 0)


def test_only_what_the_settings_ask_for_is_told() -> None:
    started = Started()
    settings = AlertSettings(command=("tell",), level="medium", kinds=("leak",), on=("raised",))
    delivery = make_delivery(settings, started)
    delivery.put(cross(make_finding(severity="low"), make_finding(severity="medium")))
    delivery.put(cross(make_finding("oom", "low"), make_finding("oom", "critical")))
    delivery.put(cross(make_finding(severity="critical", opened_s=NOON_S + 1)))
    assert delivery.status()[0].waiting == 1


def test_what_was_never_grave_enough_is_not_told_to_have_closed() -> None:
    delivery = make_delivery(AlertSettings(command=("tell",), level="high"), Started())
    delivery.put(cross(make_finding(severity="medium"), make_finding(severity="low", closed_s=NOON_S + 1)))
    assert not delivery.is_busy
    delivery.put(cross(make_finding(severity="high"), make_finding(severity="low", closed_s=NOON_S + 1)))
    assert delivery.status()[0].waiting == 2


def test_without_a_hook_nothing_waits() -> None:
    delivery = Delivery(AlertSettings(), "9.9")
    delivery.put(openings(3))
    assert not delivery.is_busy
    assert delivery.status() == ()
    assert delivery.finish(0.0) is None


def test_when_too_many_wait_the_oldest_are_dropped_and_counted() -> None:
    started = Started()
    delivery = make_delivery(COMMAND, started)
    delivery.put(openings(MAX_WAITING + 5))
    (status,) = delivery.status()
    assert (status.waiting, status.dropped) == (MAX_WAITING, 5)
    delivery.poll()
    assert started.jobs[0].alert.finding.opened_s == NOON_S + 5
    started.end_one()


def test_a_flood_is_held_to_a_rate_and_nothing_of_it_is_lost() -> None:
    started, clock = Started(), HandClock()
    delivery = make_delivery(COMMAND, started, clock)
    delivery.put(openings(BURST + 2))
    for _ in range(BURST):
        delivery.poll()
        started.end_one()
    delivery.poll()
    delivery.poll()
    assert len(started.jobs) == BURST
    clock.now_s += 3.0
    delivery.poll()
    assert len(started.jobs) == BURST + 1
    started.end_one()
    delivery.poll()
    assert len(started.jobs) == BURST + 1
    assert delivery.status()[0].waiting == 1


def test_a_failure_is_told_until_a_delivery_succeeds() -> None:
    failing = Started(1, "first\nhttps://host/… answered 500\n")
    delivery = make_delivery(COMMAND, failing)
    delivery.put(openings(1))
    delivery.poll()
    failing.end_one()
    delivery.poll()
    (status,) = delivery.status()
    assert (status.failed, status.delivered) == (1, 0)
    assert status.reason == "command: https://host/… answered 500"


def test_a_delivery_that_never_ends_is_ended() -> None:
    started, clock = Started(), HandClock()
    delivery = make_delivery(COMMAND, started, clock)
    delivery.put(openings(1))
    delivery.poll()
    clock.now_s += 60
    delivery.poll()
    assert not delivery.is_busy
    assert delivery.status()[0].failed == 1
    (process,) = started.running
    assert process.returncode is not None
    assert process.stdin is not None
    process.stdin.close()


def test_a_process_that_cannot_be_started_is_told() -> None:
    def fail(_: bytes) -> tuple[subprocess.Popen[bytes], int]:
        raise OSError(11, "Resource temporarily unavailable")

    delivery = make_delivery(COMMAND, fail)
    delivery.put(openings(1))
    delivery.poll()
    assert not delivery.is_busy
    reason = delivery.status()[0].reason
    assert reason == "command: cannot start a process that alerts tell: Resource temporarily unavailable"


def test_a_hook_that_hangs_holds_the_other_up_no_moment() -> None:
    with Receiver(0) as hanging:
        settings = AlertSettings(command=("true",), webhook_url=hanging.url(), timeout_s=60.0)
        delivery = Delivery(settings, "9.9")
        delivery.put(openings(1))
        delivery.poll()
        assert delivery.is_busy, "nothing is waited for"

        def is_told() -> bool:
            delivery.poll()
            return delivery.status()[0].delivered == 1

        wait_until(is_told, 30.0, "the command")
        assert delivery.status()[1].waiting == 1
        left = delivery.finish(0.05)
        assert left == "alerts that may not have been delivered: 1 for the webhook"
        hanging.released.set()
        assert delivery.finish(60.0) is None, "the process ends once nobody hangs"
        assert delivery.status()[1].failed == 1


def test_what_waits_goes_out_before_the_hub_ends() -> None:
    with Receiver() as receiver:
        delivery = Delivery(AlertSettings(webhook_url=receiver.url()), "9.9")
        delivery.put(openings(3))
        assert delivery.finish(30.0) is None
        assert delivery.status()[0].delivered == 3
    assert [body["finding"]["opened_s"] - NOON_S for body in receiver.bodies] == [0, 1, 2]


@pytest.mark.parametrize("port_is_open", [True, False])
def test_nothing_secret_is_told_of_an_address(port_is_open: bool) -> None:
    with Receiver(404) as receiver:
        port = receiver.port if port_is_open else 1
        url = f"http://user:s3cret@127.0.0.1:{port}/s3cret?token=s3cret"
        delivery = Delivery(AlertSettings(webhook_url=url), "9.9")
        delivery.put(openings(1))
        delivery.finish(30.0)
        (status,) = delivery.status()
    assert status.failed == 1
    assert status.target == f"http://127.0.0.1:{port}/…"
    assert "s3cret" not in repr(status)
