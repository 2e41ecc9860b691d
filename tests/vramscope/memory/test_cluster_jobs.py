"""A job over nodes that report to one: its stages are held together there, and so are its ranks."""

import msgspec
import pytest

from tests.analyzers.cluster_state.clusters import CALM, Word, make_node
from vramscope.engine.cluster.distributed import MOST_RANKS, REPORT, NodeRoll, read_report
from vramscope.engine.errors import WireError
from vramscope.engine.model.sample import ProcessReading
from vramscope.engine.units import GIB
from vramscope.engine.wire.messages import NodeReport, encode
from vramscope.exporters.reports.frame import Provenance
from vramscope.exporters.reports.log import RunLog
from vramscope.exporters.reports.text import describe_report
from vramscope.memory.distributed_exchange import (
    ClusterJobs,
    DistributedRole,
    Meeting,
    NodeExchange,
    describe_own_node,
)

from ...clocks import HandClock


def report_of(number: int, at_s: float, words: dict[int, Word]) -> NodeReport:
    """Return what a node of two reports, over the wire."""
    log, sample = RunLog(), make_node(number, at_s, words, stages=2).sample
    assert sample is not None
    log.observe(sample)
    report = describe_own_node(log, f"n{number}", 1.0, f"s{number}")
    assert report is not None
    return over_the_wire(report, time_s=sample.time_s)


def over_the_wire(report: NodeReport, **changes: object) -> NodeReport:
    """Return a report whose sample was changed as the master reads it."""
    changed = msgspec.structs.replace(report.sample, **changes)
    return read_report(encode(REPORT, "", msgspec.structs.replace(report, sample=changed)))


def test_the_stage_that_limits_a_job_and_the_rank_that_grows_away_are_in_the_report() -> None:
    clock = HandClock(50.0)
    exchange = NodeExchange(
        "n0", Meeting(DistributedRole.MASTER), interval_s=1.0, timeout_s=30.0, clock=clock
    )
    for at_s in range(420):
        words = {1: Word(floor_gib=40 + at_s / 30, peak_gib=70), 0: CALM._replace(peak_gib=70, floor_gib=40)}
        clock.now_s += 1.0
        for number in (0, 1):
            exchange.roll.take(report_of(number, float(at_s), words))
        exchange.jobs.note(exchange.roll)
    report = exchange.build(RunLog(), Provenance(source="driver"))
    [job] = report.jobs
    assert (job.job, job.ranks_seen, job.nodes) == ("run-0", 4, ("n0", "n1"))
    assert [(it.stage, it.peak_bytes) for it in job.stages] == [(0, 70 * GIB), (1, 40 * GIB)]
    assert job.bottleneck_stages == (0,)
    assert job.first_diverging == "rank 1 (GPU 1 of n0)"
    text = describe_report(report, 200)
    assert "job run-0: stage 0 of 2 peaks at 70.0 GiB, 1.27 times the mean of all stages" in text
    assert "job run-0: rank 1 (GPU 1 of n0) grew away from its peers first" in text


def test_a_report_without_ranks_has_no_jobs_and_one_with_too_many_is_rejected() -> None:
    report = report_of(0, 1.0, {})
    jobs, roll = ClusterJobs(HandClock(1.0)), NodeRoll(30.0, HandClock(1.0))
    roll.take(over_the_wire(report, ranks=()))
    jobs.note(roll)
    assert jobs.describe() == ()
    with pytest.raises(WireError):
        over_the_wire(report, ranks=report.sample.ranks * MOST_RANKS)


def test_of_a_report_the_master_keeps_only_what_reports_carry() -> None:
    report = report_of(0, 1.0, {})
    [first, second] = report.sample.devices
    padded = msgspec.structs.replace(first, processes=(ProcessReading(1),) * 1000, name="n" * 1000)
    notes = ("n" * 1000,) * 100
    assert over_the_wire(report, devices=(padded, second), notes=notes) == report
