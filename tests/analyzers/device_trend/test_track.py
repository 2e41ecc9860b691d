"""The trend of used memory: it says in time that a card fills, and keeps quiet where it does not."""

import math
import random

import msgspec
import pytest

from vramscope.analyzers.device_trend import DeviceTrendTrack
from vramscope.analyzers.findings.subjects import Subject
from vramscope.analyzers.host_stall import HostStallAnalyzer
from vramscope.analyzers.oom import OomAnalyzer
from vramscope.engine.model import AllocatorReading, DeviceTrend, Finding, HostSample, RankSample
from vramscope.engine.units import GIB

from ..samples import device, sample, series
from .trends import climb, read_words, watch

FILL = [30.0] * 60 + climb(30, 80, 600)
LOAD = [1.0] * 20 + climb(1, 70, 150)


def test_a_card_that_fills_is_said_to_fill_with_its_rate_and_when_it_is_full() -> None:
    at_s, trend = next((at_s, it) for at_s, it in watch(series(FILL)) if it.word == "filling")
    assert at_s <= 60 + 600 - 120
    assert abs(trend.since_s - 60) <= 20
    rate = 50 * GIB / 600
    assert (trend.rate_low_bytes_per_s or 0) < rate < (trend.rate_high_bytes_per_s or 0)
    assert trend.rate_bytes_per_s == pytest.approx(rate, rel=0.05)
    assert (trend.full_in_low_s or 0) < 660 - at_s < (trend.full_in_high_s or 0)
    assert trend.grown_bytes == pytest.approx(rate * (at_s - trend.since_s), abs=2 * GIB)


def test_a_device_with_the_hosts_memory_has_no_trend_while_the_host_is_warned_of() -> None:
    analyzer, trend = HostStallAnalyzer(), OomAnalyzer()
    warned: list[Finding] = []
    words: list[DeviceTrend] = []
    for number in range(120):
        left = round((40 - number * 0.25) * GIB)
        shared = msgspec.structs.replace(device(), kind="unified")
        host = HostSample(total_bytes=64 * GIB, available_bytes=left, used_bytes=64 * GIB - left)
        at = msgspec.structs.replace(sample(shared, time_s=1000.0 + number), host=host)
        warned += analyzer.observe(at)
        trend.observe(at)
        words += [it.device_trend for it in trend.assess() if it.device_trend is not None]
    assert warned, "the host's memory runs out, and that is said"
    assert words == [], "and nothing says that the device is steady"


def test_the_word_becomes_full_where_nothing_is_left() -> None:
    assert read_words([*FILL, *[79.8] * 60])[-2:] == ["filling", "full"]


def test_growth_that_was_no_more_than_a_third_of_the_room_is_only_rising() -> None:
    assert set(read_words([30.0] * 60 + climb(30, 50, 600))) == {"steady", "rising"}


@pytest.mark.parametrize("interval_s", [0.1, 5.0, 15.0])
def test_every_pace_of_samples_shows_the_fill(interval_s: float) -> None:
    ticks = round(900 / interval_s)
    assert "filling" in read_words([20.0] * 30 + climb(20, 80, ticks), interval_s)


@pytest.mark.parametrize("interval_s", [2.0, 15.0])
def test_a_straight_climb_has_its_own_rate_to_the_end(interval_s: float) -> None:
    ticks = 1200
    found = watch(series(climb(20.6, 75.6, ticks), step_s=interval_s))
    rates = [trend.rate_bytes_per_s for _, trend in found if trend.rate_bytes_per_s is not None]
    assert rates == pytest.approx([55 * GIB / (ticks * interval_s)] * len(rates), rel=0.005)


def test_a_leak_in_segments_of_a_gibibyte_fills() -> None:
    stairs = [math.floor(used) for used in climb(30, 80, 3000)]
    assert "filling" in read_words(stairs)


def test_ripples_and_spikes_hide_no_fill() -> None:
    noise = random.Random(1)
    rough = [used + noise.uniform(0, 0.3) + 8 * (noise.random() < 0.01) for used in climb(20, 72, 1200)]
    assert "filling" in read_words(rough)


QUIET: dict[str, list[float]] = {
    "a program that loads": [*LOAD, *[70.0] * 300],
    "a sawtooth": [20 + 50 * (tick % 40) / 40 for tick in range(2400)],
    "a cache that levels off": [20 + 50 * (1 - math.exp(-tick / 300)) for tick in range(3600)],
    "a cache that grows as a logarithm": [20 + 6.5 * math.log1p(tick / 10) for tick in range(7200)],
    "a server that takes nine tenths": [1.0] * 30 + climb(1, 30, 60) + [30.0] * 10 + [72.0] * 600,
    "evaluations": [30 + 40 * (tick % 600 > 500) for tick in range(3600)],
    "a curriculum": [30.0] * 600 + [45.0] * 600 + [60.0] * 600 + [70.0] * 600,
    "jobs that come and go": [10 + 35 * (t % 1300 > 300) + 20 * (t % 1700 > 800) for t in range(6000)],
    "nothing at all": [0.4] * 600,
}


@pytest.mark.parametrize("name", QUIET)
def test_what_does_not_fill_is_never_said_to(name: str) -> None:
    words = read_words(QUIET[name])
    assert "filling" not in words
    assert "steady" in words


def test_a_server_that_fills_the_card_by_design_is_full_at_once() -> None:
    assert read_words([1.0] * 30 + [77.5] * 60) == ["steady", "full"]


def test_growth_that_has_ended_ends_the_word_within_a_tenth_of_what_it_lasted() -> None:
    found = watch(series([*climb(30, 72, 600), *[72.0] * 120]))
    assert "filling" in [trend.word for _, trend in found]
    at_s, trend = next((at_s, it) for at_s, it in found if at_s > 600 and it.word != "filling")
    assert at_s <= 660
    assert trend.full_in_s is None


def test_what_was_given_back_before_is_no_fill_until_it_is_exceeded() -> None:
    pile = [*climb(30, 68, 300), *[30.0] * 300]
    words = [trend.word for at_s, trend in watch(series([*pile, *pile, *pile])) if at_s > 650]
    assert "filling" not in words


def test_a_job_that_fills_again_after_its_error_is_said_to_again() -> None:
    life = [*[1.0] * 30, *[30.0] * 60, *climb(30, 80, 600)]
    found = watch(series([*life, *life]))
    assert any(trend.word == "filling" for at_s, trend in found if at_s < len(life))
    assert any(trend.word == "filling" for at_s, trend in found if at_s > len(life) + 90)


@pytest.mark.parametrize("quiet_s", [30, 300])
def test_memory_that_climbs_is_rising_within_a_minute_though_an_earlier_program_held_more(
    quiet_s: int,
) -> None:
    before = [*[42.0] * 600, *[20.0] * quiet_s]
    found = watch(series([*before, *climb(20, 70, 250)]))
    at_s, trend = next((at_s, it) for at_s, it in found if it.word != "steady")
    assert len(before) < at_s <= len(before) + 60
    assert trend.word == "rising"
    assert trend.rate_bytes_per_s == pytest.approx(12 * GIB / 60, rel=0.05)
    assert trend.full_in_s is None
    assert abs(trend.since_s - len(before)) <= 20


def test_a_restart_that_takes_again_what_it_had_at_the_same_pace_is_no_rise() -> None:
    life = [*[1.0] * 20, *climb(1, 42, 75), *[42.0] * 80]
    found = watch(series([*life * 4, *[1.0] * 20, *climb(1, 60, 130), *[60.0] * 60]))
    assert not [it for at_s, it in found if len(life) < at_s < 4 * len(life) and it.word != "steady"]
    assert any(it.word == "rising" for at_s, it in found if at_s > 4 * len(life)), "it took more than ever"


def test_a_program_that_starts_is_quiet_for_a_minute_as_the_first_one_is() -> None:
    quick = [*climb(1, 60, 40), *[60.0] * 200]
    found = watch(series([*[70.0] * 300, *quick, *quick]))
    assert {it.word for _, it in found} == {"steady"}


def test_a_device_whose_process_reports_is_left_to_the_forecast() -> None:
    analyzer = OomAnalyzer()
    rank = RankSample(7, 1.0, device_uuid="GPU-0", allocator=AllocatorReading(GIB, reserved_bytes=2 * GIB))
    for it in series(FILL):
        analyzer.observe(msgspec.structs.replace(it, ranks=(rank,)))
        assert all(found.device_trend is None for found in analyzer.assess())


def test_after_a_gap_a_new_clock_or_another_card_nothing_is_known() -> None:
    for later in (700.0, -5000.0):
        found = watch([*series(FILL), *series([79.0, *[70.0] * 30], start_s=660 + later)])
        assert found[-1][1].word == "steady"
    assert not watch([*series(FILL[:15]), sample(device(30, total_bytes=24 * GIB), time_s=16)])


def test_used_memory_that_was_not_measured_changes_nothing() -> None:
    told = [used if tick % 3 else None for tick, used in enumerate(FILL)]
    assert "filling" in read_words(told)


def test_a_restarted_worker_says_the_same_of_the_same_samples() -> None:
    first, second = DeviceTrendTrack(), DeviceTrendTrack()
    for it in series(FILL):
        subject = Subject(it, it.devices[0], None)
        assert first.observe(subject) == second.observe(subject)
        assert second.observe(subject) == first.trend


def test_news_is_what_a_person_would_notice() -> None:
    """The countdown alone is none: viewers count down themselves."""
    found = [it for at_s, it in watch(series(FILL)) if it.word == "filling"]
    assert 1 <= len(found) <= 6
