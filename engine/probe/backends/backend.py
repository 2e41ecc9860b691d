"""What every backend answers; and the one of processes that train on the host."""

from __future__ import annotations

from typing import Any

from ..base.foreign import Module
from .reading import NOTHING, Reading


class Backend:
    """Answers about one kind of device. No call may create a context or wait for the device."""

    name: str | None = None
    """As the hub knows it: `cuda`, `rocm`, `xpu`, `mps` or `cpu`; None for another accelerator."""
    device_type: str = "cpu"
    """As `torch.device.type` spells it."""
    module: Module = None
    """The part of torch that answers for it (`torch.cuda`), or None."""

    def is_in_use(self) -> bool:
        """Tell whether the process holds memory there already."""
        return False

    def find_device(self) -> int | None:
        """Return the ordinal of the device that holds most of this process's bytes."""
        return None

    def find_held(self) -> dict[int, int]:
        """Return bytes that the allocator holds by ordinal, of the devices where it holds any."""
        return {}

    def read(self, device: int | None) -> Reading:
        """Return what the allocator of a device says."""
        return NOTHING

    def read_all(self) -> list[Reading]:
        """Return what the allocators of all devices say."""
        return []

    def read_pinned(self) -> int | None:
        """Return bytes of pinned host memory."""
        return None

    def read_statistics(self, device: int | None) -> dict[str, Any]:
        """Return every statistic of the allocator, flat."""
        return {}

    def note(self) -> str | None:
        """Return what a reader of the figures should know, in one sentence."""
        return None


class HostBackend(Backend):
    """A process that trains on the host: only its resident memory can be told."""

    name = "cpu"
