"""How a recorded run stands to the capacity that was asked about, while nothing recorded is above it."""

from collections.abc import Callable
from typing import NamedTuple

from ..engine.model import DeviceSample, Sample
from ..engine.units import format_gib
from .device_names import name_device

Peaks = Callable[[str], tuple[int, float] | None]
"""Most device-used bytes seen of a device by its UUID, and when (`History.peak`)."""


class _Peak(NamedTuple):
    """The most that one rank used so far."""

    device: DeviceSample
    used_bytes: int
    time_s: float
    total_bytes: int

    @property
    def share(self) -> str:
        percent = round(100 * self.used_bytes / self.total_bytes)
        is_all = self.used_bytes == self.total_bytes
        return f"{percent} %" if percent < 100 or is_all else "over 99 %"


def describe_fit(sample: Sample, peaks: Peaks) -> tuple[str, ...] | None:
    """Return a clause that says how close a recorded run came to its capacity, the longest form first.

    None where the question was not put, or cannot be answered with yes: the samples are not recorded, the
    capacity or a rank's device used is unknown, or a rank used more.
    """
    if sample.clock != "trace":
        return None
    told = [device for device in sample.devices if _tells(device)]
    known = [peak for peak in (_find_peak(device, sample, peaks) for device in told) if peak is not None]
    if not known or len(known) < len(told):
        return None
    highest = max(known, key=lambda peak: peak.used_bytes / peak.total_bytes)
    if highest.used_bytes > highest.total_bytes:
        return None
    return _word(highest, sample)


def _tells(device: DeviceSample) -> bool:
    """Return whether a rank has had any sample yet."""
    return device.memory.used_bytes is not None or device.allocator is not None


def _find_peak(device: DeviceSample, sample: Sample, peaks: Peaks) -> _Peak | None:
    memory = device.memory
    if memory.used_bytes is None or not memory.total_bytes:
        return None
    now_bytes = memory.used_max_bytes if memory.used_max_bytes is not None else memory.used_bytes
    remembered = peaks(device.uuid)
    used_bytes, time_s = (
        remembered if remembered and remembered[0] >= now_bytes else (now_bytes, sample.time_s)
    )
    return _Peak(device, used_bytes, time_s, memory.total_bytes)


def _word(highest: _Peak, sample: Sample) -> tuple[str, ...]:
    head = f"fits {format_gib(highest.total_bytes)} GiB{'' if sample.is_last else ' so far'}"
    name = name_device(highest.device)
    figure = f"{format_gib(highest.used_bytes)} GiB"
    lead = f"{head}: {name}" if len(sample.devices) == 1 else f"{head}: highest {name}"
    return (
        f"{lead} {figure} ({highest.share}) at {highest.time_s:,.1f} s",
        f"{lead} {figure} ({highest.share})",
        f"{head}: {name} {figure}",
        head,
    )
