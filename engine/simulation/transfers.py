"""Copies between the host and devices, which on one host must be real copies to keep their own values."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from .card import OutOfMemory
from .devices import HOST, targeting
from .storages import StorageRegistry, storage_of

_to = torch._C.TensorBase.to
_CPU = torch.device("cpu")


class Transfers:
    """Moves tensors to where they are asked for."""

    def __init__(self, registry: StorageRegistry) -> None:
        self._registry = registry
        self._function = _make_function(self)

    def where_is(self, tensor: Any) -> int:
        """Return the ordinal of a tensor's device, or HOST."""
        place = self._registry.where_is(tensor)
        return HOST if place is None else place

    def move(
        self,
        tensor: Any,
        target: int,
        dtype: torch.dtype | None = None,
        memory_format: torch.memory_format | None = None,
    ) -> Any:
        """Return a copy of a tensor on another device; gradients come back to the first."""
        if tensor.requires_grad and torch.is_grad_enabled():
            return self._function.apply(tensor, target, dtype, memory_format)
        try:
            return self.copy(tensor, target, dtype, memory_format)
        except OutOfMemory as error:
            raise error.with_traceback(None) from None

    def copy(
        self,
        tensor: Any,
        target: int,
        dtype: torch.dtype | None = None,
        memory_format: torch.memory_format | None = None,
    ) -> Any:
        """Return a copy of a tensor on another device, without its history."""
        options: dict[str, Any] = {"copy": True}
        if memory_format is not None:
            options["memory_format"] = memory_format
        with targeting(target):
            copied = _to(tensor, _CPU, dtype or tensor.dtype, **options)
            if target != HOST:
                self._registry.place_tensor(copied, target)
        return copied


def _make_function(transfers: Transfers) -> Any:
    """Return the autograd function that copies there, and gradients back."""

    class Transfer(torch.autograd.Function):
        """A copy to another device."""

        generate_vmap_rule = True

        @staticmethod
        def forward(tensor: Any, target: int, dtype: Any, memory_format: Any) -> Any:
            """Copy."""
            return transfers.copy(tensor, target, dtype, memory_format)

        @staticmethod
        def setup_context(context: Any, inputs: Any, output: Any) -> None:
            """Keep where gradients go."""
            context.source = transfers.where_is(inputs[0])
            context.dtype = inputs[0].dtype

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            """Copy the gradient back."""
            if transfers.where_is(gradient) == context.source:
                return gradient.to(context.dtype), None, None, None
            return transfers.copy(gradient, context.source, context.dtype), None, None, None

    return Transfer


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
