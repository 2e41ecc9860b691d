"""What links the devices of a node."""

from typing import Literal

import msgspec

Meeting = Literal["board", "switch", "host bridge", "NUMA node", "sockets"]


class TopologyDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device; None where the driver does not tell."""

    name: str
    total_bytes: int
    lanes: int
    """Active lanes of NVLink; 0 where it has none."""
    nvlink_version: int | None
    """As NVML numbers it: 1, 2, 4, 6 and 7 are NVLink 1 to 5."""
    pcie_generation: int | None
    pcie_lanes: int | None


class TopologyPair(msgspec.Struct, frozen=True, kw_only=True):
    """Two devices, by their positions, the smaller first."""

    first: int
    second: int
    lanes: int
    """Lanes of NVLink from one to the other, through switches too; 0 where there are none."""
    meeting: Meeting | None
    """Where their paths over PCI Express meet."""


class NodeTopology(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of a node in index order, and every two of them."""

    devices: tuple[TopologyDevice, ...]
    pairs: tuple[TopologyPair, ...]
