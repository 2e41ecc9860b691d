"""Parts of a device that are as in the sample before are left out, and filled in at the other end.

Clocks, limits, versions and processes are most of a sample, and most stay the same for seconds. Whoever
misses a sample asks for the newest in full, so both ends know the one before; now and then everything is
sent all the same, for those whose answer came too late.
"""

from typing import Final, cast

import msgspec
from msgspec.structs import replace

from ..model import DeviceActivity, DeviceHardware, DeviceSample, ProcessReading, Sample

# Every so many samples nothing is left out.
WHOLE_EVERY = 30


class _AsBefore(msgspec.Struct, frozen=True):
    """Encoded as an empty map, which is decoded as a part without a single value."""

    def __getattr__(self, name: str) -> None:
        """What it stands for was checked when it was sent."""


class _ProcessesAsBefore(_AsBefore, frozen=True):
    """Encoded as a map with a number that no process has."""

    pid: int = 0


_SAME_ACTIVITY: Final = cast(DeviceActivity, _AsBefore())
_SAME_HARDWARE: Final = cast(DeviceHardware, _AsBefore())
_SAME_PROCESSES: Final = (cast(ProcessReading, _ProcessesAsBefore()),)
_NO_PROCESSES: Final = (ProcessReading(pid=0),)
_NO_ACTIVITY: Final = DeviceActivity()
_NO_HARDWARE: Final = DeviceHardware()


def leave_out_unchanged(sample: Sample, before: Sample | None) -> Sample:
    """Return a sample to be sent to those who have the one before; its empty parts are only to be encoded."""
    if before is None or sample.seq % WHOLE_EVERY == 0:
        return sample
    known = {device.uuid: device for device in before.devices}
    devices = tuple([_shorten(device, known.get(device.uuid)) for device in sample.devices])
    return replace(sample, devices=devices)


def _shorten(device: DeviceSample, before: DeviceSample | None) -> DeviceSample:
    if before is None:
        return device
    activity = device.activity
    hardware = device.hardware
    processes = device.processes
    is_same_activity = activity is not None and activity == before.activity
    is_same_hardware = hardware is not None and hardware == before.hardware
    is_same_processes = bool(processes) and processes == before.processes
    if not (is_same_activity or is_same_hardware or is_same_processes):
        return device
    return replace(
        device,
        activity=_SAME_ACTIVITY if is_same_activity else activity,
        hardware=_SAME_HARDWARE if is_same_hardware else hardware,
        processes=_SAME_PROCESSES if is_same_processes else processes,
    )


def fill_in_unchanged(sample: Sample, before: Sample | None) -> Sample:
    """Return a sample as it was before `leave_out_unchanged`.

    If the newest one here is not the one before it, what was left out is unmeasured: it may have changed.
    """
    if not any(
        it.activity == _NO_ACTIVITY or it.hardware == _NO_HARDWARE or it.processes == _NO_PROCESSES
        for it in sample.devices
    ):
        return sample
    is_next = before is not None and before.seq == sample.seq - 1
    known = {device.uuid: device for device in before.devices} if before is not None and is_next else {}
    return replace(sample, devices=tuple([_complete(it, known.get(it.uuid)) for it in sample.devices]))


def _complete(device: DeviceSample, before: DeviceSample | None) -> DeviceSample:
    activity = device.activity
    hardware = device.hardware
    processes = device.processes
    if activity == _NO_ACTIVITY:
        activity = None if before is None else before.activity
    if hardware == _NO_HARDWARE:
        hardware = None if before is None else before.hardware
    if processes == _NO_PROCESSES:
        processes = None if before is None else before.processes
    return replace(device, activity=activity, hardware=hardware, processes=processes)
