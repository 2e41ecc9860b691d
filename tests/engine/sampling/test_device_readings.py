"""Memory that a prepared call reads counts as memory that is read one reading after the other."""

from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.sampling.device_readings import DeviceReadings
from vramscope.engine.sources.source import make_reading

from .sources import HandReader

# Total, free, used: also what no driver should say.
VALUES = st.tuples(st.sampled_from((0, 80)), st.integers(0, 90), st.integers(0, 90))


@given(st.lists(st.lists(VALUES, max_size=6), max_size=4))
def test_least_most_and_newest_of_a_tick_are_the_same_either_way(
    ticks: list[list[tuple[int, int, int]]],
) -> None:
    prepared = DeviceReadings(HandReader(0))
    single = DeviceReadings(HandReader(0))
    now_s = 0.0
    for tick in ticks:
        for values in tick:
            now_s += 0.1
            single.fold_memory(make_reading(*values), now_s)
        if tick:
            prepared.fold_prepared(tick, now_s)
        taken = [it.take(now_s, 1.5) for it in (prepared, single)]
        assert taken[0] == taken[1]
        sound = [make_reading(*values).used_bytes for values in tick]
        least = min((used for used in sound if used is not None), default=None)
        assert taken[0].memory.used_min_bytes == least
