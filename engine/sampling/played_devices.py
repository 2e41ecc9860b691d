"""The devices of a player of whole samples: their names, and the capacity that was given for them."""

import msgspec

from ..model import DeviceSample
from ..units import format_bytes

REAL_KINDS = frozenset({"gpu", "mig", "unified", "vgpu"})
"""Kinds of devices that a driver knows; others were modelled."""


class PlayedDevices:
    """Devices as they were last played.

    Args:
        capacity_bytes: Capacity of devices of which none was recorded.
    """

    def __init__(self, capacity_bytes: int | None) -> None:
        self._capacity_bytes = capacity_bytes
        self._is_capacity_used = False
        self._devices: dict[str, DeviceSample] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what was not recorded."""
        given = f"capacity {format_bytes(self._capacity_bytes)} is as given, not recorded"
        return (given,) if self._is_capacity_used else ()

    def complete(self, devices: tuple[DeviceSample, ...]) -> tuple[DeviceSample, ...]:
        """Return the devices of one sample, with the capacity that was given where they tell none."""
        completed = tuple(map(self._complete, devices))
        self._devices.update((device.uuid, device) for device in completed)
        return completed

    def label(self, uuid: str) -> str:
        """Return a device as people call it."""
        return self._devices[uuid].label

    def real_uuid(self, uuid: str) -> str | None:
        """Return the UUID of a device of the driver, None where it was made up for a modelled one."""
        return uuid if self._devices[uuid].kind in REAL_KINDS else None

    def _complete(self, device: DeviceSample) -> DeviceSample:
        if self._capacity_bytes is None or device.memory.total_bytes is not None:
            return device
        self._is_capacity_used = True
        memory = msgspec.structs.replace(device.memory, total_bytes=self._capacity_bytes)
        return msgspec.structs.replace(device, memory=memory)
