"""How fast one device is, as far as kernels can tell."""

import msgspec

from ..cluster import DEVICES, ClusterDevice
from ..cluster.device_catalog import recognise_device
from .assumptions import FLOPS_PER_BYTE


class DeviceSpeed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Peaks of one device."""

    flops_per_s: float
    """Dense matrix products in 16 bits, at most."""
    memory_bytes_per_s: float
    multiprocessors: int | None = None
    """How many tiles of a product run at once; None where nobody tells."""


def describe_speed(device: ClusterDevice) -> DeviceSpeed:
    """Return the peaks of a device of a cluster."""
    kind = device.kind or ""
    model = next((it for it in DEVICES.values() if it.kind == kind), None) or recognise_device(kind)
    return DeviceSpeed(
        flops_per_s=device.flops_per_s,
        memory_bytes_per_s=device.memory_bytes_per_s or device.flops_per_s / FLOPS_PER_BYTE,
        multiprocessors=None if model is None else model.multiprocessors,
    )
