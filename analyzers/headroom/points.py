"""What steps of each size needed: exact peaks as they are, sampled ones only where there are many.

A peak that was sampled is a lower bound. Between two steps live bytes rise and fall about evenly, so that a
moment at random finds any level with equal chance, and the most of n such moments falls short of the peak by
1 / (n + 1) of it: the end of a uniform distribution is estimated by its greatest value times 1 + 1 / n.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

LEAST_SAMPLED = 32
"""Steps of about one size whose peak was only sampled, before they tell anything."""
MOST_STRETCH = 1.1
"""Largest size over the smallest that count as about one."""


class StepSize(msgspec.Struct, frozen=True, gc=False):
    """One step: its size in tokens, samples or whatever the program counts, and its memory."""

    size: float
    peak_bytes: int
    floor_bytes: int | None = None
    """Live bytes between steps; what grows there is not charged to the size."""
    is_exact: bool = True
    """Whether the allocator said the peak; else it is a lower bound."""


class Needs(NamedTuple):
    """What steps needed beyond their floors."""

    by_size: dict[float, list[float]]
    """Bytes by size, sizes ascending."""
    sampled_sizes: int
    """How many of them rest on sampled peaks."""
    floor_bytes: float
    """The newest floor; 0 where none is known, and the needs are the peaks themselves."""


class _Bound(NamedTuple):
    size: float
    need: float


def collect_needs(steps: Sequence[StepSize]) -> Needs:
    """Return what the steps needed, by size."""
    with_floor = [step for step in steps if step.floor_bytes is not None]
    told = with_floor or steps
    exact: dict[float, list[float]] = {}
    bounds: list[_Bound] = []
    for step in sorted(told, key=lambda step: step.size):
        need = float(step.peak_bytes - (step.floor_bytes or 0))
        if step.is_exact:
            exact.setdefault(step.size, []).append(need)
        else:
            bounds.append(_Bound(step.size, need))
    sampled = dict(_lift([bound for bound in bounds if bound.size not in exact]))
    found = {**exact, **{size: [need] for size, need in sampled.items()}}
    floor = float(with_floor[-1].floor_bytes or 0) if with_floor else 0.0
    return Needs(dict(sorted(found.items())), len(sampled), floor)


def _lift(bounds: Sequence[_Bound]) -> Iterator[_Bound]:
    """Yield what steps of about one size needed, as estimated from lower bounds; sizes ascend."""
    group: list[_Bound] = []
    for at, bound in enumerate(bounds):
        if group and bound.size > MOST_STRETCH * group[0].size:
            group = []
        group.append(bound)
        is_last_of_size = at + 1 == len(bounds) or bounds[at + 1].size != bound.size
        if is_last_of_size and len(group) >= LEAST_SAMPLED:
            most = max(group, key=lambda each: each.need)
            yield _Bound(most.size, most.need * (1 + 1 / len(group)))
            group = []
