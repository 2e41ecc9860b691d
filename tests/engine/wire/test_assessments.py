"""What is assessed reaches every viewer, early or late, and is forgotten with its process."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from vramscope.engine.agent.analyzer_host import AnalyzerHost
from vramscope.engine.model import Assessment, Finding, RankSample, RankState, Sample
from vramscope.engine.viewer.client import Client
from vramscope.engine.wire.messages import FindingBatch, Welcome, body_of, decode, encode
from vramscope.engine.wire.stores import GONE_AFTER_S, AssessmentStore

from ...waiting import wait_until
from ..agent.assessors import BrokenAssessor, UsedAssessor, make_assessment
from ..agent.hubs import RunningHub, make_sample
from ..agent.test_worker import RunningWorker


def _until(client: Client, condition: Callable[[tuple[Assessment, ...]], bool]) -> tuple[Assessment, ...]:
    found: list[tuple[Assessment, ...]] = []

    def is_met() -> bool:
        found.append(client.snapshot(timeout_s=0.05).assessments)
        return condition(found[-1])

    wait_until(is_met, what="the assessments")
    return found[-1]


def _levels(assessments: tuple[Assessment, ...]) -> list[str]:
    return [assessment.level for assessment in assessments]


@pytest.mark.waits
def test_the_newest_word_reaches_early_and_late_viewers(private_environment: Path) -> None:
    with (
        RunningHub(private_environment) as running,
        RunningWorker(private_environment, UsedAssessor()),
        Client(private_environment) as early,
    ):
        running.producer.push([make_sample(1, used_gib=20.0)])
        (calm,) = _until(early, lambda found: _levels(found) == ["low"])
        running.producer.push([make_sample(2, used_gib=60.0)])
        (grave,) = _until(early, lambda found: _levels(found) == ["high"])
        with Client(private_environment) as late:
            assert _until(late, bool) == (grave,)
    assert (calm.time_s, grave.time_s) == (1001.0, 1002.0)


@pytest.mark.waits
def test_a_restarted_worker_assesses_anew_from_the_ring(private_environment: Path) -> None:
    with RunningHub(private_environment) as running, Client(private_environment) as client:
        with RunningWorker(private_environment, UsedAssessor()):
            running.producer.push([make_sample(1, used_gib=60.0)])
            _until(client, lambda found: _levels(found) == ["high"])
        running.producer.push([make_sample(2, used_gib=20.0)])
        with RunningWorker(private_environment, UsedAssessor()):
            (anew,) = _until(client, lambda found: _levels(found) == ["low"])
    assert anew.time_s == 1002.0


@pytest.mark.waits
def test_a_device_that_is_gone_for_a_minute_takes_its_assessment_along(private_environment: Path) -> None:
    with (
        RunningHub(private_environment) as running,
        RunningWorker(private_environment, UsedAssessor()),
        Client(private_environment) as client,
    ):
        running.producer.push([make_sample(1), make_sample(2, uuid="GPU-b")])
        _until(client, lambda found: {a.device_uuid for a in found} == {"GPU-a", "GPU-b"})
        running.producer.push([make_sample(seq, uuid="GPU-b") for seq in range(3, 70)])
        (left,) = _until(client, lambda found: len(found) == 1)
    assert left.device_uuid == "GPU-b"


@pytest.mark.parametrize(("missing_s", "is_kept"), [(GONE_AFTER_S - 1, True), (GONE_AFTER_S, False)])
def test_a_process_may_be_missing_for_less_than_a_minute(missing_s: float, is_kept: bool) -> None:
    store = AssessmentStore()
    store.merge([make_assessment(pid=7, started_s=5.0)])
    store.observe(_ranked(0.0, 7))
    store.observe(_ranked(missing_s))
    assert bool(store.all()) == is_kept


def test_a_process_that_has_ended_has_no_future_to_tell_of() -> None:
    store = AssessmentStore()
    store.merge([make_assessment(pid=7, started_s=5.0), make_assessment(pid=8, started_s=5.0)])
    assert not store.observe(_ranked(0.0, 7, 8))
    assert store.observe(_ranked(1.0, 7, 8, state="ended"))
    assert store.all() == ()


def test_another_process_of_the_same_pid_is_assessed_for_itself() -> None:
    store = AssessmentStore()
    store.merge([make_assessment(pid=7, started_s=5.0, level="critical")])
    store.merge([make_assessment(pid=7, started_s=500.0)])
    assert _levels(store.all()) == ["critical", "low"]


def test_what_another_worker_said_is_forgotten_once_its_successor_has_caught_up() -> None:
    store = AssessmentStore()
    store.merge([make_assessment(pid=7)])
    store.begin_anew(100)
    store.merge([make_assessment(pid=7), make_assessment(pid=8)])
    assert not store.begin_anew(100)
    assert len(store.all()) == 2
    assert store.begin_anew(101)
    assert store.all() == ()


def _ranked(after_s: float, *pids: int, state: RankState = "ok") -> Sample:
    ranks = tuple(RankSample(pid=pid, started_s=5.0, device_uuid="GPU-a", state=state) for pid in pids)
    return msgspec.structs.replace(make_sample(1), time_s=1000.0 + after_s, ranks=ranks)


def test_an_assessor_that_fails_is_set_aside_and_the_others_are_heard() -> None:
    host = AnalyzerHost([BrokenAssessor(), UsedAssessor()])
    host.observe(make_sample(1))
    assert [assessment.level for assessment in host.assess()] == ["low"]
    assert (host.names, host.assess()) == (("used",), [])
    assert host.reason == "analyzer broken failed and was stopped: ZeroDivisionError('oops')"


class _OldBatch(msgspec.Struct, frozen=True):
    """Findings on the wire as viewers knew them before anything was assessed."""

    findings: tuple[Finding, ...]


def test_older_viewers_ignore_assessments_and_newer_ones_do_without() -> None:
    batch = FindingBatch((), (make_assessment(),))
    assert body_of(decode(encode("findings", "", batch)), _OldBatch).findings == ()
    assert body_of(decode(encode("findings", "", _OldBatch(()))), FindingBatch).assessments is None
    assert {it.name: it.default for it in msgspec.structs.fields(Welcome)}["assessments"] == ()
