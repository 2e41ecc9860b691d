"""Levels, fullness and fragmentation of one device."""

from __future__ import annotations

from ...engine.model.memory_snapshot import BlockState
from .model import FullnessBand, MemoryLevels, PoolFragmentation
from .view import DeviceView

_BAND_LABELS = ("empty", "under 25 %", "25 to 50 %", "50 to 75 %", "75 % and more", "full")


def measure_levels(view: DeviceView) -> MemoryLevels:
    """Return the bytes of a device."""
    import numpy as np

    is_live = view.is_live
    reserved_bytes, active_bytes = int(view.total_bytes.sum()), int(view.size_bytes[is_live].sum())
    free = view.size_bytes[~is_live]
    requested = view.requested_bytes[is_live]
    requested_bytes = int(requested.sum()) if bool((requested >= 0).all()) else None
    stranded_bytes = int(view.stranded_bytes.sum())
    return MemoryLevels(
        reserved_bytes=reserved_bytes,
        allocated_bytes=int(view.size_bytes[view.state == BlockState.ALLOCATED].sum()),
        active_bytes=active_bytes,
        requested_bytes=requested_bytes,
        internal_bytes=None if requested_bytes is None else active_bytes - requested_bytes,
        free_bytes=int(free.sum()),
        largest_free_bytes=int(free.max()) if len(free) else 0,
        stranded_bytes=stranded_bytes,
        stranded_segments=int(np.count_nonzero(view.stranded_bytes)),
        releasable_bytes=int(free.sum()) - stranded_bytes,
        segments=len(view.total_bytes),
        expandable_segments=int(np.count_nonzero(view.is_expandable)),
        blocks=len(view.size_bytes),
        live_blocks=int(np.count_nonzero(is_live)),
    )


def band_segments(view: DeviceView) -> tuple[FullnessBand, ...]:
    """Return how many segments are how full, from empty to full; bands without segments are left out."""
    import numpy as np

    live_bytes = view.sum_by_segment(np.where(view.is_live, view.size_bytes, 0))
    total_bytes = view.total_bytes
    quarter = 4 * live_bytes // np.maximum(total_bytes, 1)
    band = np.clip(quarter, 0, 3) + 1
    band[live_bytes == 0] = 0
    band[(live_bytes >= total_bytes) & (live_bytes > 0)] = 5
    return tuple(
        FullnessBand(
            label=label,
            segments=int(np.count_nonzero(band == number)),
            total_bytes=int(total_bytes[band == number].sum()),
            free_bytes=int((total_bytes - live_bytes)[band == number].sum()),
        )
        for number, label in enumerate(_BAND_LABELS)
        if bool((band == number).any())
    )


def measure_pools(view: DeviceView) -> tuple[PoolFragmentation, ...]:
    """Return the fragmentation of every pool and stream, most free bytes first.

    External fragmentation is 1 - largest free block / free bytes: 0 where all that is free is one block.
    """
    import numpy as np

    keys = np.stack([view.pool_owner, view.pool_number, view.stream, view.is_large.astype(np.int64)], axis=1)
    if not len(keys):
        return ()
    unique, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.reshape(-1)
    is_free = ~view.is_live
    of_block = group[view.segment]
    largest = np.zeros(len(unique), dtype=np.int64)
    np.maximum.at(largest, of_block[is_free], view.size_bytes[is_free])
    pools = []
    for number, (owner, pool, stream, is_large) in enumerate(unique.tolist()):
        of_pool = group == number
        free_bytes = int(view.size_bytes[is_free & (of_block == number)].sum())
        pools.append(
            PoolFragmentation(
                pool_id=(owner, pool),
                stream=stream,
                kind="large" if is_large else "small",
                reserved_bytes=int(view.total_bytes[of_pool].sum()),
                free_bytes=free_bytes,
                largest_free_bytes=int(largest[number]),
                stranded_bytes=int(view.stranded_bytes[of_pool].sum()),
                external_fragmentation=1 - int(largest[number]) / free_bytes if free_bytes else None,
            )
        )
    return tuple(sorted(pools, key=lambda pool: (-pool.free_bytes, pool.pool_id, pool.stream, pool.kind)))
