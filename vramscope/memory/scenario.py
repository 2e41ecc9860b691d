"""A made-up continuation of what was seen of a device, judged as if it had happened."""

from collections.abc import Iterator
from typing import NamedTuple

from vramscope.engine.model import AllocatorReading, DeviceSample, MemoryReading, Sample
from vramscope.engine.units import MIB
from vramscope.exporters.reports.device_log import DeviceLog, Snapshot
from vramscope.exporters.reports.run_log import RunLog

from .conclusions import Conclusions

MOST_SNAPSHOTS = 1000
"""Newest of what was seen that the scenario begins with."""
NODE = "scenario"


class PlayedScenario(NamedTuple):
    """What is known after the scenario."""

    log: RunLog
    device: DeviceLog


def play_scenario(device: DeviceLog, interval_s: float, *, increase_mib: float, steps: int) -> PlayedScenario:
    """Feed fresh analyzers with what was seen of a device and then with growth that did not happen.

    Args:
        device: What was seen.
        interval_s: Seconds from one made-up sample to the next.
        increase_mib: MiB by which each of them holds more than the one before.
        steps: How many of them.
    """
    conclusions, log = Conclusions(), RunLog()
    for number, snapshot in enumerate(_continue(device, interval_s, increase_mib, steps)):
        sample = Sample(NODE, number, snapshot.time_s, interval_s, (_make_device(device, snapshot),))
        log.observe(sample)
        log.take(conclusions.observe(sample))
    log.take((), conclusions.assess())
    return PlayedScenario(log, log.devices[device.uuid])


def _continue(device: DeviceLog, interval_s: float, increase_mib: float, steps: int) -> Iterator[Snapshot]:
    seen = list(device.snapshots)[-MOST_SNAPSHOTS:]
    yield from seen
    last = seen[-1]
    for step in range(1, steps + 1):
        more = round(step * increase_mib * MIB)
        used = _add(last.used_bytes, more)
        if used is not None and last.total_bytes is not None:
            used = min(used, last.total_bytes)
        yield last._replace(
            time_s=last.time_s + step * interval_s,
            used_bytes=used,
            free_bytes=None if last.free_bytes is None else max(0, last.free_bytes - more),
            allocated_bytes=_add(last.allocated_bytes, more),
            reserved_bytes=_add(last.reserved_bytes, more),
        )


def _add(figure: int | None, more: int) -> int | None:
    return None if figure is None else max(0, figure + more)


def _make_device(device: DeviceLog, snapshot: Snapshot) -> DeviceSample:
    allocator = None
    if snapshot.allocated_bytes is not None:
        allocator = AllocatorReading(
            allocated_bytes=snapshot.allocated_bytes, reserved_bytes=snapshot.reserved_bytes
        )
    used = snapshot.used_bytes
    return DeviceSample(
        uuid=device.uuid,
        index=device.index,
        name=device.name,
        kind=device.kind,
        memory=MemoryReading(snapshot.total_bytes, used, snapshot.free_bytes, used, used),
        allocator=allocator,
    )
