"""Accelerators that tell less than CUDA does: whatever `torch.accelerator` fronts, and MPS."""

from __future__ import annotations

from typing import Any

from ..base.foreign import Module
from .backend import Backend
from .reading import NOTHING, Reading, read_flat


class AcceleratorBackend(Backend):
    """Reads `torch.accelerator`, which answers for the one accelerator that this build of torch has.

    Args:
        accelerator: The module `torch.accelerator`.
        module: The device's own part of torch (`torch.xpu`).
        device_type: What `torch.device.type` calls it.
    """

    def __init__(self, accelerator: Module, module: Module, device_type: str) -> None:
        self.module = module
        self.device_type = device_type
        self.name = device_type if device_type in {"xpu", "mps"} else None
        self._accelerator = accelerator

    def is_in_use(self) -> bool:
        """Tell whether any device holds bytes of this process."""
        return self.find_device() is not None

    def find_device(self) -> int | None:
        """Return the ordinal of the first device that holds bytes."""
        for index in range(int(self._accelerator.device_count())):
            if self.read(index).allocated_bytes:
                return index
        return None

    def read(self, device: int | None) -> Reading:
        """Return what `torch.accelerator.memory_stats` says; nothing before the first allocation."""
        return NOTHING if device is None else read_flat(self._accelerator.memory_stats(device))

    def read_statistics(self, device: int | None) -> dict[str, Any]:
        """Return every statistic of the allocator, flat."""
        return {} if device is None else dict(self._accelerator.memory_stats(device))

    def note(self) -> str | None:
        """Name an accelerator that has no name in the protocol."""
        return None if self.name else f"the tensors live on the accelerator {self.device_type}"


class MetalBackend(Backend):
    """Reads `torch.mps`: allocated bytes, and what the driver holds for them; it keeps no peak."""

    name = "mps"
    device_type = "mps"

    def __init__(self, module: Module) -> None:
        self.module = module

    def is_in_use(self) -> bool:
        """Tell whether tensors live there; asked only once parameters were seen there."""
        return bool(self.module.current_allocated_memory())

    def find_device(self) -> int | None:
        """Return the only ordinal there is."""
        return 0

    def read(self, device: int | None) -> Reading:
        """Return allocated bytes, and the driver's, which include the cache."""
        allocated = self.module.current_allocated_memory()
        held = self.module.driver_allocated_memory()
        return Reading(allocated_bytes=int(allocated), reserved_bytes=int(held))
