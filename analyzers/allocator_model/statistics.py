"""The statistics as `torch.cuda.memory_stats()` gives them."""

from __future__ import annotations

from typing import Any

from .counters import DeviceCounters
from .settings import AllocatorSettings
from .tally import COUNTED, Peaks, Tally

UNLIMITED = -1
"""What PyTorch prints for a `max_split_size` without a limit."""


class Statistics:
    """Puts what was counted into PyTorch's words."""

    def __init__(
        self,
        settings: AllocatorSettings,
        small: Tally,
        large: Tally,
        *,
        peaks: Peaks,
        counters: DeviceCounters,
    ) -> None:
        self._settings = settings
        self._small = small
        self._large = large
        self._peaks = peaks
        self._counters = counters
        self._small_base = self._large_base = ((0, 0),) * len(COUNTED)

    def as_nested_dict(self) -> dict[str, Any]:
        """Return the statistics as `torch.cuda.memory_stats_as_nested_dict()` does."""
        counters = self._counters
        nested: dict[str, Any] = self._describe_counted()
        nested["segment"] = counters.segment.as_dict()
        nested["reserved_bytes"] = counters.reserved.as_dict()
        nested["reserved_bytes_by_private_pools"] = {
            pool_id: counter.as_dict() for pool_id, counter in counters.reserved_by_private_pool.items()
        }
        nested["oversize_allocations"] = counters.oversize_allocations.as_dict()
        nested["oversize_segments"] = counters.oversize_segments.as_dict()
        limit = self._settings.max_split_bytes
        nested["max_split_size"] = UNLIMITED if limit is None else limit
        nested["num_alloc_retries"] = counters.num_alloc_retries
        nested["num_ooms"] = counters.num_ooms
        nested["num_sync_all_streams"] = counters.num_sync_all_streams
        nested["num_device_alloc"] = counters.num_device_alloc
        nested["num_device_free"] = counters.num_device_free
        nested["num_oom_rejections"] = 0
        return nested

    def _describe_counted(self) -> dict[str, dict[str, dict[str, int]]]:
        described = {}
        small = self._small.read_totals()
        large = self._large.read_totals()
        for at, name in enumerate(COUNTED):
            pools = (
                ("small_pool", small[at], self._small_base[at], self._peaks.values[at][1]),
                ("large_pool", large[at], self._large_base[at], self._peaks.values[at][2]),
            )
            parts = {
                pool: {
                    "current": rose - fell,
                    "peak": peak,
                    "allocated": rose - base_rose,
                    "freed": fell - base_fell,
                }
                for pool, (rose, fell), (base_rose, base_fell), peak in pools
            }
            both = {key: parts["small_pool"][key] + parts["large_pool"][key] for key in parts["small_pool"]}
            both["peak"] = self._peaks.values[at][0]
            described[name] = {"all": both, **parts}
        return described

    def as_flat_dict(self) -> dict[str, int]:
        """Return the statistics as `torch.cuda.memory_stats()` does: dotted keys in order."""
        flat: dict[str, int] = {}
        _flatten("", self.as_nested_dict(), flat)
        return dict(sorted(flat.items()))

    def reset_peaks(self) -> None:
        """Forget the peaks before now."""
        self._peaks.reset()
        self._counters.reset_peaks()

    def reset_accumulated(self) -> None:
        """Forget what rose, fell and happened before now."""
        self._small_base = self._small.read_totals()
        self._large_base = self._large.read_totals()
        self._counters.reset_accumulated()


def _flatten(prefix: str, nested: dict[Any, Any], flat: dict[str, int]) -> None:
    for key, value in nested.items():
        name = key if isinstance(key, str) else "_".join(str(part) for part in key)
        if isinstance(value, dict):
            _flatten(f"{prefix}{name}.", value, flat)
        else:
            flat[prefix + name] = value
