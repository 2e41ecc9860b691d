"""Words that were false once: drifting samples, growth that has ended, processes that have."""

import random
from collections.abc import Iterable, Iterator

import msgspec
import pytest

from tests.analyzers.leak.courses import CAPACITY, sawtooth, series, steps, watch
from vramscope.analyzers.leak import LeakAnalyzer
from vramscope.analyzers.oom import OomAnalyzer
from vramscope.analyzers.risk import assess_risk
from vramscope.analyzers.verdict import summarize
from vramscope.engine.model import (
    AllocatorReading,
    Assessment,
    DeviceSample,
    Finding,
    MemoryReading,
    Sample,
)
from vramscope.engine.units import GIB, MIB

RESERVED = 52 * GIB
FLAT_STEPS = 64
"""Steps without growth after which a finding on even growth has closed, see docs/verdicts.md."""


def _sample_drifting(steps_a_sample: float, jitter: float, count: int = 1500) -> Iterator[Sample]:
    """Yield what is met of steps that are all alike, once a second: 20 to 50 GiB under 52 reserved."""
    chance, begun_s = random.Random(f"{steps_a_sample} {jitter}"), 0.0
    length_s = 1 / steps_a_sample
    memory = MemoryReading(CAPACITY, RESERVED + GIB, CAPACITY - RESERVED - GIB)
    for tick in range(count):
        while begun_s + length_s <= tick:
            begun_s += length_s
            length_s = chance.gauss(1, jitter) / steps_a_sample
        level = 20 + 30 * (1 - abs(2 * (tick - begun_s) / length_s - 1))
        allocator = AllocatorReading(round(level * GIB), reserved_bytes=RESERVED)
        device = DeviceSample("GPU-0", 0, memory=memory, allocator=allocator)
        yield Sample("n", tick, float(tick), 1.0, (device,), clock="trace")


def _watch_both(samples: Iterator[Sample]) -> tuple[list[Finding], list[Assessment]]:
    leaks, forecasts = LeakAnalyzer(), OomAnalyzer()
    found: list[Finding] = []
    told: list[Assessment] = []
    for sample in samples:
        found += [*leaks.observe(sample), *forecasts.observe(sample)]
        told += forecasts.assess()
    return found, told


@pytest.mark.parametrize("jitter", [0.0, 0.003])
@pytest.mark.parametrize("ratio", [1.001, 0.9997, 2.002, 0.5005, 1.498, 0.6673, 3.003])
def test_steps_that_samples_cannot_resolve_are_no_growth(ratio: float, jitter: float) -> None:
    found, told = _watch_both(_sample_drifting(ratio, jitter))
    assert not found
    assert {assessment.level for assessment in told} == {"low"}
    assert all(assessment.oom_in_s is None for assessment in told)
    assert not any(assessment.growth_bytes_per_s for assessment in told)


def test_a_rise_too_small_for_a_forecast_is_shown_and_not_denied() -> None:
    def rise() -> Iterator[Sample]:
        for t in range(400):
            level = 20 * GIB + t * 10 * MIB + (t % 10) * 300 * MIB
            memory = MemoryReading(CAPACITY, level + 3 * GIB, CAPACITY - level - 3 * GIB)
            allocator = AllocatorReading(level, reserved_bytes=level + 2 * GIB)
            device = DeviceSample("GPU-0", 0, memory=memory, allocator=allocator, step=t // 10)
            yield Sample("n", t, float(t), 1.0, (device,), clock="trace")

    found, told = _watch_both(rise())
    assert not found
    assert told[-1].growth_bytes_per_s == pytest.approx(10 * MIB, rel=0.05)
    assert told[-1].growth_bytes_per_step == pytest.approx(100 * MIB, rel=0.05)
    assert (told[-1].level, told[-1].oom_in_s) == ("low", None)
    assert told[-1].reason == "its floor rises, too soon to say for how long"
    assert (told[-1].confidence, told[-1].probability) == (None, None)


def test_a_leak_under_steps_that_samples_cannot_resolve_is_found_once_more_is_reserved() -> None:
    def leak() -> Iterator[Sample]:
        for sample in _sample_drifting(1.0, 0.0):
            grown = round(sample.time_s * 15 * MIB)
            (device,) = sample.devices
            memory = MemoryReading(CAPACITY, RESERVED + GIB + grown, CAPACITY - RESERVED - GIB - grown)
            held = (device.allocator or AllocatorReading()).allocated_bytes or 0
            allocator = AllocatorReading(held + grown, reserved_bytes=RESERVED + grown)
            leaking = msgspec.structs.replace(device, memory=memory, allocator=allocator)
            yield msgspec.structs.replace(sample, devices=(leaking,))

    found, _ = _watch_both(leak())
    assert {finding.kind for finding in found} == {"leak", "oom"}


def _leak_then_still(grown: int, still: int) -> list[float]:
    levels = [20 * GIB + 20 * MIB * step for step in range(grown)]
    return [*levels, *[levels[-1]] * still]


@pytest.mark.parametrize("grown", [400, 1200])
def test_findings_close_within_the_stated_flat_steps(grown: int) -> None:
    found, told = _watch_both(steps(_leak_then_still(grown, FLAT_STEPS)))
    closed = {finding.kind for finding in found if not finding.is_open}
    assert closed == {finding.kind for finding in found} != set()
    assert told[-1].level == "low"


@pytest.mark.parametrize("scatter_mib", [0, 40, 200])
def test_the_flatter_it_is_the_sooner_it_closes(scatter_mib: int) -> None:
    def measure_steps(share: float) -> float | None:
        """Return how long a forecast stands once growth has slowed to a share of its pace."""
        chance = random.Random(1)
        levels = [20 * GIB + 20 * MIB * (min(step, 400) + share * max(step - 400, 0)) for step in range(600)]
        found, _ = _watch_both(steps([level + chance.random() * scatter_mib * MIB for level in levels]))
        closed_s = found[-1].closed_s
        return None if closed_s is None else closed_s - 400

    flat, flatter, sloping = (measure_steps(share) for share in (0.0, 0.1, 0.14))
    assert flat is not None
    assert flatter is not None
    assert sloping is not None
    assert flat <= flatter <= sloping <= 40
    assert flat < sloping
    assert measure_steps(0.3) is None, "this still grows"


def test_a_plateau_of_long_sequences_is_not_severe_for_long() -> None:
    ramp, still = 2400, FLAT_STEPS
    found, told = _watch_both(
        steps([20.0 * GIB] * (ramp + still), lambda step: 10 * GIB + 20 * MIB * min(step, ramp))
    )
    assert "high" in {assessment.level for assessment in told}
    assert not found[-1].is_open
    assert told[-1].level == "low"


def test_what_has_stopped_growing_opens_nothing() -> None:
    levels = [20 * GIB + 20 * MIB * step for step in range(110)]
    found, _ = _watch_both(steps([20.0 * GIB] * 40 + levels[:12] + [levels[12]] * 1500))
    assert not found


def test_a_series_that_has_stopped_growing_is_closed_too() -> None:
    floors = _leak_then_still(1200, 500)
    found, told = _watch_both(series(sawtooth(floors)))
    assert found
    assert not any(it.is_open for it in {finding.id: finding for finding in found}.values())
    assert told[-1].level == "low"


def test_nothing_is_foretold_for_a_process_that_has_ended() -> None:
    analyzer = OomAnalyzer()
    course = list(steps([20 * GIB + 40 * MIB * step for step in range(1000)]))
    found = watch(analyzer, course)
    assert found[-1].is_open
    told = analyzer.assess()
    (rank,) = course[-1].ranks
    ended = msgspec.structs.replace(
        course[-1], time_s=course[-1].time_s + 1, ranks=(msgspec.structs.replace(rank, state="ended"),)
    )
    (last,) = analyzer.observe(ended)
    assert last.closed_s == ended.time_s
    said = summarize(ended, (), assessments=told).text(200)
    assert "out of memory" not in said
    assert "OOM in" not in said


def test_a_floor_that_has_just_begun_to_rise_is_not_denied() -> None:
    analyzer = OomAnalyzer()
    said: list[Assessment] = []
    for sample in steps([78 * GIB - 10 * GIB + 32 * MIB * step for step in range(14)], lambda _: 8.0 * GIB):
        analyzer.observe(sample)
        said += analyzer.assess()
    newest = said[-1]
    assert (newest.level, newest.reason) == ("medium", "its floor rises, too soon to say for how long")
    assert newest.growth_bytes_per_s == pytest.approx(32 * MIB, rel=0.2), "and no other value says none"
    assert (newest.probability, newest.probability_within_steps, newest.confidence) == (None, None, None)


def test_a_time_that_is_doubted_is_not_told_beside_a_small_probability() -> None:
    analyzer = OomAnalyzer()
    course = list(steps([20.0 * GIB] * 1000, lambda step: 10 * GIB + 20 * MIB * step))
    watch(analyzer, course)
    (assessment,) = analyzer.assess()
    assert assessment.oom_in_s is not None
    assert assessment.confidence == pytest.approx(0.25)
    risk = assess_risk(course[-1].devices[0], (), (assessment,), course[-1].ranks)
    assert risk.oom_s is None


def test_growth_that_is_as_likely_to_end_has_no_countdown_and_its_sentence_says_may() -> None:
    analyzer = OomAnalyzer()
    course = list(steps([20 * GIB + 40 * MIB * step for step in range(900)]))
    seen: list[tuple[str, float, float | None]] = []
    finding = assessment = None
    for sample in course:
        finding = next(iter(analyzer.observe(sample)), finding)
        assessment = next(iter(analyzer.assess()), assessment)
        if finding is not None and assessment is not None and assessment.oom_in_s is not None:
            risk = assess_risk(sample.devices[0], (finding,), (assessment,), sample.ranks)
            seen.append((finding.title, assessment.confidence or 0.0, risk.oom_s))
    doubted = [title for title, belief, _ in seen if belief < 0.49]
    believed = [title for title, belief, _ in seen if belief > 0.51]
    assert all("may run out of memory in" in title for title in doubted)
    assert all("may" not in title for title in believed)
    assert all((end_s is None) == (belief < 0.5) for _, belief, end_s in seen)
    assert len(doubted) > 50
    assert len(believed) > 50


def test_headroom_is_that_of_the_newest_peaks() -> None:
    analyzer = OomAnalyzer()
    course = list(steps([20.0 * GIB] * 200))
    watch(analyzer, course)
    told = analyzer.assess()
    (rank,) = course[-1].ranks
    higher = msgspec.structs.replace(rank, peak_max_bytes=70 * GIB)
    newest = msgspec.structs.replace(course[-1], ranks=(higher,))
    assert "10.0 GiB headroom at peak" in summarize(newest, (), assessments=told).text(200)


def _sample_held(kept_gib: float, count: int = 420) -> Iterator[Sample]:
    """Yield steps of all lengths over floors that grow by 5 MiB/s from 30 GiB, under 78 of 80 GiB reserved.

    At 200 s the device refuses a segment, and the allocator gives its cache back, to what is given here.
    """
    chance = random.Random(7)
    for tick in range(count):
        level = 30 * GIB + 5 * MIB * tick + chance.random() ** 2 * 15 * GIB
        reserved = round((kept_gib if 200 <= tick < 204 else 78) * GIB)
        memory = MemoryReading(CAPACITY, reserved, CAPACITY - reserved)
        device = DeviceSample(
            "GPU-0", 0, memory=memory, allocator=AllocatorReading(round(level), None, reserved)
        )
        yield Sample("n", tick, float(tick), 1.0, (device,), clock="trace")


def test_cache_that_the_device_asked_for_and_that_stayed_is_no_room_for_what_grows() -> None:
    pinned, _ = _watch_both(_sample_held(76.0))
    assert any(it.kind == "oom" for it in pinned)
    # Where nearly all of it could be given back, 35 GiB are left, of which 2 GiB are no sign yet.
    assert not _watch_both(_sample_held(50.0))[0]


def _sample_every_third(grows: bool, count: int = 700) -> Iterator[Sample]:
    """Yield three samples of each step, at three places that stay the same, close to the limit."""
    reserved = 78 * GIB
    memory = MemoryReading(CAPACITY, reserved, CAPACITY - reserved)
    for tick in range(count):
        grown = 30 * MIB * max(0, tick - 200) if grows else 0
        level = (30.0, 42.0, 36.0)[tick % 3] * GIB + grown
        device = DeviceSample(
            "GPU-0", 0, memory=memory, allocator=AllocatorReading(round(level), None, reserved)
        )
        yield Sample("n", tick, float(tick), 1.0, (device,), clock="trace")


def test_growth_beyond_what_drift_explains_counts_though_samples_follow_the_steps() -> None:
    assert not _watch_both(_sample_every_third(grows=False))[0]
    found, _ = _watch_both(_sample_every_third(grows=True))
    first = min(it.opened_s for it in found if it.kind == "oom")
    # Drift over steps of 12 GiB seen at three places explains 10 GiB, which takes 340 s.
    assert 200 + 300 <= first <= 200 + 420


def _sample_levels(levels: Iterable[tuple[float, float]]) -> Iterator[Sample]:
    """Yield live and reserved bytes of one device, a pair a second."""
    for tick, (live, reserved) in enumerate(levels):
        memory = MemoryReading(CAPACITY, round(reserved), CAPACITY - round(reserved))
        allocator = AllocatorReading(round(live), None, round(reserved))
        device = DeviceSample("GPU-0", 0, memory=memory, allocator=allocator)
        yield Sample("n", tick, float(tick), 1.0, (device,), clock="trace")


def test_a_leak_shows_before_more_is_reserved_though_the_series_saw_the_model_being_loaded() -> None:
    chance = random.Random(5)
    loading = [(tick * 5.0 * GIB, 70.0 * GIB) for tick in range(8)]
    levels = [
        (40 * GIB + 12 * GIB * chance.random() + 15 * MIB * max(0, tick - 300), 70.0 * GIB)
        for tick in range(8, 900)
    ]
    found, _ = _watch_both(_sample_levels([*loading, *levels]))
    # The height of steps is 12 GiB, not the 52 GiB that the series spans.
    assert {it.kind for it in found} == {"leak", "oom"}
    assert 300 < min(it.opened_s for it in found) < 750


@pytest.mark.parametrize("seed", range(3))
def test_growth_has_its_pace_where_samples_meet_the_same_places_of_steps_again(seed: int) -> None:
    """Steps take 0.7 s: every seventh sample meets a floor, so that one of eight does, or two."""
    chance = random.Random(seed)
    a_step = 30e6
    levels = []
    for tick in range(620):
        passed = tick * 10 // 7
        phase = (tick * 10 % 7) / 7
        height = 21e9 * chance.gauss(1, 0.02)
        held = 30e9 + passed * a_step
        levels.append((held + height * (1 - abs(2 * phase - 1)), held + 23e9))
    forecasts = OomAnalyzer()
    paces = []
    for sample in _sample_levels(levels):
        forecasts.observe(sample)
        if sample.time_s >= 300 and sample.time_s % 20 == 0:
            paces += [it.growth_bytes_per_s for it in forecasts.assess()]
    assert len(paces) >= 8
    assert paces == pytest.approx([a_step / 0.7] * len(paces), rel=0.03)
