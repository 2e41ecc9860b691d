"""The values of small tensors of whole numbers and flags, kept as long as all that they come from is known.

Masks, positions, lengths and labels decide which way a program goes and how large its selections are. They
come from the host or from counting, so that they can be computed there for next to nothing, while tensors of
floating-point numbers have no values.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .devices import state
from .storages import StorageRecord, StorageRegistry, storage_of

# Most numbers in a storage whose values are kept.
MOST_NUMBERS = 1 << 16
# Operations that write every number of their first argument.
_OVERWRITING = ("copy_", "fill_", "zero_")


class _Unknown(Exception):  # noqa: N818 - not an error
    """A value that something depends on is not known."""


class ExactValues:
    """Follows operations, with the values at the record of each storage on a card."""

    def __init__(self, registry: StorageRegistry) -> None:
        self._registry = registry

    def find(self, tensor: Any) -> Any:
        """Return a tensor of the host with the values of one on the card; None if they are not known."""
        if not isinstance(tensor, FakeTensor):
            return tensor if type(tensor) is torch.Tensor and tensor.numel() <= MOST_NUMBERS else None
        record = self._registry.record_of(tensor)
        values = None if record is None else record.values
        if values is None or values.dtype != tensor.dtype:
            return None
        with torch._C._DisableTorchDispatch():
            return values.as_strided(tuple(tensor.shape), tensor.stride(), tensor.storage_offset())

    def compute(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Return what an operation gives for values that are known; None if they are not."""
        if not _is_computable(function):
            return None
        try:
            known = self._find_all(args)
            named = dict(zip(kwargs, self._find_all(kwargs.values())))
            with torch._C._DisableTorchDispatch(), torch.no_grad():
                return function(*known, **named)
        except (_Unknown, ArithmeticError, IndexError, RuntimeError, TypeError, ValueError):
            return None

    def follow(self, function: Any, args: Any, kwargs: Any, made: Any) -> None:
        """Keep the values of what an operation has made or written; called when that is on its card."""
        is_one = type(made) is FakeTensor
        if is_one and (made.dtype.is_floating_point or made.dtype.is_complex):
            return
        schema = getattr(function, "_schema", None)
        if schema is None:
            return
        if schema.is_mutable and not (is_one and args and made is args[0]):
            self._forget((*args, *kwargs.values()))
        elif is_one and (schema.is_mutable or _is_new(schema, args)):
            if state.target >= 0:
                self._registry.place_tensor(made, state.target)
            record = self._registry.record_of(made)
            if record is not None:
                self._keep(record, function, args, kwargs, made, is_written=schema.is_mutable)

    def _keep(
        self, record: StorageRecord, function: Any, args: Any, kwargs: Any, made: Any, *, is_written: bool
    ) -> None:
        count = storage_of(made).nbytes() // made.dtype.itemsize
        if count > MOST_NUMBERS:
            return
        if is_written:
            if record.values is None and made.numel() == count and function._schema.name[6:] in _OVERWRITING:
                with torch._C._DisableTorchDispatch():
                    record.values = torch.empty(count, dtype=made.dtype)
            if record.values is not None and self.compute(function, args, kwargs) is None:
                record.values = None
            return
        found = self.compute(function, args, kwargs)
        if isinstance(found, torch.Tensor) and found.shape == made.shape and found.dtype == made.dtype:
            with torch._C._DisableTorchDispatch():
                record.values = torch.empty(count, dtype=made.dtype)
                place = record.values.as_strided(tuple(made.shape), made.stride(), made.storage_offset())
                place.copy_(found)

    def _find_all(self, values: Any) -> list[Any]:
        found = []
        for value in values:
            if isinstance(value, torch.Tensor):
                known = self.find(value)
                if known is None:
                    raise _Unknown
                found.append(known)
            else:
                found.append(self._find_all(value) if isinstance(value, (list, tuple)) else value)
        return found

    def _forget(self, values: Any) -> None:
        """Drop the values of tensors that something has written which is not followed."""
        for value in values:
            if isinstance(value, FakeTensor):
                record = self._registry.record_of(value)
                if record is not None:
                    record.values = None
            elif isinstance(value, (list, tuple)):
                self._forget(value)


def _is_new(schema: Any, args: Any) -> bool:
    """Return whether a result is no view; one of a tensor of the host is new on the card (`torch.tensor`)."""
    return schema.returns[0].alias_info is None or not isinstance(args[0], FakeTensor)


@functools.cache
def _is_computable(function: Any) -> bool:
    """Return whether an operation gives the same result each time, without anything but its arguments."""
    name: str = function._schema.name
    is_random = torch.Tag.nondeterministic_seeded in function.tags
    return name.startswith("aten::") and not is_random and "empty" not in name
