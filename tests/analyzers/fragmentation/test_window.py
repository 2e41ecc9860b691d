"""The window: fullest moments alone, the least of them, and long enough for several steps."""

from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.analyzers.fragmentation.window import BLOCK_S, MOST_BLOCKS, Tick, Window


def tick(time_s: float, *, stranded: int = 10, allocated: int = 100, step: int | None = None) -> Tick:
    return Tick(time_s, 1.0, stranded, allocated, allocated, 1000, step, 0)


def window_of(*ticks: Tick) -> Window:
    window = Window()
    for each in ticks:
        window.add(each)
    return window


def steady(seconds: int, *, step_s: float | None = 2.0) -> list[Tick]:
    return [tick(float(at), step=None if step_s is None else int(at / step_s)) for at in range(0, seconds, 2)]


def test_what_is_stranded_counts_at_the_fullest_moment_of_a_block() -> None:
    full = [tick(float(at), stranded=50, allocated=200) for at in range(5, 700, 30)]
    rest = [tick(float(at) + 0.5, stranded=1, allocated=199) for at in range(0, 700, 2)]
    found = window_of(*sorted(full + rest)).measure()
    assert found is not None
    assert (found.stranded_bytes, found.fullest_bytes) == (50, 200)


def test_of_the_full_blocks_the_least_counts() -> None:
    ticks = [
        tick(float(at), stranded=60 if at < 300 else 40, allocated=200 if at < 300 else 195)
        for at in range(0, 700, 2)
    ]
    found = window_of(*ticks).measure(600.0)
    assert found is not None
    assert (found.stranded_bytes, found.peak_bytes) == (40, 200)


def test_a_window_waits_for_three_steps_and_not_for_ever() -> None:
    assert window_of(*steady(340)).measure() is not None
    assert window_of(*steady(340, step_s=150.0)).measure() is None
    assert window_of(*steady(520, step_s=150.0)).measure() is not None
    assert window_of(*steady(4000, step_s=400.0)).measure() is None
    assert window_of(*steady(340, step_s=None)).measure() is not None


def test_a_shorter_window_may_be_asked_for() -> None:
    assert window_of(*steady(100)).measure() is None
    assert window_of(*steady(100)).measure(60.0) is not None


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=2, max_size=400),
    st.integers(0, 29),
)
def test_two_windows_that_began_apart_agree_once_both_are_full(
    values: list[tuple[int, int]], late: int
) -> None:
    """Blocks stand at fixed times."""
    run = [
        tick(10.0 * at, stranded=stranded, allocated=allocated, step=at)
        for at, (stranded, allocated) in enumerate(values)
    ]
    whole, part = window_of(*run), window_of(*run[late:])
    if 10.0 * len(run[late:]) >= BLOCK_S * (MOST_BLOCKS + 2):
        assert whole.measure() == part.measure() is not None
