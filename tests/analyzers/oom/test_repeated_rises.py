"""What piles up and is let go, again and again: said once, and again only where it rises beyond that."""

import pytest

from tests.analyzers.leak.courses import sawtooth, series, steps, watch
from vramscope.analyzers.oom import OomAnalyzer
from vramscope.engine.model import Finding
from vramscope.engine.units import GIB


def _rounds(*heights_gib: float, rise: int, every: int = 400) -> list[float]:
    """Return floors of steps: in each round they rise evenly above 20 GiB for a while, and are let go."""
    return [
        20 * GIB + (height * GIB * step / rise if 0 <= step < rise else 0)
        for height in heights_gib
        for step in range(-100, every - 100)
    ]


def _opened(found: list[Finding]) -> list[float]:
    return sorted({finding.opened_s for finding in found})


# Blocks of steps end at unlike moments of these rises: in some, peaks rise still when floors have fallen.
@pytest.mark.parametrize("rise", [30, 65, 107, 121])
@pytest.mark.parametrize("height_gib", [12.0, 24.0])
def test_a_rise_that_was_let_go_is_no_news_when_it_comes_back(height_gib: float, rise: int) -> None:
    found = watch(OomAnalyzer(), steps(_rounds(*[height_gib] * 4, rise=rise)))
    assert len(_opened(found)) == 1


def test_a_rise_beyond_the_height_of_all_before_is_news() -> None:
    opened = _opened(watch(OomAnalyzer(), steps(_rounds(16.0, 16.0, 16.0, 36.0, rise=200))))
    assert len(opened) == 2
    beyond_s = 3 * 400 + 100 + 200 * 16 / 36
    assert beyond_s < opened[1] < beyond_s + 80


def test_a_leak_after_rounds_that_were_let_go_is_forecast_before_it_fills_the_card() -> None:
    leak = [20 * GIB + 0.1 * GIB * step for step in range(480)]
    opened = _opened(watch(OomAnalyzer(), steps(_rounds(16.0, 16.0, rise=100) + leak)))
    left_s = 500 - (opened[-1] - 800)
    assert left_s > 240


def test_samples_of_rounds_say_as_little() -> None:
    floors = _rounds(*[24.0] * 4, rise=300, every=800)
    assert len(_opened(watch(OomAnalyzer(), series(sawtooth(floors))))) <= 1
