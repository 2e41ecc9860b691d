"""How large a cluster may be: enough for the largest there are, little enough to hold each device."""

from ....engine.errors import UsageError

MOST_DEVICES = 65_536


def check_counts(nodes: int, devices_per_node: int, where: str) -> None:
    """Refuse a cluster without devices, or with too many.

    Args:
        nodes: How many nodes.
        devices_per_node: How many devices in each.
        where: What the numbers are from, for the error.

    Raises:
        UsageError: With the limit.
    """
    if nodes < 1 or devices_per_node < 1:
        raise UsageError(f"{where}: {nodes} x {devices_per_node} devices; expected at least 1 x 1")
    if nodes * devices_per_node > MOST_DEVICES:
        raise UsageError(
            f"{where}: {nodes * devices_per_node:,} devices; expected at most {MOST_DEVICES:,}: "
            "plan for one part of the cluster, its data-parallel replicas are alike"
        )
