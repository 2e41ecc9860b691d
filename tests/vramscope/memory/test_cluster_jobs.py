"""A job over nodes that report to one: its stages are held together there, and so are its ranks."""

import msgspec
import pytest

from tests.analyzers.cluster_state.clusters import CALM, Word, make_node
from vramscope.engine.cluster.reports import MOST_RANKS, NodeReport, NodeRoll, check_report
from vramscope.engine.errors import WireError
from vramscope.engine.units import GIB
from vramscope.exporters.reports.frame import Provenance
from vramscope.exporters.reports.log import RunLog
from vramscope.exporters.reports.text import describe_report
from vramscope.memory.node_exchange import (
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
    timed = msgspec.structs.replace(report, time_s=sample.time_s)
    return check_report(msgspec.msgpack.decode(msgspec.msgpack.encode(timed), type=NodeReport))


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


def test_a_report_without_ranks_is_that_of_an_earlier_version_and_one_with_too_many_is_none() -> None:
    told = msgspec.to_builtins(report_of(0, 1.0, {}))
    [*ranks] = told.pop("ranks")
    earlier = check_report(msgspec.convert(told, NodeReport))
    jobs, roll = ClusterJobs(HandClock(1.0)), NodeRoll(30.0, HandClock(1.0))
    roll.take(earlier)
    jobs.note(roll)
    assert jobs.describe() == ()
    with pytest.raises(WireError):
        check_report(msgspec.convert({**told, "ranks": ranks * MOST_RANKS}, NodeReport))
