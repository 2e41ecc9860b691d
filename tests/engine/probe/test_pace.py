"""How readings are shared between the ends of steps and the time between them."""

from itertools import pairwise

import pytest

from tests.engine.probe.hub import ListeningHub
from tests.engine.probe.stand_in import MIB
from tests.engine.probe.watched import Watched
from tests.waiting import wait_until
from vramscope.engine.probe.sampler import SAMPLE_S, Pace

TICK_S = 0.8


def judge(pace: Pace, times_s: list[float], ends_read: int, *, has_peak_risen: bool = False) -> None:
    for time_s in times_s:
        pace.judge(time_s, ends_read, has_peak_risen=has_peak_risen)


def pauses(pace: Pace, start_s: float, count: int) -> list[float]:
    times_s = [start_s]
    for _ in range(count):
        times_s.append(pace.find_next(times_s[-1]))
    return [after - before for before, after in pairwise(times_s)]


def test_where_steps_are_long_our_own_thread_reads_ten_times_a_second() -> None:
    pace = Pace(0.0)
    judge(pace, [TICK_S * number for number in range(1, 20)], 1)
    assert pauses(pace, 20.0, 10) == pytest.approx([SAMPLE_S] * 10)


def test_where_steps_are_short_both_read_half_and_at_moments_spread_over_the_step() -> None:
    pace = Pace(0.0)
    judge(pace, [TICK_S * number for number in range(1, 20)], 4)
    assert 0.1 < pace.between_ends_s < 0.2
    found = pauses(pace, 20.0, 100)
    assert sum(found) == pytest.approx(20.0, abs=0.2)
    times_s = [20.0]
    for pause_s in found:
        times_s.append(times_s[-1] + pause_s)
    # Of a step of exactly 100 ms every tenth is met.
    assert {int(100 * time_s + 1e-6) % 10 for time_s in times_s} == set(range(10))


def test_with_the_first_steps_and_a_rising_peak_every_end_is_read_for_three_seconds() -> None:
    pace = Pace(0.0)
    judge(pace, [1.0, 2.0], 0)
    judge(pace, [100.0, 102.9], 4)
    assert pace.between_ends_s < 0.03
    judge(pace, [103.1], 4)
    assert pace.between_ends_s > 0.1
    judge(pace, [140.0], 4, has_peak_risen=True)
    assert pace.between_ends_s < 0.03


def test_a_peak_that_rises_for_ever_is_followed_closely_a_tenth_of_the_time() -> None:
    pace = Pace(0.0)
    close = 0
    for number in range(1, 3000):
        judge(pace, [number * 0.1], 1, has_peak_risen=True)
        close += pace.between_ends_s < 0.03
    assert close <= 330


def test_steps_of_a_tenth_of_a_second_cost_ten_readings_a_second_and_none_lacks_its_floor(
    watched: Watched, hub: ListeningHub
) -> None:
    watched.cuda.allocate(8 * MIB)
    asked: list[int] = []
    ask = watched.cuda.memory_stats_as_nested_dict

    def count_and_ask(device: int) -> object:
        asked.append(device)
        return ask(device)

    watched.cuda.memory_stats_as_nested_dict = count_and_ask
    pause_s, next_tick_s = watched.session._tick() or 0.0, 0.0
    for number in range(200):
        if number == 100:
            asked.clear()
        end_s = watched.clock.now_s + 0.1
        while (next_tick_s := watched.clock.now_s + pause_s) <= end_s:
            watched.clock.now_s = next_tick_s
            pause_s = watched.session._tick() or 0.0
        pause_s -= end_s - watched.clock.now_s
        watched.clock.now_s = end_s
        watched.step()
    # Ten seconds, and what an announcement asks for.
    assert 90 <= len(asked) <= 110
    watched.tick(20)
    wait_until(lambda: len(hub.steps()) == 200)
    assert {row[3] for row in hub.steps()} == {8 * MIB}
