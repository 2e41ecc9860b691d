"""Storages of the simulated device: counted, pinned, copied between host and device."""

from __future__ import annotations

import weakref
from collections.abc import Container
from typing import Any, Callable

import torch

from .card import Card, OutOfMemory
from .devices import HOST, state, targeting

# A storage is the unit: views, in-place operations and aliases share it and are counted once. It is known
# by the address of its C++ object, and a weak reference to its Python object tells when it ends.

# The storage of a tensor, read past every override.
storage_of = torch._C.TensorBase.untyped_storage

# Device of a storage that C++ made without naming one; its first use decides.
UNDECIDED = -3


class StorageRecord(weakref.ref):  # type: ignore[type-arg]
    """One storage that is not plainly on the host."""

    __slots__ = ("address", "card", "device", "key", "size_bytes", "values")

    key: int
    # Ordinal, or UNDECIDED.
    device: int
    # The card with its block; None for what costs nothing.
    card: Card | None
    address: int
    size_bytes: int
    # What it holds, where tensors have no storage and that is known.
    values: Any | None


class StorageRegistry:
    def __init__(self, cards: list[Card], note_growth: Callable[[int], None]) -> None:
        self._note_growth = note_growth
        # By the address of the C++ storage.
        self.records: dict[int, StorageRecord] = {}
        self._cards = cards
        self.is_closed = False

    def card_of(self, device: int) -> Card:
        return self._cards[device]

    def place(self, storage: Any, device: int) -> None:
        """Put a storage on a device; one that is there already stays as it is."""
        key = storage._cdata
        known = self.records.get(key)
        if known is None:
            record = StorageRecord(storage, self._forget)
            record.key = key
            record.device = device
            record.card = record.values = None
            record.address = record.size_bytes = 0
            if device != UNDECIDED:
                self._charge(record, self._cost(storage))
            self.records[key] = record
        elif known.device == UNDECIDED and device != UNDECIDED:
            self._charge(known, self._cost(storage), device)
            known.device = device

    def place_tensor(self, tensor: Any, device: int) -> None:
        """Put the storage of a tensor on a device, or those of its parts if it is sparse."""
        try:
            storage = storage_of(tensor)
        except (NotImplementedError, RuntimeError):
            for part in parts_of(tensor):
                self.place_tensor(part, device)
            return
        if storage._cdata not in self.records:
            self.place(storage, device)

    def decide(self, device: int, known: Container[int]) -> None:
        """Put all undecided storages on a device but those that are known by their keys."""
        for key, record in list(self.records.items()):
            storage = record()
            if key not in known and record.device == UNDECIDED and storage is not None:
                self.place(storage, device)

    def resize(self, storage: Any) -> None:
        """Count a storage whose size may differ; the new block is allocated before the old one is freed."""
        record = self.records.get(storage._cdata)
        if record is None or record.device == UNDECIDED or record.size_bytes == storage.nbytes():
            return
        card = record.card
        address = record.address
        self._charge(record, storage.nbytes())
        if card is not None:
            card.free(address)

    def where_is(self, tensor: Any) -> int | None:
        """Return the ordinal of the device of a tensor; None for the host and everything else."""
        if state.is_inside:
            return None
        try:
            record = self.records.get(storage_of(tensor)._cdata)
        except (NotImplementedError, RuntimeError):
            return next(
                (place for part in parts_of(tensor) if (place := self.where_is(part)) is not None), None
            )
        return None if record is None or record.device == UNDECIDED else record.device

    def record_of(self, tensor: Any) -> StorageRecord | None:
        try:
            return self.records.get(storage_of(tensor)._cdata)
        except (NotImplementedError, RuntimeError):
            return None

    def _charge(self, record: StorageRecord, size_bytes: int, device: int | None = None) -> None:
        """Allocate a block for a storage, unless it costs nothing."""
        if size_bytes == 0:
            record.card = None
            record.address = 0
            record.size_bytes = 0
            return
        device = record.device if device is None else device
        card = self._cards[device]
        record.address = card.allocate(size_bytes, state.streams.get(device, 0))
        record.card = card
        record.size_bytes = size_bytes
        self._note_growth(size_bytes)

    @staticmethod
    def _cost(storage: Any) -> int:
        if state.uncharged:
            return 0
        if state.next_cost_bytes is not None:
            cost = state.next_cost_bytes
            state.next_cost_bytes = None
            return cost
        return int(storage.nbytes())

    def _forget(self, record: StorageRecord) -> None:
        """Free the block of a storage that has ended; runs wherever the last reference was dropped, or in the
        GC.
        """
        if self.records.get(record.key) is record:
            del self.records[record.key]
        if record.card is not None and not self.is_closed:
            record.card.free(record.address)


def parts_of(tensor: Any) -> list[Any]:
    """Return the parts of a tensor without a storage: sparse parts, or what functorch wraps."""
    functorch = torch._C._functorch
    if functorch.is_functorch_wrapped_tensor(tensor):
        return [functorch.get_unwrapped(tensor)]
    layout = tensor.layout
    if layout == torch.sparse_coo:
        return [tensor._values(), tensor._indices()]
    if layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.values(), tensor.crow_indices(), tensor.col_indices()]
    if layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.values(), tensor.ccol_indices(), tensor.row_indices()]
    return []


_to = torch._C.TensorBase.to
_CPU = torch.device("cpu")


class Transfers:
    """Copies tensors between devices."""

    def __init__(self, registry: StorageRegistry) -> None:
        self._registry = registry
        self._function = _make_function(self)

    def where_is(self, tensor: Any) -> int:
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
            return transfers.copy(tensor, target, dtype, memory_format)

        @staticmethod
        def setup_context(context: Any, inputs: Any, output: Any) -> None:
            """Keep where gradients go."""
            context.source = transfers.where_is(inputs[0])
            context.dtype = inputs[0].dtype

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            if transfers.where_is(gradient) == context.source:
                return gradient.to(context.dtype), None, None, None
            return transfers.copy(gradient, context.source, context.dtype), None, None, None

    return Transfer


class PinnedMemory:
    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._references: dict[int, Any] = {}
        self.peak_bytes = 0
        # Storages pinned so far.
        self.allocated = 0

    @property
    def current_bytes(self) -> int:
        return sum(self._sizes.values())

    @property
    def current(self) -> int:
        return len(self._sizes)

    def pin(self, tensor: Any) -> Any:
        """Return a pinned copy of a tensor of the host, or the tensor if it is pinned already."""
        if self.is_pinned(tensor):
            return tensor
        with targeting(HOST):
            copied = torch.clone(tensor)
        self.note(copied)
        return copied

    def note(self, tensor: Any) -> None:
        """Count a tensor of the host as pinned from here on."""
        storage = storage_of(tensor)
        key = storage._cdata
        self._sizes[key] = storage.nbytes()
        self._references[key] = weakref.ref(storage, lambda _: self._let_go(key))
        self.allocated += 1
        self.peak_bytes = max(self.peak_bytes, self.current_bytes)

    def is_pinned(self, tensor: Any) -> bool:
        try:
            return storage_of(tensor)._cdata in self._sizes
        except (NotImplementedError, RuntimeError):
            return False

    def _let_go(self, key: int) -> None:
        self._sizes.pop(key, None)
        self._references.pop(key, None)
