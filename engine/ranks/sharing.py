"""What a device shows of the ranks on it: their allocators together, the first rank's place and step."""

from collections.abc import Callable, Sequence

import msgspec

from ..model import AllocatorReading, DeviceSample, RankSample

NO_RANK = 1 << 62
"""Where a process without a rank stands in the order."""


def share(devices: Sequence[DeviceSample], ranks: Sequence[RankSample]) -> list[DeviceSample]:
    """Return the devices, those with live ranks on them with their allocator data; others as they are.

    Args:
        devices: Devices of one tick.
        ranks: Ranks of the same tick, each with the UUID of its device.
    """
    living: dict[str | None, list[RankSample]] = {}
    for rank in ranks:
        if rank.state != "ended":
            living.setdefault(rank.device_uuid, []).append(rank)
    return [_dress(device, living.get(device.uuid, ())) for device in devices]


def order(ranks: Sequence[RankSample], devices: Sequence[DeviceSample]) -> tuple[RankSample, ...]:
    """Return ranks by device, rank and pid; those without a device last."""
    places = {device.uuid: place for place, device in enumerate(devices)}
    return tuple(
        sorted(ranks, key=lambda r: (places.get(r.device_uuid or "", len(places)), _rank_of(r), r.pid))
    )


def _dress(device: DeviceSample, ranks: Sequence[RankSample]) -> DeviceSample:
    if not ranks:
        return device
    first = min(ranks, key=lambda rank: (_rank_of(rank), rank.pid))
    return msgspec.structs.replace(
        device,
        allocator=add_allocators([rank.allocator for rank in ranks if rank.allocator is not None]),
        rank=first.coordinates,
        step=first.step.index if first.step is not None else None,
    )


def add_allocators(readings: Sequence[AllocatorReading]) -> AllocatorReading | None:
    """Return several allocators as one; a figure that one of them lacks is unknown for all.

    The most allocated within the tick is known of a single one only: several need not peak at one moment.
    """
    if len(readings) < 2:
        return readings[0] if readings else None
    return AllocatorReading(
        allocated_bytes=_add(readings, lambda r: r.allocated_bytes),
        reserved_bytes=_add(readings, lambda r: r.reserved_bytes),
        requested_bytes=_add(readings, lambda r: r.requested_bytes),
        active_bytes=_add(readings, lambda r: r.active_bytes),
        inactive_split_bytes=_add(readings, lambda r: r.inactive_split_bytes),
        retries=_add(readings, lambda r: r.retries),
        ooms=_add(readings, lambda r: r.ooms),
    )


def _add(readings: Sequence[AllocatorReading], read: Callable[[AllocatorReading], int | None]) -> int | None:
    known = [value for reading in readings if (value := read(reading)) is not None]
    return sum(known) if len(known) == len(readings) else None


def _rank_of(rank: RankSample) -> int:
    return rank.coordinates.rank if rank.coordinates is not None else NO_RANK
