"""The device that this process trains on, found out from its optimizers and its allocations."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Callable

from .backends import NOTHING, Backend, HostBackend, Reading, find_backend
from .base.coordinates import find_meshes
from .base.foreign import Foreign, Module, Optimizer


class TrainingDevice:
    """Knows backend and ordinal, and what else the parameters say of their place.

    The current device of CUDA belongs to a thread and is never asked for: ours would always see the first.

    Args:
        torch: The module.
    """

    def __init__(self, torch: Module) -> None:
        self.torch = torch
        self.backend: Backend | None = None
        self.index: int | None = None
        self.meshes: tuple[Any, ...] = ()
        """The device meshes that the parameters are laid out on."""
        self.read: Callable[[], Reading] = _read_nothing
        """Returns what the allocator says."""
        self._device: Any = None

    @property
    def module(self) -> Foreign:
        """The part of torch that answers for the device, or None."""
        return self.backend.module if self.backend is not None else None

    def note_optimizer(self, optimizer: Optimizer) -> None:
        """Look where the first parameter of an optimizer lives; called by the thread that trains."""
        parameter = next((it for group in optimizer.param_groups for it in group["params"]), None)
        if parameter is None or parameter.device == self._device:
            return
        self._device = parameter.device
        self.meshes = find_meshes(it for group in optimizer.param_groups for it in group["params"])
        self.look()

    def look(self) -> bool:
        """Find the backend and tell whether memory is in use there."""
        type_ = None if self._device is None else str(self._device.type)
        backend = find_backend(self.torch, type_)
        if backend is not None:
            named = self._device.index if type_ == backend.device_type else None
            self.index = backend.find_device() if named is None else named
            self.backend = backend
            self.read = partial(backend.read, self.index)
        return backend is not None

    def look_again(self) -> None:
        """Look whether a process that seemed to train on the host has turned to a device."""
        if self.backend is None or isinstance(self.backend, HostBackend) or self.index is None:
            self.look()

    def describe_others(self) -> str | None:
        """Name in one sentence the devices that hold bytes and are not followed, or return None."""
        held = self.backend.find_held() if self.backend is not None and self.index is not None else {}
        others = [
            f"{_format(bytes_)} on GPU {index}" for index, bytes_ in held.items() if index != self.index
        ]
        if not others:
            return None
        verb = "is" if len(others) == 1 else "are"
        return f"also holds {', '.join(others)}, which {verb} not followed"


def _read_nothing() -> Reading:
    return NOTHING


def _format(bytes_: int) -> str:
    return f"{bytes_ / 2**30:.1f} GiB" if bytes_ >= 2**30 else f"{bytes_ / 2**20:.1f} MiB"


def is_loader_worker() -> bool:
    """Tell whether this process only loads data for another (`torch.utils.data.get_worker_info`)."""
    data = sys.modules.get("torch.utils.data")
    ask = getattr(data, "get_worker_info", None)
    return ask is not None and ask() is not None
