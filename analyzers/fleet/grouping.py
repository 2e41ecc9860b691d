"""Groups of the devices of a fleet, as they are looked at: all of them, or those that are wanted."""

from collections.abc import Sequence

from .fleet import FleetPicture
from .model import FleetDevice
from .order import FleetGroup, FleetSort, Grouping, group_devices


def group_fleet(
    picture: FleetPicture, grouping: Grouping, sort: FleetSort, wanted: Sequence[FleetDevice] | None = None
) -> list[FleetGroup]:
    """Return groups in order, as `group_devices`; a node without a device has one where all are wanted.

    Args:
        picture: The fleet.
        grouping: What devices of a group share.
        sort: What goes first.
        wanted: Those that a filter lets pass; None for all.
    """
    if wanted is not None:
        return group_devices(wanted, grouping, sort)
    if grouping != "node":
        return group_devices(picture.devices, grouping, sort)
    return _group_nodes(picture, sort)


def _group_nodes(picture: FleetPicture, sort: FleetSort) -> list[FleetGroup]:
    """Return a group a node, by what is counted of each: their devices need not be looked at."""
    groups = [FleetGroup(name, devices, name) for name, devices in picture.nodes.items()]
    counted = picture.counted
    if sort == "used":
        groups.sort(key=lambda group: -counted[group.name].fullest_share)
    elif sort == "risk":
        groups.sort(key=lambda group: -counted[group.name].need)
    return groups
