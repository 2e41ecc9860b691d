"""Memory that is held while nothing computes: told late, once, and only where utilisation is known."""

import math
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.analyzers.usage import UsageAnalyzer
from vramscope.engine.model import DeviceKind, DeviceSample, DeviceState, Finding, MemoryReading, Sample
from vramscope.engine.units import GIB

from ..restart import last_words, restart, watch

Tick = tuple[float, float | None]
"""GiB used of 80, and utilisation in percent."""
IDLE: Tick = (40.0, 0.0)
BUSY: Tick = (40.0, 70.0)


def sample_at(
    time_s: float,
    tick: Tick,
    *,
    interval_s: float = 10.0,
    state: DeviceState = "ok",
    kind: DeviceKind = "gpu",
) -> Sample:
    used, total = round(tick[0] * GIB), 80 * GIB
    memory = MemoryReading(total_bytes=total, used_bytes=used, free_bytes=total - used)
    device = DeviceSample("GPU-0", 0, kind=kind, state=state, memory=memory, utilization_percent=tick[1])
    return Sample("n", int(time_s), time_s, interval_s, (device,))


def run_of(ticks: Iterable[Tick], *, kind: DeviceKind = "gpu") -> list[Sample]:
    return [sample_at(10.0 * index, tick, kind=kind) for index, tick in enumerate(ticks)]


def found_in(ticks: Iterable[Tick]) -> list[Finding]:
    return watch(UsageAnalyzer(), run_of(ticks))


def test_memory_held_for_half_an_hour_without_any_utilisation_is_told_once() -> None:
    (opened,) = found_in([BUSY] * 10 + [IDLE] * 200)
    assert (opened.kind, opened.severity, opened.device) == ("idle_held", "low", "0")
    assert opened.opened_s == 100.0 + 1800.0
    assert opened.title == "40.0 GiB used on GPU 0, which has computed nothing for 30 m 00 s"
    assert {item.name: item.value for item in opened.evidence}["idle since"] == 100.0
    assert "empty_cache" in opened.advice


@pytest.mark.parametrize(
    ("why", "ticks"),
    [
        ("it computes", [BUSY] * 400),
        ("one sample of work in half an hour is work", ([IDLE] * 170 + [BUSY]) * 5),
        ("little is held", [(7.0, 0.0)] * 400),
        ("nobody knows whether it computes", [(40.0, None)] * 400),
        ("nobody can say that it does not", [(40.0, math.nan)] * 400),
    ],
)
def test_nothing_is_told(why: str, ticks: list[Tick]) -> None:
    assert found_in(ticks) == [], why


def test_memory_of_the_host_is_nobodys_to_give_back() -> None:
    assert watch(UsageAnalyzer(), run_of([IDLE] * 400, kind="unified")) == []


def test_it_closes_when_the_device_computes_again_and_not_at_one_spark() -> None:
    opened, closed = found_in([IDLE] * 181 + [BUSY] + [IDLE] * 3 + [BUSY] * 4)
    assert opened.id == closed.id
    assert closed.closed_s == (181 + 1 + 3 + 2) * 10.0
    assert closed.evidence[-1].value == "the device is computing again"


def test_it_closes_when_the_memory_is_given_back() -> None:
    (_, closed) = found_in([IDLE] * 181 + [(1.0, 0.0)] * 4)
    assert closed.evidence[-1].value == "its memory was freed"


def test_it_is_told_again_when_the_idle_time_has_doubled_or_much_more_is_held() -> None:
    opened, doubled, grown = found_in([IDLE] * 400 + [(60.0, 0.0)] * 20)
    assert (doubled.updated_s, grown.updated_s) == (3600.0, 4000.0)
    assert grown.title.startswith("60.0 GiB used")
    assert opened.id == doubled.id == grown.id


def test_half_an_hour_with_a_gap_in_it_is_not_half_an_hour() -> None:
    first, second = run_of([IDLE] * 100), run_of([IDLE] * 300)[200:]
    assert watch(UsageAnalyzer(), [*first, *second]) == []


def test_a_device_that_is_lost_closes_its_finding() -> None:
    lost = [sample_at(1810.0 + 10 * n, IDLE, state="lost") for n in range(4)]
    (_, closed) = watch(UsageAnalyzer(), [*run_of([IDLE] * 181), *lost])
    assert closed.evidence[-1].value == "the device was lost"


def test_duplicates_and_late_samples_change_nothing() -> None:
    run = run_of([IDLE] * 200)
    twice = [each for pair in zip(run, run, strict=True) for each in pair]
    assert watch(UsageAnalyzer(), twice) == watch(UsageAnalyzer(), run)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from([([IDLE], 190), ([BUSY], 5), ([(2.0, 0.0)], 5)]), min_size=1, max_size=6),
    st.integers(0, 1200),
)
def test_a_restarted_worker_finds_the_same(parts: list[tuple[list[Tick], int]], at: int) -> None:
    run = run_of(tick for ticks, times in parts for tick in ticks * times)
    expected = last_words(watch(UsageAnalyzer(), run))
    assert last_words(restart(UsageAnalyzer, run, at)) == expected


def test_a_finding_older_than_the_ring_is_adopted_and_closed() -> None:
    run = run_of([IDLE] * 400 + [BUSY] * 5)
    found = restart(UsageAnalyzer, run, 390, ring=60)
    assert len({finding.id for finding in found}) == 1
    assert found[-1].closed_s == 4020.0
