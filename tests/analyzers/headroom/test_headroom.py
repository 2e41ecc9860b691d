"""The largest batch that would fit: right where peaks follow the size, refused where they do not."""

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.analyzers.headroom import HeadroomAdvisor, StepSize, estimate_headroom, find_t
from vramscope.engine.units import GIB, MIB

LIMIT = 80 * GIB


def steps_of(sizes: list[int], peak: Callable[[int], float], floor: int | None = None) -> list[StepSize]:
    return [StepSize(size, round(peak(size)), floor) for size in sizes]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1 * GIB, 40 * GIB),
    st.integers(64 * 1024, 8 * MIB),
    st.lists(st.integers(256, 8192), min_size=4, max_size=40, unique=True),
)
def test_exact_peaks_give_the_exact_line_and_nothing_that_would_not_fit(
    base: int, per_token: int, sizes: list[int]
) -> None:
    estimate = estimate_headroom(steps_of(sizes, lambda size: base + per_token * size), LIMIT)
    if max(sizes) - min(sizes) < 0.2 * max(sizes) or per_token * (max(sizes) - min(sizes)) < 32 * MIB:
        return
    assert estimate.reason is None
    assert estimate.per_unit_bytes == pytest.approx(per_token)
    assert estimate.base_bytes == pytest.approx(base, abs=1024)
    assert estimate.largest_size is not None
    assert base + per_token * estimate.largest_size <= LIMIT
    if not estimate.is_bounded:
        assert base + per_token * (estimate.largest_size * 1.02 + 200) + 100 * MIB > LIMIT


def test_the_confidence_is_what_it_says() -> None:
    """Of many jobs with noisy peaks, the suggested size fits in about nine of ten, and not in all."""
    fitted, refused, jobs = 0, 0, 400
    for seed in range(jobs):
        rng = random.Random(seed)
        base, per_token = 20 * GIB, 4 * MIB

        def peak(size: float, rng: random.Random = rng, base: int = base, each: int = per_token) -> float:
            return base + each * size + rng.gauss(0, 200 * MIB)

        points = steps_of([rng.randrange(2000, 8000) for _ in range(12)], peak)
        estimate = estimate_headroom(points, LIMIT)
        refused += estimate.largest_size is None
        fitted += estimate.largest_size is not None and peak(estimate.largest_size) <= LIMIT
    assert refused <= 0.02 * jobs
    assert 0.84 <= fitted / (jobs - refused) <= 0.97


@pytest.mark.parametrize(
    ("reason", "points"),
    [
        ("no sizes of steps seen; at least 3 are needed", []),
        ("one size of steps seen; at least 3 are needed", steps_of([512] * 20, lambda size: GIB)),
        ("the sizes seen differ by less than 20 %", steps_of([1000, 1010, 1020], lambda size: size * MIB)),
        ("the peaks do not grow with the size", steps_of([1000, 2000, 4000], lambda size: 30 * GIB)),
        (
            "the peaks do not grow in a straight line with the size",
            steps_of([1000, 2000, 3000, 4000, 6000, 8000], lambda size: GIB + size**2 * 1024),
        ),
    ],
)
def test_what_cannot_be_told_is_refused(reason: str, points: list[StepSize]) -> None:
    estimate = estimate_headroom(points, LIMIT)
    assert estimate.reason == reason
    assert (estimate.largest_size, estimate.per_unit_bytes) == (None, None)
    assert estimate.sentence == f"Headroom in tokens is unknown: {reason}"


def test_noise_that_is_as_large_as_what_size_does_is_refused() -> None:
    rng = random.Random(3)
    points = steps_of(
        [rng.randrange(2000, 8000) for _ in range(40)], lambda size: size * MIB + rng.random() * 20 * GIB
    )
    assert estimate_headroom(points, LIMIT).reason == "other things change the peaks as much as the size does"


def test_growth_of_the_floor_is_not_charged_to_the_size() -> None:
    sizes = [1000 + 500 * (at % 7) for at in range(70)]
    points = [
        StepSize(size, 20 * GIB + at * 100 * MIB + size * 4 * MIB, 20 * GIB + at * 100 * MIB)
        for at, size in enumerate(sizes)
    ]
    estimate = estimate_headroom(points, LIMIT)
    assert estimate.per_unit_bytes == pytest.approx(4 * MIB)
    assert estimate.base_bytes == pytest.approx(20 * GIB + 69 * 100 * MIB)


def test_a_few_odd_steps_do_not_move_the_line() -> None:
    points = steps_of(
        [1000 + 10 * at for at in range(100)],
        lambda size: 10 * GIB + 4 * MIB * size + (30 * GIB if size % 250 == 0 else 0),
    )
    estimate = estimate_headroom(points, LIMIT)
    assert estimate.per_unit_bytes == pytest.approx(4 * MIB, rel=0.01)


def test_reserved_bytes_that_cannot_be_used_make_less_fit() -> None:
    points = steps_of([1000, 2000, 4000, 8000], lambda size: 10 * GIB + 4 * MIB * size)
    whole, part = (estimate_headroom(points, LIMIT, utilization=share) for share in (None, 0.9))
    assert whole.largest_size is not None
    assert part.largest_size is not None
    assert part.largest_size == pytest.approx((0.9 * LIMIT - 10 * GIB) / (4 * MIB), rel=0.01)
    assert part.largest_size < whole.largest_size


def test_far_beyond_what_was_seen_is_said_to_be_at_least() -> None:
    estimate = estimate_headroom(steps_of([100, 200, 400], lambda size: GIB + MIB * size), LIMIT)
    assert (estimate.is_bounded, estimate.is_extrapolated, estimate.largest_size) == (True, True, 1600)
    assert estimate.sentence == (
        "Estimate: 1.00 MiB a token over 1.0 GiB; at least 1,600 tokens would fit 80.0 GiB "
        "with 90 % confidence; largest seen: 400"
    )


def test_the_advisor_stays_bounded() -> None:
    advisor = HeadroomAdvisor("samples")
    advisor.add(StepSize(1, 70 * GIB))
    for at in range(5000):
        advisor.add(StepSize(4 + at % 5, 10 * GIB + (4 + at % 5) * GIB))
    estimate = advisor.estimate(LIMIT)
    assert (estimate.steps, estimate.sizes, estimate.unit) == (2048, 5, "samples")
    assert estimate.per_unit_bytes == GIB
    assert estimate.largest_size in (31, 32)


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 3.0777), (2, 1.8856), (3, 1.6377), (5, 1.4759), (10, 1.3722), (100, 1.2901)]
)
def test_quantiles_of_t_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert math.isclose(find_t(0.9, freedom), expected, rel_tol=0.003)
