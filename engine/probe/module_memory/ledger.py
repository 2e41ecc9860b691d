"""Bytes by path: what the shapes of tensors come to, beside what their storages hold."""

from __future__ import annotations

from typing import NamedTuple

from ..base.foreign import Foreign, Tensor
from ..base.storages import StorageBytes

REST = "(rest of shared storages)"
"""Path of bytes in storages of several tensors that belong to none of them, as padding."""


class Extent(NamedTuple):
    """Where a tensor of one piece lies."""

    storage: Foreign
    """Equal for tensors that share one."""
    storage_bytes: int
    first: int
    """Offset of its first byte in the storage."""
    size_bytes: int
    """What its shape comes to."""


class Pieces:
    """Finds the storages behind tensors, also of sparse and wrapped ones."""

    def __init__(self) -> None:
        self._storages = StorageBytes()

    def locate(self, tensor: Tensor) -> list[Extent] | None:
        """Return the extents of a tensor, or None where one of its pieces has no storage."""
        if type(tensor) in self._storages.plain and tensor.layout is self._storages.strided:
            return [self._locate_piece(tensor)]  # most are, and quickly told
        try:
            return [self._locate_piece(piece) for piece in self._storages.flatten(tensor)]
        except (NotImplementedError, RuntimeError):
            return None

    def measure_shape(self, tensor: Tensor) -> int:
        """Return element size times elements; of a wrapper, as DTensor, those of the pieces on this rank."""
        pieces = self._storages.flatten(tensor)
        return sum(int(piece.element_size()) * int(piece.numel()) for piece in pieces)

    def _locate_piece(self, piece: Tensor) -> Extent:
        """Return the extent of a tensor of one piece.

        Raises:
            NotImplementedError, RuntimeError: It has no storage, as one of MKL-DNN.
        """
        storage = piece.untyped_storage()
        item_bytes = piece.element_size()
        return Extent(
            self._storages.identify(piece, storage),
            storage.nbytes(),
            piece.storage_offset() * item_bytes,
            piece.numel() * item_bytes,
        )


class Ledger:
    """Bytes by path, computed and measured; each storage is counted once.

    Args:
        pieces: Finds the storages.
    """

    def __init__(self, pieces: Pieces) -> None:
        self.computed: dict[str, int] = {}
        """What shapes come to, in the order of adding."""
        self.measured: dict[str, int | None] = {}
        """What storages hold; None where a tensor has none that PyTorch could tell of."""
        self._pieces = pieces
        self._holders: dict[Foreign, dict[tuple[int, int], str]] = {}
        self._sizes: dict[Foreign, int] = {}

    def add(self, path: str, tensor: Tensor | None, shape_bytes: int | None = None) -> None:
        """Count a tensor under a path.

        Args:
            path: Names joined by dots.
            tensor: What holds the memory; None for nothing.
            shape_bytes: What counts as computed; None for what the tensor's own shape comes to.
        """
        extents = [] if tensor is None else self._pieces.locate(tensor)
        if shape_bytes is None:
            shape_bytes = self._pieces.measure_shape(tensor) if extents is None else _sum_sizes(extents)
        self.computed[path] = self.computed.get(path, 0) + shape_bytes
        self.measured.setdefault(path, 0)
        if extents is None:
            self.measured[path] = None
            return
        for extent in extents:
            self._sizes[extent.storage] = extent.storage_bytes
            holders = self._holders.setdefault(extent.storage, {})
            holders.setdefault((extent.first, extent.size_bytes), path)

    def close(self) -> None:
        """Share out the storages among the tensors in them, once all were added."""
        for storage, holders in self._holders.items():
            left_bytes = self._sizes[storage]
            path = next(iter(holders.values()))
            if len(holders) > 1:
                left_bytes = self._share_out(holders, left_bytes)
                path = f"{path.split('.')[0]}.{REST}"
            if left_bytes:
                self._take(path, left_bytes)
        self._holders.clear()

    def select(self, root: str) -> tuple[dict[str, int], dict[str, int | None]]:
        """Return computed and measured bytes of the paths that begin with a root."""
        prefix = f"{root}."
        computed = {path: size for path, size in self.computed.items() if path.startswith(prefix)}
        measured = {path: size for path, size in self.measured.items() if path.startswith(prefix)}
        return computed, measured

    def _share_out(self, holders: dict[tuple[int, int], str], left_bytes: int) -> int:
        """Give each tensor of a storage its extent; return what is left."""
        for (_, size_bytes), path in holders.items():
            taken = min(size_bytes, left_bytes)
            self._take(path, taken)
            left_bytes -= taken
        return left_bytes

    def _take(self, path: str, size_bytes: int) -> None:
        before = self.measured.get(path, 0)
        if before is not None:
            self.measured[path] = before + size_bytes


def _sum_sizes(extents: list[Extent]) -> int:
    return sum(extent.size_bytes for extent in extents)
