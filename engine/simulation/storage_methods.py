"""What a storage answers about its device, how it is made and resized; `torch.save` stands on it."""

from __future__ import annotations

from typing import Any

import torch

from .devices import Devices
from .patching import replace
from .storages import StorageRegistry
from .thread_state import HOST

_base = torch._C.StorageBase


class StorageMethods:
    """Gives every storage the answers that CUDA would give."""

    def __init__(self, devices: Devices, registry: StorageRegistry) -> None:
        self._devices = devices
        self._registry = registry

    def install(self) -> None:
        """Put the answers in place."""
        records = self._registry.records
        names = self._devices.names
        real_device = torch.UntypedStorage.device.__get__

        def device(storage: Any) -> Any:
            record = records.get(storage._cdata)
            return real_device(storage) if record is None or record.device < 0 else names[record.device]

        torch.UntypedStorage.device = property(device)
        torch.UntypedStorage.__new__ = staticmethod(self._make)
        replace(torch.UntypedStorage, "resize_", self._make_resize)
        replace(torch.UntypedStorage, "is_shared", self._make_is_shared)

    def _make(self, cls: Any, *args: Any, **kwargs: Any) -> Any:
        """Make a storage where it is asked for; its content is whatever was there."""
        device = kwargs.get("device")
        target = HOST if device is None else self._devices.resolve(device)
        if target < 0:
            return _base.__new__(cls, *args, **kwargs)
        kwargs["device"] = "cpu"
        made = _base.__new__(cls, *args, **kwargs)
        self._registry.place(made, target)
        return made

    def _make_resize(self, original: Any) -> Any:
        def resize(storage: Any, size_bytes: int) -> Any:
            resized = original(storage, size_bytes)
            self._registry.resize(storage)
            return resized

        return resize

    def _make_is_shared(self, original: Any) -> Any:
        def is_shared(storage: Any) -> bool:
            return storage._cdata in self._registry.records or bool(original(storage))

        return is_shared
