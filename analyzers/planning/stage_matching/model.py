"""Devices that stages are matched to, and the matching."""

from typing import Literal

import msgspec

from ..partition import Split


class StageDevice(msgspec.Struct, frozen=True, gc=False):
    """One device, or one group of tensor ranks, that runs one stage."""

    speed: int
    """In any unit that all share, at least 1; of a group: of all its ranks together."""
    capacity_bytes: int
    """What a stage on it may hold."""


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """Devices in the order of the stages, and the layers of each."""

    order: tuple[int, ...]
    """For each stage the position of its device among those that were given."""
    split: Split
    """Layers of each stage, with costs in units of `split_over_devices`: of a layer's cost over the least
    common multiple of the speeds."""
    optimality: Literal["exact", "heuristic"]
    """`exact`: no order and no split has a cheaper dearest stage."""
    gap: float
    """How much dearer than any matching can be its dearest stage is at most: 0 where exact, 0.02 for 2 %."""
