"""The forecast of a pool from what arrives: the same mean use is close to the end where it scatters more."""

import pytest

from vramscope.analyzers.serving.arrivals import ArrivalTrack
from vramscope.analyzers.serving.forecast import PoolForecast
from vramscope.engine.model import EngineReading

OUTPUT = 500.0
STEP_S = 0.02


def watch_level(
    running: float, used_share: float, *, each_s: float = 0.0, growth: float = 0.0, seconds: float = 500.0
) -> PoolForecast | None:
    """Return what is forecast of a server whose load was a quarter less before, and is level at the end.

    Args:
        each_s: What each sequence adds to a step.
        growth: By which the load grows meanwhile, as a share.
    """
    track = ArrivalTrack()
    finished = tokens = 0.0
    forecast = None
    for at in range(0, int(seconds), 2):
        now = running * (0.75 + 0.25 * min(1.0, max(0.0, at / 100 - 1)) + growth * at / seconds)
        step_s = STEP_S - each_s * running + each_s * now
        finished += 2 * now / (OUTPUT * step_s)
        tokens += 2 * now / step_s
        reading = EngineReading(
            "0",
            round(now),
            0,
            100_000,
            used_share * round(now) / running,
            finished=int(finished),
            generation_tokens=int(tokens),
        )
        if track.add(float(at), reading):
            forecast = track.forecast()
    return forecast


def test_a_few_sequences_may_fill_a_pool_that_many_do_not() -> None:
    small = watch_level(15, 0.62)
    assert small is not None
    assert small.in_s is None
    assert 0.88 <= (small.peak_share or 0.0) <= 1.0
    assert watch_level(15, 0.35) is None
    assert watch_level(600, 0.62) is None


def test_a_pool_scatters_more_where_sequences_make_each_other_stay_longer() -> None:
    assert watch_level(60, 0.62) is None
    assert watch_level(60, 0.62, each_s=0.9 * STEP_S / 60) is not None


@pytest.mark.parametrize("running", [15, 600])
def test_load_that_grows_fills_any_pool(running: float) -> None:
    found = watch_level(running, 0.45, growth=1.0)
    assert found is not None
    assert found.in_s is not None
    assert found.low_s is None or found.low_s <= found.in_s
