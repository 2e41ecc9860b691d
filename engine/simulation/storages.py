"""Which storages are on a simulated device, and the blocks of the card that they hold.

A storage is the unit: views, in-place operations and aliases share it and are counted once. It is known by
the address of its C++ object, and a weak reference to its Python object tells when it ends.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable

import torch

from .card import Card
from .devices import state

storage_of = torch._C.TensorBase.untyped_storage
"""The storage of a tensor, read past every override."""

UNDECIDED = -3
"""Where a storage is that C++ made without naming a device; it goes where it is first used."""


class StorageRecord(weakref.ref):  # type: ignore[type-arg]
    """One storage that is not plainly on the host."""

    __slots__ = ("address", "card", "device", "key", "size_bytes")

    key: int
    device: int
    """Ordinal of its device, or UNDECIDED."""
    card: Card | None
    """The card that holds its block; None for what costs nothing."""
    address: int
    size_bytes: int


class StorageRegistry:
    """All storages on simulated devices."""

    def __init__(self, cards: list[Card], note_growth: Callable[[int], None]) -> None:
        self._note_growth = note_growth
        self.records: dict[int, StorageRecord] = {}
        """By the address of the C++ storage."""
        self._cards = cards
        self.is_closed = False

    def card_of(self, device: int) -> Card:
        return self._cards[device]

    def place(self, storage: Any, device: int) -> None:
        """Put a storage on a device; one that is there already stays as it is.

        Raises:
            torch.OutOfMemoryError: The card has no room.
        """
        key = storage._cdata
        known = self.records.get(key)
        if known is None:
            record = StorageRecord(storage, self._forget)
            record.key = key
            record.device = device
            record.card = None
            record.address = record.size_bytes = 0
            if device != UNDECIDED:
                self._charge(record, self._cost(storage))
            self.records[key] = record
        elif known.device == UNDECIDED and device != UNDECIDED:
            self._charge(known, self._cost(storage), device)
            known.device = device

    def place_tensor(self, tensor: Any, device: int) -> None:
        """Put what a tensor is made of on a device: its storage, or those of its parts where it is sparse."""
        try:
            storage = storage_of(tensor)
        except (NotImplementedError, RuntimeError):
            for part in parts_of(tensor):
                self.place_tensor(part, device)
            return
        if storage._cdata not in self.records:
            self.place(storage, device)

    def resize(self, storage: Any) -> None:
        """Follow a storage that may have another size: the new block is taken before the old one is freed.

        Raises:
            torch.OutOfMemoryError: The card has no room for the new block.
        """
        record = self.records.get(storage._cdata)
        if record is None or record.device == UNDECIDED or record.size_bytes == storage.nbytes():
            return
        card = record.card
        address = record.address
        self._charge(record, storage.nbytes())
        if card is not None:
            card.free(address)

    def where_is(self, tensor: Any) -> int | None:
        """Return the ordinal of the device a tensor is on; None for the host and everything else."""
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
        """Return the record of a tensor's storage, if it has one."""
        try:
            return self.records.get(storage_of(tensor)._cdata)
        except (NotImplementedError, RuntimeError):
            return None

    def _charge(self, record: StorageRecord, size_bytes: int, device: int | None = None) -> None:
        """Take a block for a storage, unless it costs nothing."""
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
        """Free the block of a storage that has ended; runs wherever the last reference went, or in the GC."""
        if self.records.get(record.key) is record:
            del self.records[record.key]
        if record.card is not None and not self.is_closed:
            record.card.free(record.address)


def parts_of(tensor: Any) -> list[Any]:
    """Return what a tensor without a storage is made of: sparse parts, or what functorch wraps."""
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
