"""The memory of a host as a whole: told where it fills without end and nobody who reports explains it."""

import random
from collections.abc import Callable, Iterator

import pytest

from vramscope.analyzers.leak import LeakAnalyzer
from vramscope.engine.model import AllocatorReading, Finding, HostSample, RankSample, Sample
from vramscope.engine.units import GIB, MIB

from ..restart import last_words, restart
from .courses import watch

HOUR = 3600
TOTAL = 256 * GIB
Course = Callable[[int], float]
"""Bytes at a second."""


def host(rest: Course, resident: Course | None = None, *, seconds: int = HOUR, seed: int = 1) -> list[Sample]:
    """Return samples of a host on which so much is taken, and a process that reports beside it.

    Args:
        rest: What nobody reports.
        resident: What the process holds; None where there is none.
        seconds: How long it is watched.
        seed: Of what comes and goes from second to second.
    """
    return list(_play(rest, resident, seconds, random.Random(seed)))


def _play(rest: Course, resident: Course | None, seconds: int, chance: random.Random) -> Iterator[Sample]:
    for second in range(0, seconds, 2):
        ranks: tuple[RankSample, ...] = ()
        used = round(rest(second) + chance.uniform(0, 64) * MIB) // 1024 * 1024
        if resident is not None:
            held = round(resident(second)) // 4096 * 4096
            used += held
            allocator = AllocatorReading(GIB, reserved_bytes=2 * GIB)
            ranks = (RankSample(7, 1.0, device_uuid="GPU-0", allocator=allocator, resident_bytes=held),)
        memory = HostSample(total_bytes=TOTAL, used_bytes=used, available_bytes=TOTAL - used)
        yield Sample("n", second // 2, float(second), 2.0, (), memory, ranks)


def _find(samples: list[Sample]) -> list[Finding]:
    return [it for it in watch(LeakAnalyzer(), samples) if it.kind == "host_leak"]


def fill(mib_per_s: float, until_s: float = float("inf"), since_s: float = 0.0) -> Course:
    return lambda second: 40 * GIB + mib_per_s * MIB * max(0.0, min(second, until_s) - since_s)


def test_shared_memory_that_fills_without_end_is_told_of_the_host() -> None:
    found = _find(host(fill(20), lambda second: 8 * GIB))
    assert len({finding.id for finding in found}) == 1
    first = found[0]
    assert (first.device, first.device_uuid, first.severity) == (None, None, "medium")
    assert first.opened_s >= 600
    assert "host memory fills by 1.2 GiB a minute, outside all reporting processes" in first.title
    assert "/dev/shm" in first.advice
    facts = {item.name: item.value for item in first.evidence}
    assert facts["process"] is None
    assert facts["growth a second"] == pytest.approx(20 * MIB, rel=0.05)
    assert facts["time to out of memory"] == pytest.approx(
        (TOTAL - 48 * GIB) / (20 * MIB) - first.opened_s, rel=0.1
    )


def test_it_closes_once_nothing_is_added_any_more() -> None:
    found = _find(host(fill(30, until_s=1500), seconds=3 * HOUR))
    assert found[0].is_open
    assert found[-1].closed_s is not None
    assert found[-1].closed_s < 1500 + HOUR


def test_a_process_that_leaks_is_told_by_itself_and_not_once_more() -> None:
    found = _find(host(fill(0), lambda second: 8 * GIB + 20 * MIB * second))
    assert {item.value for it in found for item in it.evidence if item.name == "process"} == {7}


def test_both_are_told_where_both_leak() -> None:
    found = _find(host(fill(20), lambda second: 8 * GIB + 20 * MIB * second))
    processes = {item.value for it in found for item in it.evidence if item.name == "process"}
    assert processes == {7, None}


def test_a_host_that_would_last_for_days_is_left_alone() -> None:
    assert _find(host(fill(1.0), seconds=8 * HOUR)) == []


def _churn(second: int) -> float:
    """Return what programs take that come every ten minutes, for four."""
    return 30 * GIB + (20 * GIB if second % 600 < 240 else 0)


@pytest.mark.parametrize(
    ("why", "rest", "resident"),
    [
        ("nothing happens", fill(0), None),
        ("data is copied to shared memory once", fill(100, until_s=240), None),
        ("a cache fills and is bounded", lambda s: 40 * GIB + 30 * GIB * (1 - 2.0 ** (-s / 900)), None),
        ("programs come and go", _churn, None),
        ("checkpoints are written and moved away", lambda s: 40 * GIB + 10 * MIB * (s % 900), None),
        ("a process loads its data", fill(0), lambda s: 4 * GIB + min(s, 1800) * 40 * MIB),
        ("a process ends and another begins", fill(0), lambda s: (60 if s % 1200 < 900 else 2) * GIB),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_healthy_host_opens_nothing(why: str, rest: Course, resident: Course | None) -> None:
    found = [it for seed in (1, 2) for it in _find(host(rest, resident, seconds=3 * HOUR, seed=seed))]
    assert [it.title for it in found if "outside all reporting processes" in it.title] == [], why


@pytest.mark.parametrize("at", [100, 700, 1500])
def test_a_restarted_worker_finds_the_same(at: int) -> None:
    samples = host(fill(20, until_s=2400), lambda second: 8 * GIB)
    expected = {it.id: it for it in _find(samples)}
    assert expected
    found = last_words(restart(LeakAnalyzer, samples, at))
    assert {key: it for key, it in found.items() if it.kind == "host_leak"} == last_words(_find(samples))
