"""Ranks that should be alike: the one that grows away is named, first; what is usual is not."""

import math
import random

import pytest
from msgspec.structs import replace

from vramscope.analyzers.divergence import DivergenceAnalyzer
from vramscope.engine.model import DeviceSample, Finding, Sample
from vramscope.engine.sampling.trace_player import TracePlayer

from ...engine.files.traces import require_measured
from ..restart import last_words, restart, watch
from .jobs import Level, job_of

HOUR = 3600.0


def found_in(level: Level, seconds: float = HOUR, *, stages: int | None = 1) -> list[Finding]:
    return watch(DivergenceAnalyzer(), job_of(level, seconds, stages=stages))


def leak_from(begin_s: float, *, leaking: int = 3, gib_per_hour: float = 12.0) -> Level:
    def level(rank: int, time_s: float) -> tuple[float, float]:
        grown = max(0.0, time_s - begin_s) * gib_per_hour / HOUR if rank == leaking else 0.0
        return 20.0 + grown, 60.0 + grown

    return level


def test_the_rank_that_grows_away_is_named_once_and_told_again_as_it_gets_worse() -> None:
    first, *later = found_in(leak_from(600.0, gib_per_hour=20.0))
    assert (first.kind, first.severity, first.device_uuid) == ("divergence", "low", "GPU-3")
    assert first.title.startswith("rank 3 grows away from its 7 peers first: +")
    assert first.opened_s < 600 + 900
    assert {finding.id for finding in later} == {first.id}
    assert later[-1].severity in ("medium", "high")
    assert later[-1].title.startswith("rank 3 grows away from its 7 peers first: +")


def test_who_grows_second_is_not_called_the_first() -> None:
    sooner, later = leak_from(300.0, leaking=1), leak_from(1500.0, leaking=6)
    found = found_in(lambda rank, time_s: later(rank, time_s) if rank == 6 else sooner(rank, time_s))
    opened = list(last_words(found).values())
    assert [finding.device_uuid for finding in opened] == ["GPU-1", "GPU-6"]
    assert ["first" in finding.title for finding in opened] == [True, False]


def test_of_two_ranks_the_one_that_grows_is_named() -> None:
    run = job_of(leak_from(0.0, leaking=1), HOUR, ranks=range(2))
    assert {finding.device_uuid for finding in watch(DivergenceAnalyzer(), run)} == {"GPU-1"}


@pytest.mark.parametrize("stages", [None, 1])
def test_growth_is_seen_where_levels_differ_by_nature(stages: int | None) -> None:
    leaking = leak_from(0.0)
    run = job_of(lambda rank, time_s: (leaking(rank, time_s)[0] + rank, 60.0), HOUR, stages=stages)
    assert {finding.device_uuid for finding in watch(DivergenceAnalyzer(), run)} == {"GPU-3"}


def noise(seed: int, floor_gib: float, peak_gib: float) -> Level:
    """Return floors and peaks that vary with the lengths of the batches."""
    varied = random.Random(seed)
    return lambda rank, time_s: (20 + varied.random() * floor_gib, 40 + varied.random() * peak_gib)


@pytest.mark.parametrize(
    ("why", "level"),
    [
        ("all are the same", lambda rank, time_s: (20.0, 60.0)),
        ("levels differ and stay", lambda rank, time_s: (20.0 + rank, 60.0 + rank)),
        ("lengths vary", noise(1, 0.0, 35.0)),
        ("floors vary too", noise(2, 4.0, 35.0)),
        ("all grow alike", lambda rank, time_s: (20.0 + time_s / 200, 40.0 + time_s / 200)),
        ("one fills up to a bound", lambda rank, now_s: (23 - (rank == 2) * 3 * math.exp(-now_s / 200), 60)),
        ("one evaluates", lambda rank, time_s: (20 + (rank == 0) * max(0.0, time_s % 900 - 840) / 20, 60.0)),
        ("one has a step up", lambda rank, time_s: (20.0 + 4.0 * (rank == 5 and time_s > 900), 64.0)),
    ],
)  # fmt: skip
def test_a_healthy_job_is_left_alone(why: str, level: Level) -> None:
    assert found_in(level) == [], why


def test_stages_are_not_compared_with_each_other() -> None:
    def level(rank: int, time_s: float) -> tuple[float, float]:
        return (20.0, 75.0) if rank % 2 else (10.0, 30.0)

    assert found_in(level, stages=2) == []


def test_a_rank_that_limits_its_stage_is_told_after_ten_minutes_and_until_it_is_over() -> None:
    def level(rank: int, time_s: float) -> tuple[float, float]:
        return 20.0, 76.0 if rank == 5 and time_s < 1800 else 60.0

    opened, closed = found_in(level)
    assert opened.title == (
        "rank 5 limits its group: it peaks at 76.0 GiB of 80.0 GiB, where its 7 peers reach 60.0 GiB"
    )
    assert 600 <= opened.opened_s <= 640
    assert (closed.id, closed.is_open) == (opened.id, False)
    assert found_in(level, stages=None) == [], "without stages levels may differ by nature"


def test_it_closes_when_the_rank_is_back_among_its_peers() -> None:
    leaking = leak_from(0.0)

    def level(rank: int, time_s: float) -> tuple[float, float]:
        return leaking(rank, time_s) if time_s < 1800 else (20.0, 60.0)

    found = found_in(level)
    assert found[-1].evidence[-1].value == "it is back among its peers"
    assert len({finding.id for finding in found}) == 1


def test_a_rank_that_ends_closes_what_is_open_on_it() -> None:
    run = job_of(leak_from(0.0), 1800.0)
    rest = job_of(leak_from(0.0), 60.0, ranks=[0, 1, 2, 4, 5, 6, 7], start_s=1800.0)
    (closed,) = [finding for finding in watch(DivergenceAnalyzer(), [*run, *rest]) if not finding.is_open]
    assert closed.evidence[-1].value == "the rank is gone"


def test_a_rank_that_is_missing_for_a_moment_keeps_its_finding() -> None:
    run = job_of(leak_from(0.0), 1800.0)
    gap = job_of(leak_from(0.0), 6.0, ranks=[0, 1, 2, 4, 5, 6, 7], start_s=1800.0)
    rest = job_of(leak_from(0.0), 600.0, start_s=1806.0)
    found = watch(DivergenceAnalyzer(), [*run, *gap, *rest])
    assert all(finding.is_open for finding in found)


def test_a_job_that_ends_closes_everything() -> None:
    run = job_of(leak_from(0.0), 1800.0)
    empty = [Sample("n", 9000 + at, 1800.0 + 2 * at, 2.0) for at in range(10)]
    found = watch(DivergenceAnalyzer(), [*run, *empty])
    assert found[-1].evidence[-1].value == "its job has ended"


def test_devices_of_which_nobody_knows_the_rank_have_no_peers() -> None:
    leaking = leak_from(0.0)
    alone = [
        Sample("n", at, 2.0 * at, 2.0, tuple(DeviceSample(f"GPU-{n}", n) for n in range(8)))
        for at in range(1800)
    ]
    assert watch(DivergenceAnalyzer(), alone) == []
    assert watch(DivergenceAnalyzer(), job_of(leaking, HOUR, ranks=[3])) == []


@pytest.mark.parametrize("at", [10, 300, 450, 700, 1000, 1500])
def test_a_restarted_worker_goes_on_with_the_same_findings(at: int) -> None:
    run = job_of(leak_from(600.0), HOUR)
    expected = {finding.id: finding.opened_s for finding in watch(DivergenceAnalyzer(), run)}
    assert {f.id: f.opened_s for f in restart(DivergenceAnalyzer, run, at)} == expected


def test_a_finding_older_than_the_ring_is_adopted_and_closed() -> None:
    leaking = leak_from(0.0)
    run = job_of(lambda rank, time_s: leaking(rank, time_s) if time_s < 2400 else (20.0, 60.0), HOUR)
    found = restart(DivergenceAnalyzer, run, 1100, ring=300)
    assert len({finding.id for finding in found}) == 1
    assert not found[-1].is_open


def test_two_jobs_of_one_size_that_were_attached_to_are_not_one() -> None:
    level = leak_from(0.0, leaking=1)
    first, second = (
        job_of(level, HOUR, ranks=range(2), job=None),
        job_of(level, HOUR, ranks=range(2), job=None),
    )
    both = [
        replace(
            one,
            devices=(*one.devices, *(replace(device, uuid=f"{device.uuid}b") for device in other.devices)),
            ranks=(
                *one.ranks,
                *(
                    replace(rank, pid=rank.pid + 50, device_uuid=f"{rank.device_uuid}b")
                    for rank in other.ranks
                ),
            ),
        )
        for one, other in zip(first, second, strict=True)
    ]
    assert watch(DivergenceAnalyzer(), first) != []
    assert watch(DivergenceAnalyzer(), both) == []


def test_ranks_side_by_side() -> None:
    analyzer = DivergenceAnalyzer()
    watch(analyzer, job_of(lambda rank, time_s: (20.0, 70.0 if rank == 2 else 50.0), 60.0, stages=2))
    even, odd = sorted(analyzer.groups(), key=lambda group: group.stage or 0)
    assert (even.stage, even.straggler, odd.straggler) == (0, "rank 2", None)
    assert even.spread == pytest.approx(0.4)
    assert [rank.name for rank in even.ranks] == ["rank 0", "rank 2", "rank 4", "rank 6"]


class _Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s


@pytest.mark.parametrize("name", ["real_30b_pp4_tp2", "simulated_30b_pp4_tp2"])
def test_measured_traces_are_healthy(name: str) -> None:
    clock = _Clock()
    player = TracePlayer(require_measured(name), clock=clock, capacity_bytes=80 * 1024**3)
    player.start()
    analyzer, found = DivergenceAnalyzer(), list[Finding]()
    while not player.is_ended:
        clock.now_s += 5.0
        found += watch(analyzer, player.take())
    assert found == []
    assert name.startswith("simulated") or [group.stage for group in analyzer.groups()] == [0, 1, 2, 3]
