"""Sizes of the CUDA caching allocator: how requests are rounded, pooled and backed by segments.

Source: c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.cpp of PyTorch.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

LEAST_BLOCK_BYTES = 512
"""Every block is a multiple of this."""

SMALL_LIMIT_BYTES = 1 * MIB
"""The largest rounded size that goes into the small pool."""

SMALL_SEGMENT_BYTES = 2 * MIB
"""A segment, or a mapped page, of the small pool."""

LARGE_SEGMENT_BYTES = 20 * MIB
"""A segment for requests below `LARGE_LIMIT_BYTES`, and a mapped page of the large pool."""

LARGE_LIMIT_BYTES = 10 * MIB
"""From here on a request gets a segment of its own size."""

LARGE_ROUNDING_BYTES = 2 * MIB
"""What the size of such a segment is rounded up to."""

ROUNDUP_INTERVALS = 16
"""`roundup_power2_divisions` knows one number for each power of two from 1 MiB to 32 GiB."""


def round_request(size_bytes: int, divisions: tuple[int, ...]) -> int:
    """Return the block size that a request needs.

    Args:
        size_bytes: What was asked for; more than 0.
        divisions: `roundup_power2_divisions`, one number for each interval.
    """
    if size_bytes < LEAST_BLOCK_BYTES:
        return LEAST_BLOCK_BYTES
    interval = min(max(size_bytes.bit_length() - 1 - 20, 0), ROUNDUP_INTERVALS - 1)
    parts = divisions[interval]
    if parts > 1 and size_bytes > LEAST_BLOCK_BYTES * parts:
        return _round_to_part_of_power(size_bytes, parts)
    return -(-size_bytes // LEAST_BLOCK_BYTES) * LEAST_BLOCK_BYTES


def _round_to_part_of_power(size_bytes: int, parts: int) -> int:
    """Round up to the next of `parts` equal steps between two powers of two."""
    floor = 1 << (size_bytes.bit_length() - 1)
    if floor == size_bytes:
        return size_bytes
    step = floor >> (parts.bit_length() - 1)
    return -(-size_bytes // step) * step


def choose_segment_size(rounded_bytes: int, large_segment_bytes: int) -> int:
    """Return how much is taken from the device for a block that no cached one can serve."""
    if rounded_bytes <= SMALL_LIMIT_BYTES:
        return SMALL_SEGMENT_BYTES
    if rounded_bytes < LARGE_LIMIT_BYTES:
        return large_segment_bytes
    return -(-rounded_bytes // LARGE_ROUNDING_BYTES) * LARGE_ROUNDING_BYTES


def format_bytes(size_bytes: int) -> str:
    """Return a size as PyTorch's out-of-memory message prints it."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.2f} {name}"
    return f"{size_bytes} bytes"
