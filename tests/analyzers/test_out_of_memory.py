"""Errors that were met and refusals before them: opened when a count rises, closed when that is long past."""

from collections.abc import Iterable
from datetime import datetime

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.analyzers.finding_words import explain_error
from vramscope.analyzers.out_of_memory import CLEAN_S, OutOfMemoryAnalyzer
from vramscope.analyzers.verdict import summarize
from vramscope.engine.agent.analyzer_host import AnalyzerHost
from vramscope.engine.history import History
from vramscope.engine.model import (
    AllocatorReading,
    Finding,
    RankCoordinates,
    RankSample,
    RankState,
    Sample,
    StepReading,
)
from vramscope.engine.units import GIB
from vramscope.engine.wire.stores import FindingStore

from .samples import device, finding, sample

RECORD = "/tmp/oom-3.json"


def rank(
    *,
    ooms: int | None = 0,
    retries: int | None = 0,
    oom_s: float | None = None,
    state: RankState = "ok",
    pid: int = 4711,
    started_s: float = 5.0,
    job: str | None = None,
    number: int | None = 3,
    record: str | None = RECORD,
    notes: tuple[str, ...] = (),
) -> RankSample:
    """Return a process on GPU-0."""
    return RankSample(
        pid=pid,
        started_s=started_s,
        job=job,
        device_uuid="GPU-0",
        state=state,
        coordinates=None if number is None else RankCoordinates(number),
        allocator=AllocatorReading(retries=retries, ooms=ooms),
        flight_record=record if ooms else None,
        oom_s=oom_s,
        oom_size_bytes=2 * GIB if ooms else None,
        notes=notes,
    )


def at(time_s: float, *ranks: RankSample, step: int | None = None) -> Sample:
    """Return a sample of one device and these processes."""
    stepping = msgspec.structs.replace(device(), step=step)
    return msgspec.structs.replace(sample(stepping, time_s=time_s), ranks=ranks)


def run(samples: Iterable[Sample], analyzer: OutOfMemoryAnalyzer | None = None) -> list[Finding]:
    """Return everything that was found."""
    analyzer = analyzer or OutOfMemoryAnalyzer()
    return [finding for each in samples for finding in analyzer.observe(each)]


def evidence(finding: Finding) -> dict[str, object]:
    """Return the evidence by name."""
    return {each.name: each.value for each in finding.evidence}


def test_an_error_opens_a_critical_finding_that_names_the_record() -> None:
    (opened,) = run([at(0, rank()), at(1, rank()), at(2, rank(ooms=1, retries=1, oom_s=1.7), step=40)])
    assert (opened.kind, opened.severity, opened.opened_s) == ("oom_met", "critical", 2)
    assert (opened.device_uuid, opened.device, opened.is_open) == ("GPU-0", "0", True)
    assert opened.title == "rank 3 ran out of memory asking for 2.0 GiB"
    assert f"`vramscope inspect {RECORD}`" in opened.advice
    assert evidence(opened)["request that failed"] == 2 * GIB
    assert evidence(opened)["process"] == 4711
    verdict = summarize(at(2, rank()), [opened])
    assert verdict.level == "critical"
    when = f"{datetime.fromtimestamp(2):%H:%M:%S}"
    assert (
        verdict.text(90)
        == f"rank 3 ran out of memory asking for 2.0 GiB at {when}: vramscope inspect shows why"
    )
    assert verdict.text(60) == f"rank 3 ran out of memory at {when}: vramscope inspect"
    assert verdict.text(30) == "rank 3 ran out of memory"


def test_an_error_has_the_step_of_its_own_process_and_not_of_the_other_on_its_device() -> None:
    def step_of(known: RankSample, index: int) -> RankSample:
        step = StepReading(index=index, ended_s=1.0, duration_s=1.0)
        return msgspec.structs.replace(known, step=step)

    other = step_of(rank(pid=4712, number=4), 900)
    calm, failed = (step_of(rank(ooms=count), 40) for count in (0, 1))
    # A device has the step of the first process on it.
    (opened,) = run([at(0, other, calm, step=900), at(1, other, failed, step=900)])
    assert explain_error(opened, str).endswith("after step 40.")
    (unknown,) = run([at(0, other, rank(), step=900), at(1, other, rank(ooms=1), step=900)])
    assert "step" not in explain_error(unknown, str)


def test_without_a_record_the_advice_says_why_and_how_to_have_one() -> None:
    (opened,) = run([at(0, rank()), at(1, rank(ooms=1, record=None, notes=("the disk is full",)))])
    assert opened.title == "rank 3 ran out of memory asking for 2.0 GiB"
    assert opened.advice.startswith("No flight record was written (the disk is full): ")


def test_a_process_without_a_rank_is_called_by_its_pid() -> None:
    (opened,) = run([at(0, rank(number=None)), at(1, rank(number=None, ooms=1))])
    assert opened.title.startswith("process 4711 ran out of memory")


def test_an_error_in_the_very_first_sample_is_news_and_one_of_long_ago_is_not() -> None:
    assert len(run([at(100, rank(ooms=1, oom_s=99.5))])) == 1
    assert run([at(100, rank(ooms=1, oom_s=20.0))]) == []
    assert run([at(100, rank(ooms=7))]) == []


def test_errors_that_follow_are_counted_in_the_same_finding() -> None:
    first, second = run([at(0, rank()), at(1, rank(ooms=1)), at(2, rank(ooms=3))])
    assert first.id == second.id
    assert "ran out of memory 3 times, at last asking for 2.0 GiB" in second.title


def test_it_closes_once_training_has_gone_on() -> None:
    steps = [at(0, rank()), at(1, rank(ooms=1), step=10)]
    going = [at(1 + n, rank(ooms=1), step=10 + n) for n in range(1, 80)]
    *_, closed = run(steps + going)
    assert closed.closed_s == 1 + CLEAN_S
    assert evidence(closed)["closed because"] == "60 s passed without another one"
    stuck = [at(1 + n, rank(ooms=1), step=10) for n in range(1, 300)]
    assert all(finding.is_open for finding in run(steps + stuck))


def test_an_error_that_ended_its_process_is_seen_for_a_minute() -> None:
    dying = [at(0, rank()), at(1, rank(ooms=1), step=10)]
    dying += [at(1 + n, rank(ooms=1, state="ended")) for n in range(1, 11)]
    gone = [at(11 + n) for n in range(1, 60)]
    *_, closed = run(dying + gone)
    assert closed.closed_s == 1 + CLEAN_S
    assert evidence(closed)["closed because"] == "the process has ended"


def test_an_error_that_ended_its_process_stays_the_verdict_until_another_trains_there() -> None:
    host, store = AnalyzerHost([OutOfMemoryAnalyzer()]), FindingStore()
    said = [at(0, rank(job="q")), at(1, rank(job="q", ooms=1)), at(2, rank(job="q", ooms=1, state="ended"))]
    pressure = finding("pressure", "low", opened_s=500.0, closed_s=600.0)
    for each in [*said, *(at(3 + n) for n in range(100)), sample(time_s=40_000.0)]:
        store.merge(host.observe(each))
    store.merge([pressure])
    when = f"{datetime.fromtimestamp(1):%H:%M:%S}"
    first, second = store.all()
    assert (first.kind, first.is_open, second) == ("oom_met", False, pressure)
    for newest in (at(40_000.0), sample(time_s=40_000.0)):
        verdict = summarize(newest, store.all())
        assert verdict.level == "critical"
        assert verdict.text(65) == f"rank 3 (job q) ran out of memory at {when}: vramscope inspect"
    night = summarize(at(1 + 86_400.0), store.all()).text(120)
    assert f"on {datetime.fromtimestamp(1):%Y-%m-%d at %H:%M}: vramscope inspect" in night
    older = rank(pid=8, started_s=0.5)
    assert host.observe(at(40_001.0, older)) == []
    store.merge(host.observe(at(40_002.0, rank(pid=9, started_s=40_001.5))))
    assert "ran out" not in summarize(at(40_003.0), store.all()).text(200)


def test_the_error_of_an_ended_job_yields_to_what_is_open_for_jobs_that_live() -> None:
    alive = rank(pid=9, started_s=0.5, job="healthy")
    dead = rank(job="q", ooms=1, state="ended")
    host = AnalyzerHost([OutOfMemoryAnalyzer()])
    said = [at(0, rank(job="q"), alive), at(1, rank(job="q", ooms=1), alive), at(2, dead, alive)]
    (error,) = [it for each in said for it in host.observe(each)]
    when = f"{datetime.fromtimestamp(1):%H:%M:%S}"
    pressure = finding("pressure", "low", opened_s=1.0)
    # For a minute the error is news; after it what is open for the job that lives comes first.
    assert summarize(at(2, dead, alive), [error, pressure]).text(120).startswith("rank 3 ran out of memory")
    (closed,) = [it for n in range(80) for it in host.observe(at(3 + n, alive))]
    later = at(900.0, alive)
    verdict = summarize(later, [closed, pressure])
    assert verdict.level == "unknown"
    assert verdict.text(200).startswith("OOM risk unknown")
    assert verdict.text(200).endswith(f"· rank 3 ran out of memory at {when}")
    assert "ran out" not in verdict.text(50)
    assert summarize(later, [closed]).level == "critical"
    grave = finding("oom", "medium", opened_s=890.0)
    assert summarize(later, [closed, grave]).text(200).startswith("GPU 0 out of memory in")
    # What is as grave for a living job leads at once; the rest of the job that failed keeps its error first.
    assert summarize(at(2, dead, alive), [error, grave]).text(200).startswith("GPU 0 out of memory")
    sibling = rank(pid=10, started_s=0.5, job="q", number=4)
    assert summarize(at(2, dead, sibling), [error, grave]).text(200).startswith("rank 3 ran out of memory")


def test_an_open_error_gives_way_to_the_next_process_at_once() -> None:
    said = [
        at(0, rank()),
        at(1, rank(ooms=1)),
        at(3, rank(ooms=1, state="ended"), rank(pid=9, started_s=2.0)),
    ]
    *_, closed = run(said)
    assert closed.closed_s == 3
    assert evidence(closed)["followed by process"] == 9


def test_refusals_ring_at_once_and_grow_graver() -> None:
    found = run(at(n, rank(retries=n)) for n in range(5))
    assert [finding.severity for finding in found] == ["medium", "medium", "high", "high"]
    assert len({finding.id for finding in found}) == 1
    assert (
        found[-1].title
        == "rank 3 is at the limit of its device: refused memory 4 times, the cache was flushed"
    )
    assert "num_alloc_retries" in found[-1].method
    assert run([at(0, rank(retries=9)), at(1, rank(retries=9))]) == []


def test_two_processes_that_fail_in_one_tick_have_two_findings() -> None:
    both = [at(0, rank(pid=1), rank(pid=2)), at(1, rank(pid=1, ooms=1), rank(pid=2, ooms=1))]
    assert len({finding.id for finding in run(both)}) == 2


def test_counts_nobody_measured_find_nothing() -> None:
    unmeasured = [at(n, rank(ooms=None, retries=None)) for n in range(3)]
    assert run(unmeasured) == []
    bare = msgspec.structs.replace(rank(ooms=5), allocator=None)
    assert run([at(0, bare), at(1, rank(ooms=5))]) == []


def test_a_successor_that_adopts_goes_on_counting() -> None:
    (opened,) = run([at(0, rank()), at(1, rank(ooms=1), step=10)])
    successor = OutOfMemoryAnalyzer()
    successor.restore([opened])
    again = run([at(500, rank(ooms=1), step=11), at(501, rank(ooms=2), step=11)], successor)
    assert [(finding.id, finding.is_open) for finding in again] == [(opened.id, True)]
    assert "2 times" in again[0].title


ticks = st.lists(
    st.tuples(
        st.integers(0, 2).map(lambda rise: rise // 2),
        st.integers(0, 2).map(lambda rise: rise // 2),
        st.sampled_from(["ok", "ok", "ok", "ended", "absent"]),
        st.sampled_from([1.0, 5.0, 40.0]),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=100)
@given(ticks, st.integers(0, 39))
def test_findings_after_a_restart_equal_those_without_one(
    changes: list[tuple[int, int, str, float]], death: int
) -> None:
    samples, ooms, retries, time_s = [], 0, 0, 1000.0
    for number, (error, retry, state, step_s) in enumerate(changes):
        ooms, retries, time_s = ooms + error, retries + retry, time_s + step_s
        process = rank(ooms=ooms, retries=retries, state="ended" if state == "ended" else "ok")
        ranks = () if state == "absent" else (process,)
        samples.append(msgspec.structs.replace(at(time_s, *ranks, step=number), seq=number))
    steady, store, ring = FindingStore(), FindingStore(), History()
    host = AnalyzerHost([OutOfMemoryAnalyzer()])
    first, second = AnalyzerHost([OutOfMemoryAnalyzer()]), AnalyzerHost([OutOfMemoryAnalyzer()])
    for number, each in enumerate(samples):
        steady.merge(host.observe(each))
        ring.add(each)
        if number == death:
            for remembered in ring.samples():
                store.merge(second.observe(remembered))
        else:
            store.merge((first if number < death else second).observe(each))
    assert [_fate(finding) for finding in store.all()] == [_fate(finding) for finding in steady.all()]


def _fate(finding: Finding) -> tuple[object, ...]:
    return finding.id, finding.kind, finding.opened_s, finding.closed_s, finding.title
