"""What CUDA has and the host has not: types of some operations, and pools of memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .devices import targeting, uncharged
from .ledger import tell
from .patching import replace
from .storages import StorageRegistry, storage_of

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_HALVES = (torch.float16, torch.complex32)
_TRANSFORMS = "fft ifft rfft irfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn hfft ihfft"
_NARROW = {torch.float32: torch.float16, torch.complex64: torch.complex32}


def install(registry: StorageRegistry) -> None:
    """Run in a wider type what the host computes in no narrower one; the card is charged for the narrow."""

    def count(original: Any) -> Any:
        def histc(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if tensor.dtype not in _INTEGERS or registry.where_is(tensor) is None:
                return original(tensor, *args, **kwargs)
            return _widen(registry, original, tensor, torch.float64, args, kwargs)

        return histc

    def transform(original: Any) -> Any:
        def run(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if tensor.dtype not in _HALVES or registry.where_is(tensor) is None:
                return original(tensor, *args, **kwargs)
            wide = torch.complex64 if tensor.dtype.is_complex else torch.float32
            return _widen(registry, original, tensor, wide, args, kwargs)

        return run

    replace(torch, "ctc_loss", lambda original: _make_ctc_loss(original, registry))
    for owner in (torch, torch.Tensor):
        replace(owner, "histc", count)
    for name in _TRANSFORMS.split():
        replace(torch.fft, name, transform)
    for owner in (torch.cuda, torch.cuda.memory):
        replace(owner, "MemPool", lambda original: MemoryPool)
        replace(owner, "use_mem_pool", lambda original: _use_pool)


def _make_ctc_loss(original: Any, registry: StorageRegistry) -> Any:
    """CUDA takes targets and lengths from the host too."""

    def ctc_loss(log_probs: Any, *args: Any, **kwargs: Any) -> Any:
        place = registry.where_is(log_probs)
        if place is not None:
            args = tuple(it.cuda(place) if isinstance(it, torch.Tensor) else it for it in args)
        return original(log_probs, *args, **kwargs)

    return ctc_loss


def _widen(
    registry: StorageRegistry, original: Any, tensor: Any, wide: torch.dtype, args: Any, kwargs: Any
) -> Any:
    """Return what CUDA computes in the type of a tensor, or in the narrow type that belongs to the result."""
    place = registry.where_is(tensor)
    with uncharged():
        found = original(tensor.to(wide), *args, **kwargs)
        narrow = tensor.dtype if wide == torch.float64 else _NARROW[found.dtype]
        with targeting(place if place is not None else 0):
            made = found.to(narrow)
    registry.resize(storage_of(made))
    return made


class MemoryPool:
    """A pool of its own for some tensors; here they are in the common one."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.id = (0, 0)
        self.allocator = None

    def use_count(self) -> int:
        return 1

    def snapshot(self, *_: Any, **__: Any) -> list[Any]:
        return []


@contextmanager
def _use_pool(pool: Any, device: Any = None) -> Iterator[None]:
    tell("a torch.cuda.MemPool is the common pool here, so reserved memory may be less than on a GPU")
    yield
