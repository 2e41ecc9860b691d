"""How fast one device is, as far as kernels can tell."""

import msgspec

from ..cluster_graph import ClusterDevice
from .assumptions import FLOPS_PER_BYTE


class DeviceSpeed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Peaks of one device."""

    flops_per_s: float
    """Dense matrix products in 16 bits, at most."""
    memory_bytes_per_s: float
    multiprocessors: int | None = None
    """How many tiles of a product run at once; None where nobody tells."""


MULTIPROCESSORS = {
    "gb200": 148,
    "b200": 148,
    "h200": 132,
    "h100": 132,
    "gh200": 132,
    "a100": 108,
    "a800": 108,
    "h800": 132,
    "v100": 80,
    "l40s": 142,
    "rtx4090": 128,
    "rtx3090": 82,
    "mi300x": 304,
}
"""By name of the device, from the architecture papers of NVIDIA and AMD."""


def describe_speed(device: ClusterDevice) -> DeviceSpeed:
    """Return the peaks of a device of a cluster."""
    name = (device.kind or "").lower().replace(" ", "").replace("-", "")
    found = [count for key, count in MULTIPROCESSORS.items() if key in name]
    return DeviceSpeed(
        flops_per_s=device.flops_per_s,
        memory_bytes_per_s=device.memory_bytes_per_s or device.flops_per_s / FLOPS_PER_BYTE,
        multiprocessors=found[0] if found else None,
    )
