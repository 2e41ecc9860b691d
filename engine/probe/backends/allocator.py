"""CUDA, ROCm and XPU: a module of torch with the statistics of a caching allocator."""

from __future__ import annotations

import os
from typing import Any

from ..base.foreign import Foreign, Module
from .backend import Backend
from .reading import NOTHING, Reading, flatten, read_flat, read_nested

_MOST_DEVICES = 64
_EXPANDABLE = "expandable_segments:true"
_MOST_REFUSALS = 3
"""In a row, after which the allocator is not asked again: it has no statistics, and each refusal is dear."""


class AllocatorBackend(Backend):
    """Reads `torch.cuda`, or what answers by the same names.

    The nested statistics are read where there are any: to make the flat ones PyTorch sorts 120 texts while
    it holds the interpreter's lock.

    Only made once the program has initialised the runtime.

    Args:
        module: `torch.cuda` or `torch.xpu`.
        name: What the hub calls it.
        device_type: What `torch.device.type` calls it.
    """

    def __init__(self, module: Module, name: str, device_type: str) -> None:
        self.module = module
        self.name = name
        self.device_type = device_type
        nested = getattr(module, "memory_stats_as_nested_dict", None)
        self._ask: Foreign = getattr(module, "memory_stats", _say_nothing) if nested is None else nested
        self._understand = read_flat if nested is None else read_nested
        self._refusals = 0
        self._pinned = _find_pinned(module)
        self._is_asynchronous = _is_asynchronous(module)
        self._is_expandable = _EXPANDABLE in allocator_settings().lower().replace(" ", "")
        self._is_partial = self._is_asynchronous or self._is_expandable

    def is_in_use(self) -> bool:
        """Tell whether any device holds bytes of this process, or the allocator will not say."""
        return self.find_device() is not None or bool(self._refusals)

    def find_device(self) -> int | None:
        """Return the ordinal of the device with most allocated bytes, of those that have any.

        Where the allocator tells nothing, the only device there is.
        """
        readings = self.read_all()
        held = [(reading.allocated_bytes or 0, -index) for index, reading in enumerate(readings)]
        most, negative = max(held, default=(0, 0))
        if self._refusals and len(readings) == 1:
            return 0
        return -negative if most else None

    def find_held(self) -> dict[int, int]:
        """Return bytes that the allocator holds by ordinal, of the devices where it holds any."""
        held = {
            index: it.reserved_bytes or it.allocated_bytes or 0 for index, it in enumerate(self.read_all())
        }
        return {index: bytes_ for index, bytes_ in held.items() if bytes_}

    def read(self, device: int | None) -> Reading:
        """Return the figures of a reading; those that nobody counts are left out.

        The figures are taken out at once, while the dicts that PyTorch made are in the caches: to keep those
        and let them go later costs as much again as to make them.
        """
        if device is None:
            return NOTHING
        try:
            reading = self._understand(self._ask(device))
        except RuntimeError:
            self._note_refusal()
            return NOTHING
        if self._refusals and self._ask is not _say_nothing:
            self._refusals = 0
        return self._correct(reading) if self._is_partial else reading

    def read_all(self) -> list[Reading]:
        """Return the figures of every device, by ordinal."""
        count = min(int(self.module.device_count()), _MOST_DEVICES)
        return [self.read(index) for index in range(count)]

    def read_pinned(self) -> int | None:
        """Return bytes of pinned host memory that the caching host allocator holds, in use or cached.

        PyTorch has used one name for two things: beside `active_bytes`, `allocated_bytes` is what is held;
        without it `allocated_bytes` is what is in use, and `reserved_bytes` what is held.
        """
        if self._pinned is None:
            return None
        try:
            stats = self._pinned()
        except RuntimeError:
            return None
        has_active = "active_bytes" in stats or "active_bytes.current" in stats
        name = "allocated_bytes" if has_active else "reserved_bytes"
        held = stats.get(name)
        if isinstance(held, dict):
            held = held.get("all", held).get("current")
        found: int | None = held if held is not None else stats.get(f"{name}.current")
        return found

    def read_statistics(self, device: int | None) -> dict[str, Any]:
        """Return every statistic of the allocator, flat."""
        try:
            return {} if device is None else flatten(self._ask(device))
        except RuntimeError:
            self._note_refusal()
            return {}

    def note(self) -> str | None:
        """Say where the allocator leaves figures out."""
        if self._refusals:
            return "the allocator of this process tells nothing of what it holds"
        if self._is_asynchronous:
            return "the allocator is cudaMallocAsync, which tells allocated and reserved bytes only"
        return None

    def _note_refusal(self) -> None:
        """Count a RuntimeError: what an allocator that is plugged in raises.

        As that of RMM, by `torch.cuda.memory.CUDAPluggableAllocator`.
        """
        self._refusals += 1
        if self._refusals >= _MOST_REFUSALS:
            self._ask = _say_nothing

    def _correct(self, reading: Reading) -> Reading:
        """Take out figures that are 0 because nobody counts them."""
        if self._is_asynchronous:
            return Reading(
                allocated_bytes=reading.allocated_bytes,
                reserved_bytes=reading.reserved_bytes,
                peak_bytes=reading.peak_bytes,
            )
        if self._is_expandable and reading.inactive_split_bytes == 0:
            return reading._replace(inactive_split_bytes=None)
        return reading


def allocator_settings() -> str:
    """Return the settings of PyTorch's allocator in the environment, or an empty text."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _say_nothing(_device: int) -> dict[str, Any]:
    return {}


def _find_pinned(module: Module) -> Foreign:
    nested = getattr(module, "host_memory_stats_as_nested_dict", None)
    return nested if nested is not None else getattr(module, "host_memory_stats", None)


def _is_asynchronous(module: Module) -> bool:
    ask = getattr(module, "get_allocator_backend", None)
    try:
        return ask is not None and ask() == "cudaMallocAsync"
    except (AttributeError, RuntimeError):
        # A CPU build has the name and nothing behind it.
        return False
