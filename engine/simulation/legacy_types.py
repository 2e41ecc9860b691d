"""Types of the old interface, `torch.cuda.FloatTensor` and its like: what they make is on a device."""

from __future__ import annotations

from typing import Any

import torch

from .patching import replace

_DTYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "ShortTensor": torch.int16,
    "CharTensor": torch.int8,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}


class LegacyType(type):
    """A type whose instances are all tensors of one dtype on a device."""

    dtype: torch.dtype

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        """Return a tensor of some sizes, or of some data, as the type of the host does."""
        if args and isinstance(args[0], torch.Tensor):
            return args[0].to("cuda" if device is None else device, cls.dtype)
        return getattr(torch, cls.__name__)(*args).cuda(device)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype == cls.dtype


def install() -> None:
    """Put the types in place, and let them be the default type."""
    for name, dtype in _DTYPES.items():
        made = LegacyType(name, (), {"dtype": dtype, "__module__": "torch.cuda"})
        setattr(torch.cuda, name, made)
    replace(torch, "set_default_tensor_type", _make_set_default)


def _make_set_default(original: Any) -> Any:
    def set_default_tensor_type(kind: Any) -> None:
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
        if not name.startswith("torch.cuda."):
            torch.set_default_device(None)
            original(kind)
            return
        torch.set_default_dtype(_DTYPES[name.rsplit(".", 1)[-1]])
        torch.set_default_device("cuda")

    return set_default_tensor_type
