"""A model of PyTorch's CUDA caching allocator: what a training job would hold of a card.

The package is loaded by its path inside a training process too, so it needs nothing but the standard library
of Python 3.9 and imports nothing of vramscope.
"""

from __future__ import annotations

from .allocator import CachingAllocator
from .memory import DeviceMemory, PrivateDeviceMemory
from .replay import ReplayResult, TraceError, bisect_capacity, find_least_capacity, replay
from .settings import (
    AllocatorModelError,
    AllocatorOutOfMemoryError,
    AllocatorSettings,
    AllocatorSettingsError,
    PoolError,
    UnknownAddressError,
)

__all__ = [
    "AllocatorModelError",
    "AllocatorOutOfMemoryError",
    "AllocatorSettings",
    "AllocatorSettingsError",
    "CachingAllocator",
    "DeviceMemory",
    "PoolError",
    "PrivateDeviceMemory",
    "ReplayResult",
    "TraceError",
    "UnknownAddressError",
    "bisect_capacity",
    "find_least_capacity",
    "replay",
]
