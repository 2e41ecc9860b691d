"""How much the memory of a device, or of the processes on it, has grown."""

from typing import Literal

import msgspec

from ...engine.units import MIB
from .device_log import DeviceLog, MemorySource, Snapshot
from .trend import fit_slope

PARTS = 5
LEAST_POINTS = 20


class MemoryGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """Growth over the snapshots that are kept, in MiB; None where it was not measured."""

    start_mb: float | None
    end_mb: float | None
    growth_rate_mb_per_min: float | None
    """Least-squares slope of the least values of five parts of the window; of all where they are few."""
    total_growth_mb: float | None


def measure_growth(
    device: DeviceLog, window: int, what: MemorySource | Literal["resident"], *, since_s: float | None = None
) -> MemoryGrowth:
    """Return how one figure of a device has grown.

    Args:
        device: The device.
        window: Newest snapshots that the rate is fitted to.
        what: The allocator's live bytes, device used, or the resident memory of its processes.
        since_s: Time of the oldest snapshot to count; None for all that are kept.
    """
    kept = (it for it in device.snapshots if since_s is None or it.time_s >= since_s)
    figures = ((it.time_s, _read(it, what)) for it in kept)
    known = [(time_s, value / MIB) for time_s, value in figures if value is not None]
    if not known:
        return MemoryGrowth(start_mb=None, end_mb=None, growth_rate_mb_per_min=None, total_growth_mb=None)
    slope = fit_slope(_find_floors(known[-window:]))
    return MemoryGrowth(
        start_mb=known[0][1],
        end_mb=known[-1][1],
        growth_rate_mb_per_min=None if slope is None else slope * 60.0,
        total_growth_mb=known[-1][1] - known[0][1],
    )


def _find_floors(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the least of each part of the time: what each step allocates and frees is no growth."""
    if len(points) < LEAST_POINTS:
        return points
    start_s = points[0][0]
    part_s = (points[-1][0] - start_s) / PARTS
    floors: dict[int, tuple[float, float]] = {}
    for point in points:
        part = min(PARTS - 1, int((point[0] - start_s) / part_s)) if part_s > 0 else 0
        least = floors.get(part)
        floors[part] = point if least is None or point[1] < least[1] else least
    return list(floors.values())


def _read(snapshot: Snapshot, what: MemorySource | Literal["resident"]) -> int | None:
    return snapshot.resident_bytes if what == "resident" else snapshot.taken_bytes(what)
