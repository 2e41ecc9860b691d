"""Bytes of the storages behind tensors, each counted once: plain, sparse, wrapped and fake ones."""

from __future__ import annotations

import sys
from typing import Any

from .foreign import Foreign, Storage, Tensor

_COMPRESSED = ("crow_indices", "col_indices", "values")
_COMPRESSED_COLUMNS = ("ccol_indices", "row_indices", "values")
# Methods that return the parts of a sparse tensor, by its layout.
_SPARSE_PARTS = {
    # With an underscore: those without raise for gradients with several entries for one row.
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": _COMPRESSED,
    "torch.sparse_bsr": _COMPRESSED,
    "torch.sparse_csc": _COMPRESSED_COLUMNS,
    "torch.sparse_bsc": _COMPRESSED_COLUMNS,
}


class StorageBytes:
    """Adds up the bytes of storages under names, each storage under the first one."""

    def __init__(self) -> None:
        self._bytes: dict[str, int | None] = {}
        self._met: set[Any] = set()
        torch = sys.modules.get("torch")
        neural = getattr(torch, "nn", None)
        # Types of tensors that are neither wrappers nor fake: most tensors, and quicker to read.
        self.plain = {getattr(torch, "Tensor", None), getattr(neural, "Parameter", None)}
        fake = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", None)
        self._fake: tuple[Foreign, ...] = () if fake is None else (fake,)
        self.strided: Foreign = getattr(torch, "strided", None)

    def add(self, name: str, tensor: Tensor) -> None:
        """Count a tensor, or None for none; a sum with one that has no storage is unmeasured from then on."""
        if tensor is None:
            return
        counted = self._count(tensor)
        before = self._bytes.get(name, 0)
        self._bytes[name] = None if counted is None or before is None else before + counted

    def find(self, name: str, default: int | None) -> int | None:
        """Return the bytes under a name, or the default if nothing was counted under it."""
        return self._bytes.get(name, default)

    def flatten(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of one piece of a tensor: itself, or those inside a wrapper."""
        parts = self._list_parts(tensor)
        return [tensor] if parts is None else [piece for part in parts for piece in self.flatten(part)]

    def _count(self, tensor: Tensor) -> int | None:
        parts = self._list_parts(tensor)
        if parts is not None:
            counted = [self._count(part) for part in parts]
            return None if None in counted else sum(each or 0 for each in counted)
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            # As of MKL-DNN, whose memory PyTorch does not know.
            return None
        key = self.identify(tensor, storage)
        if key in self._met:
            return 0
        self._met.add(key)
        return int(storage.nbytes())

    def identify(self, tensor: Tensor, storage: Storage) -> Foreign:
        """Return the key of a storage: its address, or its own object if it has no memory.

        To ask a fake one for its address makes PyTorch warn. It is on the device `meta`, or on a simulated
        card by what it says.
        """
        is_plain = type(tensor) in self.plain
        if is_plain or not (isinstance(tensor, self._fake) or storage.device.type == "meta"):
            address = storage.data_ptr()
            if address:
                return address
        return ("storage", getattr(storage, "_cdata", id(storage)))

    def _list_parts(self, tensor: Tensor) -> list[Tensor] | None:
        """Return the tensors inside this one, or None if it is of one piece."""
        kind = type(tensor)
        if kind not in self.plain and hasattr(kind, "__tensor_flatten__"):
            # A wrapper, as DTensor: its bytes are those of the tensors inside it. Newer versions of PyTorch
            # (seen with 2.13) also name the mesh of devices, which is no tensor.
            inside = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
            return [part for part in inside if hasattr(part, "untyped_storage")]
        layout = getattr(tensor, "layout", None)
        names = None if layout is self.strided else _SPARSE_PARTS.get(str(layout))
        if names is None:
            return None
        # Detached, because to ask a parameter for its values would be recorded for the backward pass.
        plain = tensor.detach()
        return [getattr(plain, name)() for name in names]
