"""The shape of growth apart: rising, steady, not falling back, beyond what peers move, a part of the room."""

from collections.abc import Sequence

import pytest

from vramscope.analyzers.divergence.scales import LEAST_SCALE, Rise, Row, Scales
from vramscope.analyzers.findings.subjects import SubjectKey
from vramscope.engine.units import GIB, MIB

GROWING: SubjectKey = ("n", "GPU-0", 1, 1.0)
PEER: SubjectKey = ("n", "GPU-1", 2, 1.0)
SPAN = 1 << LEAST_SCALE


def rise_of(
    above_gib: Sequence[float],
    *,
    peer_gib: Sequence[float] | None = None,
    room_gib: float | None = 10.0,
    scale: int = LEAST_SCALE,
) -> Rise | None:
    """Return what is found at a scale of values, one for each of its spans, with a middle floor of 20 GiB."""
    scales = Scales()
    peers = peer_gib or [0.0] * len(above_gib)
    moved: list[int] = []
    length = 1 << scale
    for span, (mine, other) in enumerate(zip([*above_gib, 0.0], [*peers, 0.0], strict=True)):
        row = Row(20 * GIB, {GROWING: round(mine * GIB), PEER: round(other * GIB)})
        for block in range(1 if span == len(above_gib) else length):
            moved = scales.add(span * length + block, row)
    assert scale in moved
    return scales.find_rise(GROWING, scale, None if room_gib is None else round(room_gib * GIB))


STEADY = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]


@pytest.mark.parametrize("scale", [2, 4, 6])
def test_steady_growth_is_found_at_every_scale(scale: int) -> None:
    assert rise_of(STEADY, scale=scale) == Rise(0, 5 * GIB // 2)


@pytest.mark.parametrize(
    ("why", "above_gib"),
    [
        ("too few spans", STEADY[:5]),
        ("it falls back", [0.0, 1.0, 1.5, 1.0, 2.0, 3.0]),
        ("it slows down", [0.0, 2.0, 3.0, 3.5, 3.8, 3.9]),
        ("it came in two leaps", [0.0, 0.0, 1.5, 1.5, 1.5, 3.0]),
        ("it is little", [0.0, 0.05, 0.1, 0.15, 0.2, 0.25]),
    ],
)
def test_other_shapes_are_not(why: str, above_gib: list[float]) -> None:
    assert rise_of(above_gib) is None, why


def test_a_rise_is_weighed_against_the_room() -> None:
    assert rise_of(STEADY, room_gib=26.0) is None
    assert rise_of(STEADY, room_gib=24.0) is not None
    assert rise_of(STEADY, room_gib=0.0) is not None


def test_where_the_room_is_unknown_a_tenth_of_the_middle_floor_is_asked_for() -> None:
    assert rise_of(STEADY, room_gib=None) is not None
    assert rise_of([value * 0.7 for value in STEADY], room_gib=None) is None


def test_a_rise_is_weighed_against_what_peers_move() -> None:
    assert rise_of(STEADY, peer_gib=[0.0, 1.0, 0.0, 0.5, 0.0, 1.0]) is None
    assert rise_of(STEADY, peer_gib=[0.0, 0.5, 0.0, 0.5, 0.0, 0.5]) is not None
    assert rise_of(STEADY, peer_gib=STEADY) is not None, "a peer that grows too is no measure"


def test_a_little_noise_is_neither_rise_nor_fall() -> None:
    noisy = [
        value - (index % 2) * 5 * MIB / GIB for index, value in enumerate([0.0, 0.0, 1.0, 1.0, 2.0, 3.0])
    ]
    assert rise_of(noisy) is not None


def test_what_lies_before_a_change_of_the_group_is_forgotten() -> None:
    scales = Scales()
    for number in range(6 * SPAN):
        scales.add(number, Row(20 * GIB, {GROWING: number * GIB}))
    scales.clear()
    scales.add(6 * SPAN, Row(20 * GIB, {GROWING: 0}))
    assert scales.find_rise(GROWING, LEAST_SCALE, 0) is None
