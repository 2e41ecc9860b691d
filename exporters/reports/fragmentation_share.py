"""How much of what an allocator holds is stranded."""

from ...engine.model import AllocatorReading


def measure_fragmentation(allocator: AllocatorReading) -> float | None:
    """Return the share of reserved bytes that is free and cannot be given back, 0 to 1.

    Inactive split bytes over reserved bytes, as PyTorch counts both; None where either is not told.
    """
    stranded = allocator.inactive_split_bytes
    reserved = allocator.reserved_bytes
    if stranded is None or reserved is None:
        return None
    return min(1.0, stranded / reserved) if reserved else 0.0
