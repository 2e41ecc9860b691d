"""The device that is shown where nobody has chosen one."""

from collections.abc import Sequence

from ...engine.model import DeviceSample
from ..draw.numbers import share_percent


def find_fullest(devices: Sequence[DeviceSample]) -> DeviceSample:
    """Return the device that is nearest to its capacity; the first where nobody can tell."""
    return max(devices, key=_used_percent)


def _used_percent(device: DeviceSample) -> float:
    return share_percent(device.memory.used_bytes, device.memory.total_bytes) or 0.0
