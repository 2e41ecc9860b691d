"""Where two series part: found where they do, never where only their noise differs."""

import random
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.diff import FIGURE_WORDS, Figure
from vramscope.analyzers.diff.parting import explain_cache, find_parting
from vramscope.engine.units import GIB

Draw = Callable[[random.Random, int], float]


def take_phases(chance: random.Random, length: int) -> list[float]:
    """Return the needs of a job of which others hold some for tens of steps at a time."""
    needs: list[float] = []
    while len(needs) < length:
        needs += [10 + 3 * chance.random()] * chance.randrange(10, 60)
    return needs[:length]


JOBS: dict[str, Draw] = {
    "the same every step": lambda chance, step: 10.0,
    "a little noise": lambda chance, step: chance.gauss(10, 0.3),
    "rows of any length": lambda chance, step: 10 + 6 * max(chance.betavariate(2, 4) for _ in range(4)),
    "a few very long rows": lambda chance, step: 8 + min(20, chance.lognormvariate(0.5, 0.6)),
    "an evaluation now and then": lambda chance, step: chance.gauss(10, 0.05) + 5 * (step // 10 % 7 == 6),
    "one of three shapes": lambda chance, step: 10.0 + chance.choice([0, 2, 4]),
}
"""Peaks in GiB of jobs whose two runs see other data in another order."""


def run_job(name: str, seed: str, length: int) -> list[float]:
    chance = random.Random(f"{name} {seed} {length}")
    return [JOBS[name](chance, step) * GIB for step in range(length)]


def test_what_comes_and_goes_for_tens_of_steps_is_noise() -> None:
    false = 0
    for seed in range(60):
        a, b = (take_phases(random.Random(f"{seed}{run}"), 600) for run in "ab")
        false += find_parting([need * GIB for need in a], [need * GIB for need in b]).start is not None
    assert false <= 6, "without a look at whole windows it would be 22"


def reserve(peaks: list[float]) -> list[float]:
    """Return what a cache holds: the most that was ever needed."""
    most, held = 0.0, []
    for peak in peaks:
        most = max(most, 1.05 * peak)
        held.append(most)
    return held


@pytest.mark.parametrize("name", JOBS)
def test_two_runs_of_one_job_do_not_part(name: str) -> None:
    false: list[str] = []
    for length in (20, 50, 200):
        for seed in range(40):
            a, b = (run_job(name, f"{seed}{run}", length) for run in "ab")
            peaks = find_parting(a, b)
            explained = explain_cache([y - x for x, y in zip(a, b, strict=True)], peaks.start)
            held = find_parting(reserve(a), reserve(b), tolerance=explained, is_ratchet=True)
            false += [f"{length} steps, {seed}"] * (peaks.start is not None or held.start is not None)
    assert false == []


@pytest.mark.parametrize("name", JOBS)
def test_a_jump_is_found_at_its_step_and_a_leak_at_all(name: str) -> None:
    a, b = run_job(name, "a", 600), run_job(name, "b", 600)
    jumped = find_parting(a, [value + 5 * GIB * (step >= 400) for step, value in enumerate(b)])
    assert jumped.start is not None
    assert abs(jumped.start - 400) <= 20
    assert jumped.difference == pytest.approx(5 * GIB, rel=0.2)
    leaking = find_parting(a, [value + 0.02 * GIB * max(0, step - 200) for step, value in enumerate(b)])
    assert leaking.start is not None
    assert 180 <= leaking.start <= 500
    assert leaking.final_difference == pytest.approx(7.5 * GIB, rel=0.25)
    back = find_parting(a, [value + 5 * GIB * (200 <= step < 400) for step, value in enumerate(b)])
    assert back.start is None


def test_a_difference_at_the_end_must_outlast_one_that_went_away() -> None:
    flat = [10 * GIB] * 2000

    def differ(*spans: range) -> list[int]:
        return [value + 5 * GIB * any(step in span for span in spans) for step, value in enumerate(flat)]

    assert find_parting(flat, differ(range(300, 900), range(1600, 2000))).start is None
    assert find_parting(flat, differ(range(300, 500), range(1600, 2000))).start == 1600


sizes = st.lists(st.integers(0, 80 * GIB), min_size=1, max_size=80)


@given(sizes, st.booleans())
def test_a_run_does_not_part_from_itself(values: list[int], is_ratchet: bool) -> None:
    found = find_parting(values, values, is_ratchet=is_ratchet)
    assert (found.start, found.difference, found.final_difference) == (None, 0, 0)


@given(st.lists(st.tuples(st.integers(0, 80 * GIB), st.integers(0, 80 * GIB)), min_size=1, max_size=80))
def test_the_other_way_round_it_is_the_same_with_the_other_sign(pairs: list[tuple[int, int]]) -> None:
    a, b = [one for one, _ in pairs], [other for _, other in pairs]
    there, back = find_parting(a, b), find_parting(b, a)
    assert there.start == back.start
    assert there.band == pytest.approx(back.band)
    assert there.difference == pytest.approx(-back.difference)
    assert there.start is None or 0 <= there.start < len(a)


def test_caches_that_grow_by_jumps_of_their_own_do_not_part() -> None:
    ahead, behind = [20.0] * 300, [14.0] * 100 + [17.0] * 100 + [17.5] * 100
    caught_up = [[size * GIB for size in sizes] for sizes in (ahead, behind)]
    assert find_parting(*caught_up, is_ratchet=True).start is None
    assert find_parting(*caught_up).start == 0
    in_turn = [
        [size * GIB for size in sizes] for sizes in ([10.0] * 20 + [12.0] * 480, [10.0] * 100 + [15.0] * 400)
    ]
    assert find_parting(*in_turn, is_ratchet=True).start is None
    creeping = [14 * GIB + step * 5 * GIB / 300 for step in range(300)]
    assert find_parting([20.0 * GIB] * 300, creeping, is_ratchet=True).start is None
    once = [[size * GIB for size in sizes] for sizes in ([10.0] * 500, [10.0] * 40 + [13.0] * 460)]
    assert find_parting(*once, is_ratchet=True).start == 40


def test_what_is_told_in_rounded_figures_is_no_difference() -> None:
    logged = [10.12e9, 10.13e9, 10.12e9, 10.12e9] * 10
    assert find_parting(logged, [value + 5e6 for value in logged]).start is None
    assert find_parting(logged, [value + 50e6 for value in logged]).start == 0


def test_one_step_can_be_compared_and_the_last_two_of_many_are_too_few() -> None:
    assert find_parting([GIB], [2 * GIB]).start == 0
    assert find_parting([GIB], [GIB]).start is None
    assert find_parting([GIB] * 12, [GIB] * 10 + [2 * GIB] * 2).start is None


def test_every_figure_has_its_words() -> None:
    assert tuple(FIGURE_WORDS) == get_args(Figure)


@pytest.mark.parametrize("onset", [0, 100, 250])
def test_a_leak_is_placed_where_it_begins_and_not_where_it_leaves_the_noise(onset: int) -> None:
    chance = random.Random(f"leak {onset}")
    a, b = ([10 * GIB + 0.3 * GIB * chance.random() for _ in range(400)] for _ in "ab")
    leaking = [value + 8 * GIB / 1024 * max(0, step - onset) for step, value in enumerate(b)]
    parted = find_parting(a, leaking).start
    assert parted is not None
    assert abs(parted - onset) <= 20
