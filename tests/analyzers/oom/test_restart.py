"""A worker that dies and is fed the ring finds the same, with the same ids."""

from collections.abc import Callable

import pytest

from tests.analyzers.leak.courses import sawtooth, series, steps
from tests.analyzers.restart import last_words, restart, watch
from vramscope.analyzers.leak import LeakAnalyzer
from vramscope.analyzers.oom import OomAnalyzer
from vramscope.engine.model import Analyzer, Sample
from vramscope.engine.units import GIB, MIB

EPOCH_S = 1_750_000_000.0


def _ranks() -> list[Sample]:
    return list(steps([20 * GIB + 20 * MIB * max(0, step - 200) for step in range(1200)], start_s=EPOCH_S))


def _series() -> list[Sample]:
    floors = [20 * GIB + 20 * MIB * max(0, tick - 200) for tick in range(1200)]
    rounded = [round(level) // 512 * 512 for level in sawtooth(floors)]
    return list(series(rounded, start_s=EPOCH_S))


@pytest.mark.parametrize("make", [LeakAnalyzer, OomAnalyzer])
@pytest.mark.parametrize("course", [_ranks, _series])
@pytest.mark.parametrize("at", [150, 700, 1100])
def test_a_successor_that_is_fed_the_ring_finds_the_same(
    make: Callable[[], Analyzer], course: Callable[[], list[Sample]], at: int
) -> None:
    samples = course()
    alone = last_words(watch(make(), samples))
    assert alone
    assert last_words(restart(make, samples, at)) == alone


@pytest.mark.parametrize("make", [LeakAnalyzer, OomAnalyzer])
def test_a_ring_that_begins_after_the_finding_opened_keeps_its_id(make: Callable[[], Analyzer]) -> None:
    samples = _ranks()
    alone = last_words(watch(make(), samples))
    assert last_words(restart(make, samples, 1100, ring=300)).keys() == alone.keys()
