"""Groups of devices: by node, job or place in the parallel layout; the most worrying first, or otherwise."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from ...engine.model import RiskLevel
from ..risk import LEVELS
from .model import FleetDevice

Grouping = Literal["node", "job", "tp", "pp", "dp", "none"]
FleetSort = Literal["risk", "used", "name"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
SORTS: tuple[FleetSort, ...] = get_args(FleetSort)
_DIGITS = re.compile(r"(\d+)")
_NOTHING = "no {}"
RANKS: Mapping[RiskLevel, int] = {level: rank for rank, level in enumerate(LEVELS)}
"""From the least to the most worrying level."""
STAYS_WITHIN_SHARE = 0.1
"""Of the capacity: memory goes up and down with every step, and a cursor should not go with it."""


class FleetGroup(NamedTuple):
    """Devices that stand together."""

    name: str
    """What they share; empty where all devices are one group."""
    devices: tuple[FleetDevice, ...]
    node: str | None = None
    """The node that it is, where groups are nodes."""


@lru_cache(maxsize=16384)  # of the names of nodes, at every picture
def order_naturally(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts as people count: node2 before node10."""
    parts = _DIGITS.split(name)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part)


def weigh(device: FleetDevice) -> tuple[int, float]:
    """Return how near a device is to running out: its level, and of one that is foreseen, how soon."""
    soon = 0.0 if device.oom_in_s is None else 1.0 / (1.0 + device.oom_in_s)
    return RANKS[device.level], soon


def find_gravest(devices: Iterable[FleetDevice]) -> FleetDevice | None:
    """Return the device that is nearest to running out; the fullest where none is nearer than others."""
    return max(devices, key=_weigh_all, default=None)


def hold_gravest(gravest: FleetDevice | None, now: FleetDevice | None) -> FleetDevice | None:
    """Return the gravest device, or the one that was the gravest before while there is little between them.

    Args:
        gravest: The gravest of all; None where there is none.
        now: The one before, as it is now; None where it is gone. It remains where no other is nearer, or
            fuller by a tenth of its capacity.
    """
    if gravest is None or now is None or _nearness(gravest) > _nearness(now):
        return gravest
    is_fuller = (gravest.used_share or 0.0) - (now.used_share or 0.0) > STAYS_WITHIN_SHARE
    return gravest if is_fuller else now


def _nearness(device: FleetDevice) -> tuple[tuple[int, float], bool]:
    return weigh(device), not device.is_old


def _weigh_all(device: FleetDevice) -> tuple[tuple[int, float], bool, float]:
    return weigh(device), not device.is_old, device.used_share or 0.0


def group_devices(devices: Sequence[FleetDevice], grouping: Grouping, sort: FleetSort) -> list[FleetGroup]:
    """Return groups in order, devices within each as they come, or in that order where all are one group.

    Devices stay where they are within a group, so that a picture of them does not move with every figure.

    Args:
        devices: In any order.
        grouping: What devices of a group share.
        sort: What goes first.
    """
    if grouping == "none":
        return [FleetGroup("", tuple(sorted(devices, key=_device_key(sort))))] if devices else []
    found: dict[str, list[FleetDevice]] = {}
    for device in devices:
        found.setdefault(_name_group(device, grouping), []).append(device)
    groups = [
        FleetGroup(name, tuple(its), name if grouping == "node" else None) for name, its in found.items()
    ]
    return sorted(groups, key=lambda group: (_gravity(group, sort), order_naturally(group.name)))


def _name_group(device: FleetDevice, grouping: Grouping) -> str:
    if grouping == "node":
        return device.node
    if grouping == "job":
        return "+".join(device.jobs) or _NOTHING.format("job")
    number = {"tp": device.tp, "pp": device.pp, "dp": device.dp}[grouping]
    return _NOTHING.format(grouping) if number is None else f"{grouping} {number}"


def _gravity(group: FleetGroup, sort: FleetSort) -> float:
    if sort == "name":
        return 0.0
    if sort == "used":
        return -max((it.used_share or 0.0 for it in group.devices), default=0.0)
    return -find_need(it.level for it in group.devices)


def find_need(levels: Iterable[RiskLevel]) -> int:
    """Return the highest of some levels as a number, in which low and unknown are one: no reason to move."""
    return max((max(0, RANKS[level] - RANKS["unknown"]) for level in levels), default=0)


def _device_key(sort: FleetSort) -> Callable[[FleetDevice], tuple[object, ...]]:
    if sort == "used":
        return lambda it: (-(it.used_share or 0.0), order_naturally(it.node), order_naturally(it.label))
    if sort == "risk":
        return lambda it: (-find_need((it.level,)), order_naturally(it.node), order_naturally(it.label))
    return lambda it: (order_naturally(it.node), order_naturally(it.label))
