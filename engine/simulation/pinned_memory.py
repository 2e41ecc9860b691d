"""Pinned host memory: ordinary memory of the host that says that it is pinned, and is counted."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from .storages import storage_of
from .thread_state import HOST, targeting


class PinnedMemory:
    """Storages of the host that a script has pinned."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._references: dict[int, Any] = {}
        self.peak_bytes = 0
        self.allocated = 0
        """How many storages were pinned so far."""

    @property
    def current_bytes(self) -> int:
        """Bytes that are pinned at present."""
        return sum(self._sizes.values())

    @property
    def current(self) -> int:
        """How many storages are pinned at present."""
        return len(self._sizes)

    def pin(self, tensor: Any) -> Any:
        """Return a pinned copy of a tensor of the host, or the tensor where it is pinned already."""
        if self.is_pinned(tensor):
            return tensor
        with targeting(HOST):
            copied = torch.clone(tensor)
        self._hold(storage_of(copied))
        return copied

    def is_pinned(self, tensor: Any) -> bool:
        """Tell whether a tensor lies in pinned memory."""
        try:
            return storage_of(tensor)._cdata in self._sizes
        except (NotImplementedError, RuntimeError):
            return False

    def _hold(self, storage: Any) -> None:
        key = storage._cdata
        self._sizes[key] = storage.nbytes()
        self._references[key] = weakref.ref(storage, lambda _: self._let_go(key))
        self.allocated += 1
        self.peak_bytes = max(self.peak_bytes, self.current_bytes)

    def _let_go(self, key: int) -> None:
        self._sizes.pop(key, None)
        self._references.pop(key, None)
