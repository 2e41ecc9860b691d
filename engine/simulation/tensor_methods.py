"""What a tensor answers about its device, and how it is moved."""

from __future__ import annotations

from typing import Any

import torch

from .devices import ELSEWHERE, Devices
from .legacy_types import LegacyType
from .patching import replace
from .pinned_memory import PinnedMemory
from .storages import StorageRegistry, storage_of
from .thread_state import HOST, targeting
from .transfers import Transfers

_base = torch._C.TensorBase
_CPU = torch.device("cpu")


class TensorMethods:
    """Gives every tensor the answers that CUDA would give."""

    def __init__(
        self, devices: Devices, registry: StorageRegistry, transfers: Transfers, pinned: PinnedMemory
    ) -> None:
        self._devices = devices
        self._registry = registry
        self._transfers = transfers
        self._pinned = pinned

    def install(self) -> None:
        """Put the answers in place, on the class that all tensors share."""
        self._install_properties()
        replace(torch.Tensor, "to", self._make_to)
        replace(torch.Tensor, "cuda", self._make_cuda)
        replace(torch.Tensor, "cpu", self._make_cpu)
        replace(torch.Tensor, "type", self._make_type)
        replace(torch.Tensor, "get_device", self._make_get_device)
        replace(torch, "get_device", self._make_get_device)
        replace(torch.Tensor, "numpy", self._make_host_only)
        replace(torch.Tensor, "__array__", self._make_host_only)
        replace(torch.Tensor, "pin_memory", self._make_pin_memory)
        replace(torch.Tensor, "is_pinned", self._make_is_pinned)
        replace(torch.Tensor, "record_stream", self._make_record_stream)

    def _install_properties(self) -> None:
        records = self._registry.records
        names = self._devices.names
        where_is = self._registry.where_is
        real_device = _base.device.__get__
        real_is_cpu = _base.is_cpu.__get__

        def device(tensor: Any) -> Any:
            try:
                record = records.get(storage_of(tensor)._cdata)
            except (NotImplementedError, RuntimeError):
                place = where_is(tensor)
                return real_device(tensor) if place is None else names[place]
            return real_device(tensor) if record is None or record.device < 0 else names[record.device]

        torch.Tensor.device = property(device)
        torch.Tensor.is_cuda = property(lambda tensor: where_is(tensor) is not None)
        torch.Tensor.is_cpu = property(lambda tensor: where_is(tensor) is None and real_is_cpu(tensor))

    def _make_to(self, original: Any) -> Any:
        def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            device, dtype, rest, options = _read_to(args, kwargs)
            if device is None:
                return original(tensor, *args, **kwargs)
            target = self._devices.resolve(device)
            source = self._transfers.where_is(tensor)
            if target == ELSEWHERE:
                with targeting(HOST):  # what is made, on `meta`, is on no card
                    return original(tensor, *args, **kwargs)
            if target == HOST and source == HOST:
                return original(tensor, *args, **kwargs)
            if target == source:
                return original(tensor, dtype or tensor.dtype, *rest, **options)
            return self._transfers.move(tensor, target, dtype, options.get("memory_format"))

        return to

    def _make_cuda(self, original: Any) -> Any:
        def cuda(
            tensor: Any,
            device: Any = None,
            non_blocking: bool = False,
            memory_format: torch.memory_format | None = None,
        ) -> Any:
            target = self._devices.resolve("cuda" if device is None else device)
            if target == HOST:
                raise RuntimeError("Invalid device, must be cuda device")
            if target == self._transfers.where_is(tensor):
                return tensor
            return self._transfers.move(tensor, target, None, memory_format)

        return cuda

    def _make_cpu(self, original: Any) -> Any:
        def cpu(tensor: Any, memory_format: torch.memory_format | None = None) -> Any:
            if self._transfers.where_is(tensor) == HOST:
                return original(tensor) if memory_format is None else original(tensor, memory_format)
            return self._transfers.move(tensor, HOST, None, memory_format)

        return cpu

    def _make_type(self, original: Any) -> Any:
        def type_(tensor: Any, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
            if dtype is None:
                name: str = original(tensor)
                # Where a function mode is active, torch comes here a second time.
                is_simulated = self._transfers.where_is(tensor) != HOST and ".cuda." not in name
                return name.replace("torch.", "torch.cuda.", 1) if is_simulated else name
            if isinstance(dtype, LegacyType):
                dtype = f"torch.cuda.{dtype.__name__}"
            name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", "")
            if isinstance(dtype, str) and name.startswith("torch.cuda."):
                return original(tensor.cuda(), name.replace("torch.cuda.", "torch.", 1))
            if isinstance(dtype, str) and self._transfers.where_is(tensor) != HOST:
                return original(tensor.cpu(), dtype)
            return original(tensor, dtype, non_blocking, **kwargs)

        return type_

    def _make_get_device(self, original: Any) -> Any:
        def get_device(tensor: Any) -> int:
            place = self._registry.where_is(tensor)
            return int(original(tensor)) if place is None else place

        return get_device

    def _make_host_only(self, original: Any) -> Any:
        def convert(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            place = self._registry.where_is(tensor)
            if place is not None:
                raise TypeError(
                    f"can't convert cuda:{place} device type tensor to numpy. "
                    "Use Tensor.cpu() to copy the tensor to host memory first."
                )
            return original(tensor, *args, **kwargs)

        return convert

    def _make_pin_memory(self, original: Any) -> Any:
        def pin_memory(tensor: Any, device: Any = None) -> Any:
            if self._registry.where_is(tensor) is not None:
                raise RuntimeError(f"cannot pin '{tensor.type()}' only dense CPU tensors can be pinned")
            return self._pinned.pin(tensor)

        return pin_memory

    def _make_is_pinned(self, original: Any) -> Any:
        return lambda tensor, device=None: self._pinned.is_pinned(tensor)

    def _make_record_stream(self, original: Any) -> Any:
        def record_stream(tensor: Any, stream: Any) -> None:
            record = self._registry.record_of(tensor)
            if record is not None and record.card is not None:
                record.card.allocator.record_stream(record.address, stream.stream_id)

        return record_stream


def _read_to(args: Any, kwargs: Any) -> tuple[Any, Any, tuple[Any, ...], dict[str, Any]]:
    """Return device, dtype, further positional and named arguments of a call of `Tensor.to`."""
    options = dict(kwargs)
    device = options.pop("device", None)
    dtype = options.pop("dtype", None)
    other = options.pop("other", None)
    rest = tuple(args)
    if rest and isinstance(rest[0], torch.Tensor):
        other = rest[0]
        rest = rest[1:]
    elif rest and isinstance(rest[0], torch.dtype):
        dtype = rest[0]
        rest = rest[1:]
    elif rest:
        device = rest[0]
        rest = rest[1:]
        if rest and (rest[0] is None or isinstance(rest[0], torch.dtype)):
            dtype = rest[0]
            rest = rest[1:]
    if other is not None:
        device = other.device
        dtype = other.dtype
    return device, dtype, rest, options
