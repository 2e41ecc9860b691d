"""What fills a device: live tensors, the allocators' cache and the rest, where a probe tells them apart."""

from collections.abc import Iterable
from typing import NamedTuple

from ..engine.model import AllocatorReading, DeviceSample, Sample
from ..engine.units import format_bytes

LITTLE_CACHE_SHARE = 0.05
"""Below this share of the device's total, giving the cache back makes no room worth naming."""


class Holdings(NamedTuple):
    """What the allocators on one device hold, in bytes."""

    live_bytes: int
    """Live tensors of all processes that report."""
    cache_bytes: int
    """Reserved, not allocated, and free to be given back: stranded bytes are not in it."""
    stranded_bytes: int
    """Free pieces of segments that are partly in use; the allocator cannot give them back."""
    outside_bytes: int | None
    """Device used less reserved: contexts, NCCL buffers, processes that do not report."""

    @property
    def words(self) -> str:
        """The parts in one clause."""
        parts = [
            f"live tensors {format_bytes(self.live_bytes)}",
            f"cache that the allocator gives back before it fails {format_bytes(self.cache_bytes)}",
        ]
        if self.stranded_bytes:
            parts.append(f"stranded {format_bytes(self.stranded_bytes)}")
        if self.outside_bytes is not None:
            parts.append(f"outside the allocators {format_bytes(self.outside_bytes)}")
        return ", ".join(parts)

    def advise(self, total_bytes: int) -> str:
        """Return what these parts mean for the job, and what to do, in one sentence."""
        largest = max(self.live_bytes, self.cache_bytes, self.stranded_bytes, self.outside_bytes or 0)
        if self.cache_bytes >= LITTLE_CACHE_SHARE * total_bytes:
            return (
                f"The job can still have {format_bytes(self.cache_bytes)} out of its cache; to leave room "
                "for another process, cap the cache with torch.cuda.set_per_process_memory_fraction(0.95)"
            )
        if largest == self.outside_bytes:
            return (
                "Most is held outside the allocators that report: end other processes on the device, or "
                "start them with `vramscope run` to see what they hold"
            )
        if largest == self.stranded_bytes:
            return "Most is stranded: try PYTORCH_ALLOC_CONF=expandable_segments:True"
        return (
            "The cache has little left to give back: lower the micro-batch, recompute activations or shard "
            "further"
        )


def measure_holdings(sample: Sample, device: DeviceSample) -> Holdings | None:
    """Return what the allocators on a device hold; None where none reports live and reserved bytes."""
    ranks = [it for it in sample.ranks if it.device_uuid == device.uuid and it.state == "ok"]
    readings = [it.allocator for it in ranks if it.allocator is not None]
    if not readings and device.allocator is not None:
        readings = [device.allocator]
    return _add_up(readings, device.memory.used_bytes)


def _add_up(readings: Iterable[AllocatorReading], used_bytes: int | None) -> Holdings | None:
    live = reserved = stranded = 0
    is_known = False
    for it in readings:
        if it.allocated_bytes is None or it.reserved_bytes is None:
            return None
        is_known = True
        live += it.allocated_bytes
        reserved += it.reserved_bytes
        stranded += it.inactive_split_bytes or 0
    if not is_known:
        return None
    free_bytes = max(0, reserved - live)
    stranded = min(stranded, free_bytes)
    outside = None if used_bytes is None else max(0, used_bytes - reserved)
    return Holdings(live, free_bytes - stranded, stranded, outside)
