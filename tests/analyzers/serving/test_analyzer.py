"""Findings about servers: each opens for its cause alone, says numbers that were computed, and closes."""

import random
from collections.abc import Iterable, Iterator

import pytest
from msgspec.structs import replace

from vramscope.analyzers.pressure import PressureAnalyzer
from vramscope.analyzers.serving.analyzer import (
    ASLEEP,
    BEYOND,
    OUTSIDE,
    PREEMPTION,
    REJECTION,
    ServingAnalyzer,
)
from vramscope.analyzers.serving.arrivals import ArrivalTrack
from vramscope.analyzers.verdict import summarize
from vramscope.engine.history import History
from vramscope.engine.model import DeviceSample, Finding, Sample
from vramscope.engine.units import GIB, MIB
from vramscope.engine.workloads.serving.__main__ import SLEEPS_S, STORY_S, make_story
from vramscope.engine.workloads.serving.pool import Rate, Speed, Traffic
from vramscope.engine.workloads.serving.server import MemoryPlan, ServerSetup, SimulatedServer

from .servers import make_sample

CALM = Traffic(Rate(((0.0, 2.0),)))


def play(
    server: SimulatedServer, seconds: float, *, since: int = 0, other_bytes: int = 0
) -> Iterator[Sample]:
    end_s = server.now_s + seconds
    seq = since
    while server.now_s < end_s:
        server.advance(server.now_s + 2.0)
        seq += 1
        yield make_sample(server, seq, other_bytes=other_bytes)


def watch(analyzer: ServingAnalyzer, samples: Iterable[Sample]) -> dict[str, list[Finding]]:
    """Return what was said, by kind, in order."""
    found: dict[str, list[Finding]] = {}
    for sample in samples:
        for finding in analyzer.observe(sample):
            found.setdefault(finding.kind, []).append(finding)
    return found


def ramp(
    *, most_queued: int | None = None, most_sequences: int = 10_000, seed: int = 2, until_s: float = 2400.0
) -> SimulatedServer:
    traffic = Traffic(Rate(((0.0, 3.0), (300.0, 3.0), (until_s, 24.0))), output_tokens=500)
    setup = ServerSetup(
        plan=MemoryPlan(token_bytes=384 << 10),
        traffic=traffic,
        most_sequences=most_sequences,
        most_queued=most_queued,
    )
    return SimulatedServer(setup, seed=seed)


def test_a_healthy_server_is_no_finding_at_all_not_even_pressure() -> None:
    server = SimulatedServer(ServerSetup(traffic=CALM, plan=MemoryPlan(share=0.95)), 1)
    samples = list(play(server, 600.0))
    assert max(it.devices[0].memory.used_bytes or 0 for it in samples) > 0.95 * 80 * GIB
    assert watch(ServingAnalyzer(), samples) == {}
    pressure = PressureAnalyzer()
    assert [it for sample in samples for it in pressure.observe(sample)] == []
    bare = PressureAnalyzer()
    assert [it.kind for sample in samples for it in bare.observe(replace(sample, servers=()))] == ["pressure"]


def test_a_full_device_that_a_server_hardly_uses_is_pressure_all_the_same() -> None:
    plan = MemoryPlan(weights_bytes=4 * GIB, share=0.2)
    server = SimulatedServer(ServerSetup(traffic=CALM, plan=plan), 1)
    pressure = PressureAnalyzer()
    found = [it for s in play(server, 60.0, other_bytes=62 * GIB) for it in pressure.observe(s)]
    assert [it.kind for it in found] == ["pressure"]


def test_pressure_closes_when_the_server_is_known() -> None:
    server = SimulatedServer(ServerSetup(traffic=CALM, plan=MemoryPlan(share=0.95)), 1)
    samples = list(play(server, 120.0))
    pressure = PressureAnalyzer()
    found = [it for s in samples[:30] for it in pressure.observe(replace(s, servers=()))]
    found += [it for s in samples[30:] for it in pressure.observe(s)]
    assert [it.is_open for it in found] == [True, False]
    assert found[-1].evidence[-1].value == "a server of models fills the device on purpose"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_end_of_the_pool_is_forecast_before_the_first_preemption(seed: int) -> None:
    server = ramp(seed=seed, until_s=3600.0)
    analyzer = ServingAnalyzer()
    found: list[Finding] = []
    for sample in play(server, 1800.0):
        found += analyzer.observe(sample)
        if server.engines[0].counters.preemptions:
            break
    assert server.engines[0].counters.first_preemption_s is not None
    first = found[0]
    lead_s = 1_000_000.0 + server.engines[0].counters.first_preemption_s - first.opened_s
    assert lead_s >= 60.0
    assert first.kind == PREEMPTION
    assert first.device_uuid == "GPU-0"
    assert "--gpu-memory-utilization 0.97 (now 0.9)" in first.advice
    assert "--max-num-seqs" in first.advice
    verdict = summarize(sample, [first])
    assert verdict.level == "medium"
    assert verdict.text(200).startswith(first.title)
    # What is to be known is left where there is little room.
    assert "KV pool" in verdict.text(56)
    names = {it.name for it in first.evidence}
    assert {"requests a minute", "expected within two minutes", "window"} <= names


def test_a_pool_for_a_few_sequences_ends_by_chance_and_the_finding_says_no_time() -> None:
    """A burst of use is no news there; load that settles near the end of the pool is."""
    traffic = Traffic(Rate(((0.0, 0.5), (900.0, 0.5), (3600.0, 2.0))), output_tokens=500, prompt_tokens=800)
    calm = SimulatedServer(
        ServerSetup(traffic=Traffic(Rate(((0.0, 0.5),)), output_tokens=500), blocks=1500), 3
    )
    assert watch(ServingAnalyzer(), play(calm, 900.0)) == {}
    server = SimulatedServer(ServerSetup(traffic=traffic, blocks=1500), 3)
    found = watch(ServingAnalyzer(), play(server, 1700.0))[PREEMPTION]
    assert "may run out of its KV pool at any time at the present arrival rate: about" in found[0].title
    assert "sequences fill it" in found[0].title
    assert not any(it.name.startswith(("time to", "lower", "upper")) for it in found[0].evidence)
    assert "scatter by long sequences" in (found[0].method or "")
    first_s = server.engines[0].counters.first_preemption_s
    assert first_s is not None
    assert 1_000_000.0 + first_s - found[0].opened_s >= 60.0


@pytest.mark.parametrize("seed", [2, 3])
def test_requests_that_wait_for_compute_keep_the_pool_from_filling_and_are_no_forecast(seed: int) -> None:
    """Long prompts take all that the engine computes; the load grows on, the use of the pool does not."""
    traffic = Traffic(Rate(((0.0, 0.5), (300.0, 0.5), (1500.0, 4.0))), output_tokens=300, prompt_tokens=2700)
    speed = Speed(prefill_tokens_per_s=6000.0, step_base_s=0.02)
    server = SimulatedServer(
        ServerSetup(traffic=traffic, blocks=6000, most_sequences=10_000, speed=speed), seed
    )
    samples = list(play(server, 1500.0))
    shares = [sample.servers[0].engines[0].used_share or 0.0 for sample in samples]
    assert max(shares) > 0.85
    assert len(server.engines[0].waiting) > 100
    assert server.engines[0].counters.preemptions == 0
    assert watch(ServingAnalyzer(), samples) == {}


def test_what_few_sequences_fill_needs_more_than_one_look() -> None:
    def find_looks(blocks: int, most_per_s: float) -> list[bool]:
        """Return whether the looks up to the first word found an end of the pool."""
        traffic = Traffic(Rate(((0.0, 0.2), (900.0, most_per_s))), output_tokens=500, prompt_tokens=800)
        server = SimulatedServer(ServerSetup(traffic=traffic, blocks=blocks, most_sequences=10_000), 3)
        track, analyzer = ArrivalTrack(), ServingAnalyzer()
        looks = []
        for sample in play(server, 900.0):
            if track.add(sample.time_s, sample.servers[0].engines[0]):
                looks.append(track.forecast() is not None)
            if analyzer.observe(sample):
                break
        return looks

    assert find_looks(4000, 6.0)[-3:] == [False, True, True]
    assert find_looks(20_000, 30.0)[-2:] == [False, True]


def test_readings_that_samples_repeat_with_an_age_are_one_reading_each() -> None:
    """A node samples more often than a server is read; the ages of one reading differ by milliseconds."""
    server = ramp(until_s=3600.0)
    analyzer = ServingAnalyzer()
    chance = random.Random(1)
    found: list[Finding] = []
    seq = 0
    while not server.engines[0].counters.preemptions:
        server.advance(server.now_s + 1.5)
        read = make_sample(server, 0)
        for part in range(3):
            seq += 1
            age_s = 0.5 * part + chance.uniform(0.0, 0.01)
            servers = (replace(read.servers[0], age_s=age_s),)
            time_s = read.time_s + 0.5 * part
            found += analyzer.observe(replace(read, seq=seq, time_s=time_s, interval_s=0.5, servers=servers))
    first_s = server.engines[0].counters.first_preemption_s
    assert first_s is not None
    assert found[0].method.startswith("Requests that arrive")
    assert found[0].opened_s < 1_000_000.0 + first_s


def test_a_server_that_does_not_count_its_requests_is_forecast_by_a_line() -> None:
    """As `kv_cache_usage_perc` alone would: later, and by another method."""
    server = ramp(until_s=3600.0)
    analyzer = ServingAnalyzer()
    found: list[Finding] = []
    for sample in play(server, 1800.0):
        bare = [replace(it, finished=None) for it in sample.servers[0].engines]
        found += analyzer.observe(replace(sample, servers=(replace(sample.servers[0], engines=tuple(bare)),)))
        if server.engines[0].counters.preemptions:
            break
    assert found[0].kind == PREEMPTION
    assert found[0].method.startswith("A line")
    assert "requests a minute" not in {it.name for it in found[0].evidence}


def test_a_wave_of_load_that_stays_below_the_pool_is_no_forecast() -> None:
    """Its use rises as steeply as that of load which does not stop; its rate of requests does not."""
    points = [(0.0, 1.5), (600.0, 1.5), (1200.0, 4.0), (1800.0, 1.5), (2400.0, 4.0), (3000.0, 1.5)]
    traffic = Traffic(Rate(tuple(points)), output_tokens=500)
    setup = ServerSetup(plan=MemoryPlan(token_bytes=384 << 10), traffic=traffic, most_sequences=10_000)
    server = SimulatedServer(setup, 5)
    most = 0.0
    found: list[Finding] = []
    analyzer = ServingAnalyzer()
    for sample in play(server, 3000.0):
        found += analyzer.observe(sample)
        most = max(most, sample.servers[0].engines[0].used_share or 0.0)
    assert most > 0.3
    assert found == []


def test_preemptions_are_counted_a_minute_and_the_finding_closes_after_them() -> None:
    traffic = Traffic(Rate(((0.0, 3.0), (100.0, 30.0), (400.0, 30.0), (410.0, 1.0))), output_tokens=500)
    setup = ServerSetup(plan=MemoryPlan(token_bytes=384 << 10), traffic=traffic, most_sequences=10_000)
    server = SimulatedServer(setup, 3)
    found = watch(ServingAnalyzer(), play(server, 3600.0))[PREEMPTION]
    assert len({it.id for it in found}) == 1
    preempting = [it for it in found if "preempts" in it.title]
    assert preempting
    rate = next(e.value for e in preempting[-1].evidence if e.name == "preemptions a minute")
    assert isinstance(rate, float)
    assert rate > 0
    assert all(" 1 sequences" not in it.title for it in found)
    for it in preempting:
        used = next(e.value for e in it.evidence if e.name == "KV pool in use")
        assert ("is full" in it.title) == (isinstance(used, float) and used >= 90.0)
    assert not found[-1].is_open


def test_fewer_sequences_than_fill_the_pool_are_no_forecast() -> None:
    server = ramp(most_sequences=60)
    found = watch(ServingAnalyzer(), play(server, 1800.0))
    assert server.engines[0].counters.preemptions == 0
    assert PREEMPTION not in found


def test_refused_requests_are_counted_a_minute() -> None:
    server = ramp(most_queued=20, most_sequences=60)
    found = watch(ServingAnalyzer(), play(server, 1500.0))[REJECTION]
    assert found[-1].severity == "high"
    rate = next(e.value for e in found[-1].evidence if e.name == "refused a minute")
    assert isinstance(rate, float)
    assert rate > 60
    assert "--max-num-seqs" not in found[-1].advice or "others wait" in found[-1].advice


def test_little_room_outside_of_the_pool_is_named_with_the_flags_that_make_it() -> None:
    plan = MemoryPlan(share=0.985)
    server = SimulatedServer(ServerSetup(traffic=CALM, plan=plan), 1)
    (finding,) = watch(ServingAnalyzer(), play(server, 60.0))[OUTSIDE]
    free = plan.total_bytes - server.used_bytes
    assert free < 512 * MIB
    assert next(e.value for e in finding.evidence if e.name == "free outside of the server") == free
    assert "--gpu-memory-utilization 0.97 (now 0.985)" in finding.advice
    pool = plan.pool_bytes - (GIB - free)
    assert f"--kv-cache-memory {pool}" in finding.advice


def test_a_server_that_grows_beyond_its_plan_is_named_with_both_sizes() -> None:
    server = SimulatedServer(ServerSetup(traffic=CALM, growth_bytes_per_s=4 * MIB), 1)
    found = watch(ServingAnalyzer(), play(server, 900.0))[BEYOND]
    assert "more than planned" in found[0].title
    plan = server.setup.plan
    planned = next(e.value for e in found[0].evidence if e.name == "planned")
    assert planned == plan.share_bytes + plan.graphs_bytes
    grown = SimulatedServer(ServerSetup(traffic=CALM, growth_bytes_per_s=8 * MIB), 1)
    unplanned = (
        replace(s, servers=tuple(replace(it, plan=()) for it in s.servers)) for s in play(grown, 900.0)
    )
    found = watch(ServingAnalyzer(), unplanned)[BEYOND]
    assert "more than after its start" in found[0].title


def test_sleep_is_an_event_with_a_beginning_and_an_end() -> None:
    server = SimulatedServer(ServerSetup(traffic=CALM), 1)
    analyzer = ServingAnalyzer()
    assert watch(analyzer, play(server, 60.0)) == {}
    awake = server.used_bytes
    server.sleep()
    (opened,) = watch(analyzer, play(server, 60.0, since=30))[ASLEEP]
    assert (opened.severity, opened.is_open) == ("low", True)
    freed = next(e.value for e in opened.evidence if e.name == "freed")
    assert freed == awake - server.used_bytes
    server.wake()
    (closed,) = watch(analyzer, play(server, 60.0, since=60))[ASLEEP]
    assert closed.id == opened.id
    assert not closed.is_open


def test_what_a_sleeping_server_gave_back_is_said_when_the_driver_shows_it() -> None:
    server = SimulatedServer(ServerSetup(traffic=CALM), 1)
    analyzer = ServingAnalyzer()
    assert watch(analyzer, play(server, 60.0)) == {}
    awake = list(play(server, 2.0, since=30))[-1]
    server.sleep()
    samples = list(play(server, 20.0, since=31))
    # The server's word comes with the first sample, its memory with the third.
    late = [
        replace(it, servers=(replace(it.servers[0], devices=awake.servers[0].devices),)) for it in samples[:2]
    ]
    first, second = watch(analyzer, [*late, *samples[2:]])[ASLEEP]
    assert first.title.endswith("sleeps")
    assert second.title.endswith("back")
    assert (second.id, second.opened_s) == (first.id, first.opened_s)


def test_a_sleeping_server_preempts_and_refuses_nothing() -> None:
    server = ramp(most_queued=20)
    analyzer = ServingAnalyzer()
    found = watch(analyzer, play(server, 1500.0))
    assert {PREEMPTION, REJECTION} <= set(found)
    server.sleep()
    closed = watch(analyzer, play(server, 10.0, since=750))
    assert [closed[kind][-1].is_open for kind in (PREEMPTION, REJECTION)] == [False, False]


def test_findings_close_when_the_server_is_gone() -> None:
    server = SimulatedServer(ServerSetup(traffic=CALM), 1)
    analyzer = ServingAnalyzer()
    watch(analyzer, play(server, 10.0))
    server.sleep()
    samples = list(play(server, 40.0, since=5))
    found = watch(analyzer, (s if at < 5 else replace(s, servers=()) for at, s in enumerate(samples)))
    assert [it.is_open for it in found[ASLEEP]] == [True, False]
    assert found[ASLEEP][-1].evidence[-1].value == "the server is no longer there"


def test_a_restarted_worker_adopts_what_is_open_and_the_ring_closes_nothing() -> None:
    server = SimulatedServer(ServerSetup(traffic=CALM), 1)
    analyzer, history = ServingAnalyzer(), History()
    for sample in play(server, 30.0):
        analyzer.observe(sample)
        history.add(sample)
    server.sleep()
    opened: list[Finding] = []
    for sample in play(server, 60.0, since=15):
        opened += analyzer.observe(sample)
        history.add(sample)
    successor = ServingAnalyzer()
    successor.restore(opened)
    assert watch(successor, history.samples()) == {}
    pressure = PressureAnalyzer()
    assert [it for sample in history.samples() for it in pressure.observe(sample)] == []
    server.wake()
    assert [it.is_open for it in watch(successor, play(server, 30.0, since=45))[ASLEEP]] == [False]


@pytest.mark.parametrize("free", [None, 0])
def test_a_device_without_free_bytes_is_no_mistake(free: int | None) -> None:
    server = SimulatedServer(ServerSetup(traffic=CALM), 1)
    analyzer = ServingAnalyzer()
    for sample in play(server, 60.0):
        devices: tuple[DeviceSample, ...] = tuple(
            replace(it, memory=replace(it.memory, free_bytes=free)) for it in sample.devices
        )
        found = analyzer.observe(replace(sample, devices=devices))
        assert all(it.kind == OUTSIDE for it in found)


def test_the_story_of_the_demo_is_told_in_order() -> None:
    """Warned of a minute ahead, then preempted; asleep later, and awake again."""
    server = SimulatedServer(make_story(), 0)
    analyzer = ServingAnalyzer()
    found: list[tuple[float, Finding]] = []
    seq = 0
    while server.now_s < STORY_S:
        server.advance(server.now_s + 2.0)
        if (SLEEPS_S[0] <= server.now_s < SLEEPS_S[1]) != server.is_asleep:
            (server.wake if server.is_asleep else server.sleep)()
        seq += 1
        found += [(server.now_s, it) for it in analyzer.observe(make_sample(server, seq))]
    first_s = server.engines[0].counters.first_preemption_s
    assert first_s is not None
    assert found[0][1].kind == PREEMPTION
    assert first_s - found[0][0] >= 60.0
    asleep = [at_s for at_s, it in found if it.kind == ASLEEP]
    assert asleep == [SLEEPS_S[0], SLEEPS_S[1]]
    assert any(it.kind == REJECTION for _, it in found)
