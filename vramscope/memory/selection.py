"""Which devices, process or job are watched; the rest of a sample is left out before anybody sees it."""

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from vramscope.engine.model import DeviceSample, RankSample, Sample


class Selection(NamedTuple):
    """What was asked for; None is everything."""

    devices: tuple[str, ...] | None = None
    """Indices, labels (`0:1`, `sim0`) or UUIDs."""
    pid: int | None = None
    job: str | None = None

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self.devices is None and self.pid is None and self.job is None

    def apply(self, sample: Sample) -> Sample:
        """Return a sample with what was asked for only."""
        if self.is_all:
            return sample
        ranks = tuple(rank for rank in sample.ranks if self._wants_rank(rank))
        inhabited = {rank.device_uuid for rank in ranks}
        devices = tuple(
            self._narrow(device, ranks)
            for device in sample.devices
            if self._wants_device(device) and self._is_inhabited(device, inhabited)
        )
        if self.devices is not None:
            kept = {device.uuid for device in devices}
            ranks = tuple(rank for rank in ranks if rank.device_uuid in kept)
        return msgspec.structs.replace(sample, devices=devices, ranks=ranks)

    def find_missing(self, seen: Collection[DeviceSample]) -> tuple[str, ...]:
        """Return the devices that were asked for by name and are none of those seen."""
        known = {word for device in seen for word in _names_of(device)}
        return tuple(word for word in self.devices or () if word not in known)

    def _wants_rank(self, rank: RankSample) -> bool:
        return self.pid in (None, rank.pid) and self.job in (None, rank.job)

    def _wants_device(self, device: DeviceSample) -> bool:
        return self.devices is None or not _names_of(device).isdisjoint(self.devices)

    def _is_inhabited(self, device: DeviceSample, inhabited: Collection[str | None]) -> bool:
        if self.pid is None and self.job is None:
            return True
        holds = self.job is None and any(it.pid == self.pid for it in device.processes or ())
        return holds or device.uuid in inhabited

    def _narrow(self, device: DeviceSample, ranks: tuple[RankSample, ...]) -> DeviceSample:
        """Return a device with the allocator of the only process asked for, where several share it."""
        if self.pid is None and self.job is None:
            return device
        own = [rank for rank in ranks if rank.device_uuid == device.uuid and rank.allocator is not None]
        return msgspec.structs.replace(device, allocator=own[0].allocator) if len(own) == 1 else device


def _names_of(device: DeviceSample) -> set[str]:
    return {str(device.index), device.label, device.uuid}
