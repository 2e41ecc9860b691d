"""Allocator settings, read from the text of PYTORCH_ALLOC_CONF as PyTorch reads it.

Source of grammar and limits: c10/core/AllocatorConfig.cpp and c10/cuda/CUDAAllocatorConfig.cpp.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Callable

# Sizes of the CUDA caching allocator: how requests are rounded, pooled and backed by segments.

# Source: c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.cpp of PyTorch.

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# Every block is a multiple of this.
LEAST_BLOCK_BYTES = 512

# The largest rounded size that goes into the small pool.
SMALL_LIMIT_BYTES = 1 * MIB

# A segment, or a mapped page, of the small pool.
SMALL_SEGMENT_BYTES = 2 * MIB

# A segment for requests below `LARGE_LIMIT_BYTES`, and a mapped page of the large pool.
LARGE_SEGMENT_BYTES = 20 * MIB

# From here on a request gets a segment of its own size.
LARGE_LIMIT_BYTES = 10 * MIB

# What the size of such a segment is rounded up to.
LARGE_ROUNDING_BYTES = 2 * MIB

# `roundup_power2_divisions` has one number for each power of two from 1 MiB to 32 GiB.
ROUNDUP_INTERVALS = 16


def round_request(size_bytes: int, divisions: tuple[int, ...]) -> int:
    """Return the block size for a request; `divisions` is `roundup_power2_divisions`, a number for each
    interval.
    """
    if size_bytes < LEAST_BLOCK_BYTES:
        return LEAST_BLOCK_BYTES
    interval = min(max(size_bytes.bit_length() - 1 - 20, 0), ROUNDUP_INTERVALS - 1)
    parts = divisions[interval]
    if parts > 1 and size_bytes > LEAST_BLOCK_BYTES * parts:
        # Round up to the next of `parts` equal steps between two powers of two.
        floor = 1 << (size_bytes.bit_length() - 1)
        if floor == size_bytes:
            return size_bytes
        step = floor >> (parts.bit_length() - 1)
        return -(-size_bytes // step) * step
    return -(-size_bytes // LEAST_BLOCK_BYTES) * LEAST_BLOCK_BYTES


def choose_segment_size(rounded_bytes: int, large_segment_bytes: int) -> int:
    """Return the bytes of the new segment for a block that no cached one can serve."""
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


class AllocatorModelError(Exception):
    """The root of the errors of this package."""


class AllocatorSettingsError(AllocatorModelError):
    """An allocator configuration that PyTorch would refuse; the text names the key and what it expects."""


class UnknownAddressError(AllocatorModelError):
    """The address of no live block: freed twice, or never allocated."""


class PoolError(AllocatorModelError):
    """A private pool that is begun twice, or ended or released without having begun."""


class AllocatorOutOfMemoryError(AllocatorModelError):
    """The modelled card has no room, even after the whole cache was freed.

    Attributes:
        rounded_bytes: The block that it needed.
        segment_bytes: What was asked of the device for it; PyTorch's message names this.
        device_free_bytes: Free on the card, whoever holds the rest.
        device_total_bytes: Capacity of the card.
        allocated_bytes: In live blocks of this process.
        reserved_bytes: Held from the card by this process.
        limit_bytes: What the memory fraction allows this process; None without one.
    """

    def __init__(
        self,
        requested_bytes: int,
        rounded_bytes: int,
        segment_bytes: int,
        *,
        device_free_bytes: int,
        device_total_bytes: int,
        allocated_bytes: int,
        reserved_bytes: int,
        limit_bytes: int | None,
    ) -> None:
        self.requested_bytes = requested_bytes
        self.rounded_bytes = rounded_bytes
        self.segment_bytes = segment_bytes
        self.device_free_bytes = device_free_bytes
        self.device_total_bytes = device_total_bytes
        self.allocated_bytes = allocated_bytes
        self.reserved_bytes = reserved_bytes
        self.limit_bytes = limit_bytes
        allowed = "" if limit_bytes is None else f" {format_bytes(limit_bytes)} allowed;"
        super().__init__(
            f"no room for {format_bytes(segment_bytes)}: the card has"
            f" {format_bytes(device_total_bytes)}, {format_bytes(device_free_bytes)} free;{allowed}"
            f" {format_bytes(allocated_bytes)} allocated,"
            f" {format_bytes(reserved_bytes - allocated_bytes)} reserved but unallocated"
        )


# Keys of PyTorch that change nothing in this model: pinned memory, locks, or when an error is raised.
_UNMODELLED = frozenset(
    {
        "graph_capture_record_stream_reuse",
        "pinned_free_catch_all",
        "pinned_max_cached_size_mb",
        "pinned_max_round_threshold_mb",
        "pinned_num_register_threads",
        "pinned_reserve_segment_size_mb",
        "pinned_use_background_threads",
        "pinned_use_cuda_host_register",
        "pinned_use_hip_host_register",
        "release_lock_on_cudamalloc",
        "release_lock_on_hipmalloc",
        "throw_on_cudamalloc_oom",
    }
)


@dataclass(frozen=True)
class AllocatorSettings:
    """The settings of PYTORCH_ALLOC_CONF, in bytes."""

    # The configuration as it was written.
    text: str = ""

    # Blocks of this size and more are not split; None without a limit.
    max_split_bytes: int | None = None

    # How much larger than an unsplittable request the block that serves it may be.
    max_non_split_rounding_bytes: int = LARGE_SEGMENT_BYTES

    # Steps between two powers of two that sizes are rounded up to, from 1 MiB on; 0 and 1 mean none.
    roundup_power2_divisions: tuple[int, ...] = (0,) * ROUNDUP_INTERVALS

    # Share of the memory fraction above which old cached blocks are given back; 0 means never.
    garbage_collection_threshold: float = 0.0

    # Whether segments grow page by page instead of being taken whole.
    expandable_segments: bool = False

    # Segment, or mapped page, for requests above 1 MiB and below 10 MiB.
    large_segment_bytes: int = LARGE_SEGMENT_BYTES

    # Share of the card this process may hold; 1 means all.
    memory_fraction: float = 1.0

    # Keys that PyTorch knows and that change nothing here, with their values.
    unmodelled: tuple[tuple[str, str], ...] = ()

    # Keys that PyTorch does not know, with their values; it would refuse to start.
    unknown: tuple[tuple[str, str], ...] = ()

    # False for `backend:cudaMallocAsync`, which has no cache to model.
    is_native: bool = field(default=True)

    @classmethod
    def parse(cls, text: str) -> AllocatorSettings:
        """Read a configuration such as `expandable_segments:True,max_split_size_mb:128`.

        Raises:
            AllocatorSettingsError: A value is missing, malformed or outside the limits of PyTorch.
        """
        settings = cls(text=text)
        for key, value in _split_pairs(text):
            reader = _READERS.get(key)
            if reader is not None:
                settings = reader(settings, value)
            elif key in _UNMODELLED:
                settings = replace(settings, unmodelled=(*settings.unmodelled, (key, value)))
            else:
                settings = replace(settings, unknown=(*settings.unknown, (key, value)))
        return settings

    def describe(self) -> str:
        """Describe in a line what differs from the defaults, and what is not modelled or not known."""
        said = [f"{key}:{value}" for key, value in _split_pairs(self.text)] if self.text else ["defaults"]
        notes = [f"{key} has no effect in this model" for key, _ in self.unmodelled]
        notes += [f"{key} is unknown to PyTorch" for key, _ in self.unknown]
        if not self.is_native:
            notes.append("cudaMallocAsync is modelled as the native backend")
        return ", ".join(said) + (f" ({'; '.join(notes)})" if notes else "")


def _split_pairs(text: str) -> list[tuple[str, str]]:
    """Split `key:value,key:[a:b,c:d]` into pairs; white space means nothing."""
    rest = re.sub(r"\s+", "", text)
    pairs = []
    while rest:
        match = re.match(r"([^:,\[\]]+):(\[[^\]]*\]|[^:,\[\]]+)(?:,|$)", rest)
        if match is None:
            raise AllocatorSettingsError(
                f"allocator settings {text!r}: expected key:value pairs separated by commas, got {rest!r}"
            )
        pairs.append((match.group(1), match.group(2)))
        rest = rest[match.end() :]
    return pairs


def _read_max_split(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    size = _read_mebibytes("max_split_size_mb", value, settings.large_segment_bytes // MIB)
    return replace(settings, max_split_bytes=size)


def _read_rounding(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    size = _read_mebibytes("max_non_split_rounding_mb", value, settings.large_segment_bytes // MIB)
    return replace(settings, max_non_split_rounding_bytes=size)


def _read_large_segment(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    return replace(settings, large_segment_bytes=_read_mebibytes("large_segment_size_mb", value, 2))


def _read_threshold(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    threshold = _read_number("garbage_collection_threshold", value)
    if not 0.0 < threshold < 1.0:
        raise _refuse("garbage_collection_threshold", value, "a number above 0 and below 1")
    return replace(settings, garbage_collection_threshold=threshold)


def _read_fraction(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    fraction = _read_number("per_process_memory_fraction", value)
    if not 0.0 <= fraction <= 1.0:
        raise _refuse("per_process_memory_fraction", value, "a number from 0 to 1")
    return replace(settings, memory_fraction=fraction)


def _read_expandable(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    if value not in {"True", "False"}:
        raise _refuse("expandable_segments", value, "True or False")
    return replace(settings, expandable_segments=value == "True")


def _read_backend(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    if value not in {"native", "cudaMallocAsync", "hipMallocAsync"}:
        raise _refuse("backend", value, "native or cudaMallocAsync")
    return replace(settings, is_native=value == "native")


def _read_divisions(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    if not value.startswith("["):
        parts = _read_power_of_two(value)
        return replace(settings, roundup_power2_divisions=(parts,) * ROUNDUP_INTERVALS)
    divisions = list(settings.roundup_power2_divisions)
    last: int | None = None
    for entry in value[1:-1].split(","):
        interval, colon, number = entry.partition(":")
        if not colon:
            raise _refuse(
                "roundup_power2_divisions", value, "a power of two, or a list such as [256:1,512:2,>:4]"
            )
        parts = 0 if number == "0" else _read_power_of_two(number)
        if interval == ">":
            start = 0 if last is None else last + 1
            divisions[start:] = [parts] * (ROUNDUP_INTERVALS - start)
            continue
        index = min(_read_power_of_two(interval).bit_length() - 1, ROUNDUP_INTERVALS - 1)
        divisions[0 if last is None else index : index + 1] = [parts] * (index + 1 if last is None else 1)
        last = index
    return replace(settings, roundup_power2_divisions=tuple(divisions))


def _read_power_of_two(value: str) -> int:
    if not value.isdecimal() or bin(int(value)).count("1") != 1:
        raise _refuse("roundup_power2_divisions", value, "a power of two")
    return int(value)


def _read_mebibytes(key: str, value: str, least: int) -> int:
    if not value.isdecimal() or int(value) < least:
        raise _refuse(key, value, f"a whole number of MiB, at least {least}")
    return int(value) * MIB


def _read_number(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise _refuse(key, value, "a number") from None


def _refuse(key: str, value: str, expected: str) -> AllocatorSettingsError:
    return AllocatorSettingsError(f"allocator settings: {key} is {value!r}, expected {expected}")


_READERS: dict[str, Callable[[AllocatorSettings, str], AllocatorSettings]] = {
    "backend": _read_backend,
    "expandable_segments": _read_expandable,
    "garbage_collection_threshold": _read_threshold,
    "large_segment_size_mb": _read_large_segment,
    "max_non_split_rounding_mb": _read_rounding,
    "max_split_size_mb": _read_max_split,
    "per_process_memory_fraction": _read_fraction,
    "roundup_power2_divisions": _read_divisions,
}
