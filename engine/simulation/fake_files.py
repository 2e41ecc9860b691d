"""Saving and loading without values: files have the shapes of tensors, and take next to no room.

What `torch.save` writes can be loaded within such a job alone. Files of safetensors have their full length,
as a hole without blocks on the disk, and read as zeros.
"""

from __future__ import annotations

import json
import sys
from importlib.machinery import PathFinder
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .ledger import tell
from .patching import replace
from .stand_ins import read_value

_SAFETENSORS = "safetensors.torch"
# Bits by which addresses of storages are apart from those of the small objects that stand for them.
_ADDRESS_SHIFT = 16
# Names of types in a file of safetensors (https://github.com/safetensors/safetensors).
_TYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
    getattr(torch, "float8_e4m3fn", None): "F8_E4M3",
    getattr(torch, "float8_e5m2", None): "F8_E5M2",
}


def install() -> None:
    """Let fake tensors be saved and loaded."""
    FakeTensor.__reduce_ex__ = _reduce
    torch.serialization.add_safe_globals([rebuild])
    # Libraries that look for tied weights compare these; each storage is at an address of its own, far enough
    # from the next one that views of one are not where another begins.
    replace(torch.UntypedStorage, "data_ptr", _make_data_ptr)
    # FSDP compares those of tensors to find what it has still gathered after a backward pass: PyTorch's own
    # 0 for all of them would mean nothing, and memory that FSDP frees would stay.
    FakeTensor.data_ptr = _find_address
    if _SAFETENSORS in sys.modules:
        _replace_savers(sys.modules[_SAFETENSORS])
    else:
        sys.meta_path.insert(0, _Finder())


def _make_data_ptr(original: Any) -> Any:
    find_device = torch._C.StorageBase.device.__get__

    def data_ptr(storage: Any) -> int:
        # PyTorch warns who asks a fake tensor's storage for its address, which is 0.
        address = 0 if find_device(storage).type == "meta" else original(storage)
        return int(address or storage._cdata << _ADDRESS_SHIFT)

    return data_ptr


def _find_address(tensor: Any) -> int:
    """Return where a tensor begins in the address of its storage; 0 for an empty one, as PyTorch does."""
    if not tensor.numel():
        return 0
    begin = tensor.untyped_storage().data_ptr()
    return int(begin + tensor.storage_offset() * tensor.element_size())


def _reduce(tensor: Any, protocol: int) -> Any:
    """Save a fake tensor by its shape and the value that stands for each of its elements."""
    tell("with --fake, what is saved has the shapes of tensors and no values")
    sizes = (tuple(tensor.shape), tuple(tensor.stride()))
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    place = str(tensor.device)
    return rebuild, (*sizes, tensor.dtype, place, read_value(tensor), tensor.requires_grad, is_parameter)


def rebuild(
    shape: Any, stride: Any, dtype: Any, place: str, value: Any, requires_grad: bool, is_parameter: bool
) -> Any:
    """Make a tensor that was saved without values; called by `torch.load`."""
    device = torch._utils._get_restore_location(place)
    made = torch.empty_strided(shape, stride, dtype=dtype, device=device).fill_(value)
    return torch.nn.Parameter(made, requires_grad) if is_parameter else made.requires_grad_(requires_grad)


class _Finder:
    """Calls us when safetensors has been imported; finds no module itself."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _SAFETENSORS:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_replace(module: Any) -> None:
                run(module)
                _replace_savers(module)

            spec.loader.exec_module = run_and_replace  # type: ignore[method-assign]
        return spec


def _replace_savers(module: Any) -> None:
    def make_save_file(original: Any) -> Any:
        def save_file(tensors: Any, filename: Any, metadata: Any = None) -> None:
            if not _holds_fake(tensors):
                original(tensors, filename, metadata)
                return
            header, length = _describe(tensors, metadata)
            with Path(filename).open("wb") as file:
                file.write(header)
                file.truncate(len(header) + length)

        return save_file

    def make_save(original: Any) -> Any:
        def save(tensors: Any, metadata: Any = None) -> bytes:
            if not _holds_fake(tensors):
                saved: bytes = original(tensors, metadata)
                return saved
            header, length = _describe(tensors, metadata)
            return header + bytes(length)

        return save

    replace(module, "save_file", make_save_file)
    replace(module, "save", make_save)


def _holds_fake(tensors: Any) -> bool:
    return any(isinstance(it, FakeTensor) for it in tensors.values())


def _describe(tensors: Any, metadata: Any) -> tuple[bytes, int]:
    """Return the head of a file of safetensors, and the length of what follows."""
    tell("with --fake, what is saved has the shapes of tensors and no values")
    found: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    begin = 0
    for name, tensor in tensors.items():
        end = begin + prod(tensor.shape) * tensor.dtype.itemsize
        found[name] = {"dtype": _TYPES[tensor.dtype], "shape": [*tensor.shape], "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(found).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, begin
