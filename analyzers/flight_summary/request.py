"""Why a request failed: what the allocator had to ask the device for, and what it had itself."""

from collections.abc import Iterator

from ...engine.model.flight_record import FlightRecord
from ...engine.model.segments import FREE, Segment
from ...engine.units import format_bytes
from ..allocator_model.errors import AllocatorSettingsError
from ..allocator_model.rules import SMALL_LIMIT_BYTES, choose_segment_size, round_request
from ..allocator_model.settings import AllocatorSettings
from .model import DeviceShares


def find_needed(record: FlightRecord) -> int | None:
    """Return what the device had to give for the request in bytes, None where that is unknown.

    A request that no cached block can serve needs a whole segment (`choose_segment_size`). CUDA's hook tells
    the size of the segment and not of the request; a simulated device tells the request.
    """
    size = record.failure.size_bytes
    if size is None or size <= 0 or not record.process.is_simulated or _has_expandable(record):
        return size
    settings = _read_settings(record)
    rounded = round_request(size, settings.roundup_power2_divisions)
    return choose_segment_size(rounded, settings.large_segment_bytes)


def word_failure(record: FlightRecord, shares: DeviceShares) -> str:
    """Return what failed, and what stood against it.

    Args:
        record: What the probe wrote.
        shares: Who held the device.
    """
    size, needed = record.failure.size_bytes, find_needed(record)
    what = "a request of unknown size" if size is None else f"a request of {format_bytes(size)}"
    device = "" if shares.total_bytes is None else f" on a device of {format_bytes(shares.total_bytes)}"
    free = None if shares.free_bytes is None else format_bytes(shares.free_bytes)
    held = [
        f"{format_bytes(level)} {state}"
        for level, state in ((shares.allocated_bytes, "were allocated"), (shares.reserved_bytes, "reserved"))
        if level is not None
    ]
    if needed is not None and format_bytes(needed) != format_bytes(size):
        failed = f"{what} failed{device}: it needed a new segment of {format_bytes(needed)}"
        failed += "" if free is None else f", and {free} were free"
    else:
        failed = f"{what} failed{device}"
        held += [] if free is None else [f"{free} free on the device"]
    return "; ".join((failed, ", ".join(held))) if held else failed


def explain_request(record: FlightRecord, shares: DeviceShares) -> Iterator[str]:
    """Yield why nothing that was free served the request, and how much more would have.

    Args:
        record: What the probe wrote.
        shares: Who held the device.
    """
    if _has_expandable(record):
        yield "segments expand here, by whole pages: 2 MiB for requests up to 1 MiB, else 20 MiB"
    largest = _find_largest_free(record)
    if largest is not None:
        found = f"the largest free one has {format_bytes(largest)}" if largest else "none was free"
        yield f"no cached block was large enough: {found}"
    needed, free, total = find_needed(record), shares.free_bytes, shares.total_bytes
    if needed is None or free is None:
        return
    if total is not None and needed > total:
        yield f"no device of {format_bytes(total)} can serve it, however much is free"
    elif free < needed:
        yield f"{format_bytes(needed - free)} more free on the device would have been enough"
    elif not _has_expandable(record):
        yield (
            "as much was free on the device: the process may have a limit of its own "
            "(torch.cuda.set_per_process_memory_fraction)"
        )


def count_earlier_retries(record: FlightRecord) -> int:
    """Return how often the cache was flushed before the request that failed, which flushed it once itself."""
    return max(0, int(record.stats.get("num_alloc_retries", 0)) - 1)


def _find_largest_free(record: FlightRecord) -> int | None:
    """Return the largest free block of the pool that serves the request, None where not all are known.

    A block as large as the request belongs to another stream; it explains nothing and counts as unknown.
    """
    size = record.failure.size_bytes
    if size is None or not record.segments or record.truncated.segments or record.truncated.blocks:
        return None
    # Without the request itself the hook's size tells the pool: segments of 2 MiB are of the small one.
    limit = SMALL_LIMIT_BYTES if record.process.is_simulated else 2 * SMALL_LIMIT_BYTES
    pool = "small" if size <= limit else "large"
    segments = [each for each in record.segments if each.pool == pool and not each.is_private]
    largest = max(map(_find_largest_of, segments), default=0)
    return largest if largest < size else None


def _find_largest_of(segment: Segment) -> int:
    return max((size for size, state in segment.blocks if state == FREE), default=0)


def _has_expandable(record: FlightRecord) -> bool:
    return _read_settings(record).expandable_segments or any(each.is_expandable for each in record.segments)


def _read_settings(record: FlightRecord) -> AllocatorSettings:
    """Return the allocator's settings, the defaults where the record does not tell them."""
    try:
        return AllocatorSettings.parse(record.allocator_settings or "")
    except AllocatorSettingsError:
        return AllocatorSettings()
