"""What is counted of devices: how many are at which level, which are in danger, which is nearest to it.

Counted node by node and added up, so that a word of one node of a thousand costs no look at all others.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...engine.model import RiskLevel
from .model import FleetDevice
from .order import RANKS, find_gravest, find_need

_GRAVE = RANKS["medium"]


class Census(NamedTuple):
    """Some devices, counted."""

    total: int = 0
    levels: Mapping[RiskLevel, int] = {}
    """How many are at each level; those at none are left out."""
    present: int = 0
    """Those whose nodes are there."""
    unknown: int = 0
    """Those of them whose level is unknown."""
    grave: tuple[FleetDevice, ...] = ()
    """Those at medium level or above."""
    gravest: FleetDevice | None = None
    """The one nearest to running out; the fullest where none is nearer than others."""
    fullest_share: float = 0.0
    """Highest used share of the capacity, 0 to 1."""

    need: int = 0
    """The highest level as a number, in which low and unknown are one: neither is a reason to move."""


def count_devices(devices: Sequence[FleetDevice]) -> Census:
    """Return a census of some devices."""
    levels: dict[RiskLevel, int] = {}
    grave: list[FleetDevice] = []
    lost = unknown = 0
    fullest = 0.0
    for device in devices:  # of every device of a fleet, at each of its samples
        level = device.level
        levels[level] = levels.get(level, 0) + 1
        if RANKS[level] >= _GRAVE:
            grave.append(device)
        if device.is_node_lost:
            lost += 1
        elif level == "unknown":
            unknown += 1
        if device.used_bytes is not None and device.total_bytes:
            share = device.used_bytes / device.total_bytes
            fullest = share if share > fullest else fullest
    present = len(devices) - lost
    gravest = find_gravest(devices)
    return Census(len(devices), levels, present, unknown, tuple(grave), gravest, fullest, find_need(levels))


def add_up(parts: Iterable[Census]) -> Census:
    """Return one census of devices that were counted in parts."""
    levels: dict[RiskLevel, int] = {}
    grave: list[FleetDevice] = []
    gravest: list[FleetDevice] = []
    total = present = unknown = 0
    fullest = 0.0
    for part in parts:
        total = total + part.total
        present = present + part.present
        unknown = unknown + part.unknown
        fullest = max(fullest, part.fullest_share)
        for level, count in part.levels.items():
            levels[level] = levels.get(level, 0) + count
        if part.grave:
            grave += part.grave
        if part.gravest is not None:
            gravest.append(part.gravest)
    lead = find_gravest(gravest)
    need = find_need(levels)
    return Census(total, levels, present, unknown, tuple(grave), lead, fullest, need)
