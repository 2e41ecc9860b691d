"""The values of small tensors that come from whole numbers and flags, as long as all of these are known.

Masks, positions, lengths and labels decide which way a program goes and how large its selections are. They
come from the host or from counting, so that they can be computed there for next to nothing, while weights and
what is computed from them have no values.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .alone import find_group
from .collectives import list_tensors
from .devices import state
from .storages import StorageRecord, StorageRegistry, storage_of

# Most numbers in a storage whose values are kept.
MOST_NUMBERS = 1 << 16
# Operations that write every number of their first argument.
_OVERWRITING = ("copy_", "fill_", "zero_")
# Collectives whose small messages are sent for real: what a rank writes first, and what it sends.
_COLLECTIVES = {
    "c10d::broadcast_": (0, 0),
    "c10d::allreduce_": (0, 0),
    "c10d::allgather_": (0, 1),
    "c10d::_allgather_base_": (0, 1),
}


class _Unknown(Exception):  # noqa: N818 - not an error
    """A value that something depends on is not known."""


class ExactValues:
    """Follows operations, with the values at the record of each storage on a card."""

    def __init__(self, registry: StorageRegistry) -> None:
        self._registry = registry
        # Whether numbers with a fraction are known of some tensor.
        self._has_fractions = False

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
        schema = getattr(function, "_schema", None)
        if schema is None or (is_one and made.dtype.is_complex):
            return
        if is_one and made.dtype.is_floating_point and not self._may_know(schema, args, made):
            return
        if schema.name.startswith("c10d::"):  # writes its tensors, and its schema does not say so
            is_followed = schema.name in _COLLECTIVES
            received = self._exchange(function, args) if is_followed else None
            self._forget((args[_COLLECTIVES[schema.name][0]],) if is_followed else args)
            for tensor, values in received or ():
                self._write(tensor, values)
        elif schema.is_mutable and not (is_one and args and made is args[0]):
            self._forget((*args, *kwargs.values()))
        elif is_one and (schema.is_mutable or _is_new(schema, args)):
            if state.target >= 0:
                self._registry.place_tensor(made, state.target)
            record = self._registry.record_of(made)
            if record is not None:
                self._keep(record, function, args, kwargs, made, is_written=schema.is_mutable)

    def _may_know(self, schema: Any, args: Any, made: Any) -> bool:
        """Return whether a result with fractions may be known: it is written, one number, or of whole ones.

        Masks of attention are such. Not what begins with fractions, as weights do: it costs time to follow.
        """
        if schema.is_mutable:
            return self._has_fractions
        if made.numel() == 1:
            return True
        return any(
            isinstance(it, torch.Tensor)
            and (not it.dtype.is_floating_point or self._has_fractions)
            and self.find(it) is not None
            for it in args
        )

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
            self._has_fractions |= made.dtype.is_floating_point

    def _exchange(self, function: Any, args: Any) -> list[tuple[Any, Any]] | None:
        """Send the values of small tensors to the other ranks; return what each written one has then.

        Every rank sends, whether it knows its values or not, because the others wait for it. None if some
        rank does not know its own.
        """
        name: str = function._schema.name
        written, sent = (list(list_tensors(args[place])) for place in _COLLECTIVES[name])
        group = find_group(args)
        count = sum(it.numel() for it in sent)
        is_whole = all(not it.dtype.is_floating_point and not it.dtype.is_complex for it in sent)
        # A rank must not wait in an operation that returns at once elsewhere. With `async_op`, as by default,
        # the argument is True or left out.
        if not is_whole or count > MOST_NUMBERS or group is None or _is_pending(function, args):
            return None
        known = [self.find(it) for it in sent]
        is_known = all(it is not None for it in known)
        backend = torch.distributed.get_backend(group)
        # One rank alone: each other rank is taken to give as many numbers as this one, and the same.
        is_guessed = name == "c10d::broadcast_" and group.rank() != args[2]
        is_even = count > 0 and all(it.numel() % count == 0 for it in written)
        if backend == "fake" and is_known and is_even and name != "c10d::allreduce_" and not is_guessed:
            with torch._C._DisableTorchDispatch():
                return [(it, known[0].flatten().repeat(it.numel() // count)) for it in written]
        if backend != "gloo":
            return None
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            values = [it.flatten().long() for it in known] if is_known else [torch.zeros(count).long()]
            # Whatever operation joins them, some of the last three differ if one rank does not know.
            message = torch.cat([*values, torch.tensor([not is_known, -(not is_known), is_known]).long()])
            answers = _send(function, args, message, group.size())
            if any(it[-3:].tolist()[:2] != [0, 0] or it[-1] == 0 for it in answers):
                return None
            numbers = torch.cat([it[:-3] for it in answers])
            parts = numbers.split([it.numel() for it in written])
            return [(tensor, part.reshape(tensor.shape)) for tensor, part in zip(written, parts)]

    def _write(self, tensor: Any, numbers: Any) -> None:
        """Keep the values of a whole tensor."""
        record = self._registry.record_of(tensor)
        count = storage_of(tensor).nbytes() // tensor.dtype.itemsize
        if record is None or tensor.numel() != count:
            return
        with torch._C._DisableTorchDispatch():
            record.values = torch.empty(count, dtype=tensor.dtype)
            record.values.as_strided(tuple(tensor.shape), tensor.stride()).copy_(
                numbers.reshape(tensor.shape)
            )

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


def _is_pending(function: Any, args: Any) -> bool:
    """Return whether a collective may go on after its call; its flag is True if it is left out."""
    names = [it.name for it in function._schema.arguments]
    place = names.index("async_op")
    return place >= len(args) or bool(args[place])


def _send(function: Any, args: Any, message: Any, ranks: int) -> list[Any]:
    """Run a collective with one tensor of the host; return what it gives, of each rank where it gathers."""
    name: str = function._schema.name
    gathered = torch.zeros(ranks, len(message), dtype=torch.int64)
    given: tuple[Any, ...]
    if name == "c10d::_allgather_base_":
        given = gathered.flatten(), message
    elif name == "c10d::allgather_":
        given = [list(gathered.unbind())], [message]
    else:
        given = ([message],)
    made = function(*given, *args[len(given) :])
    torch.distributed.Work.unbox(made[-1]).wait()
    return list(gathered.unbind()) if len(given) == 2 else [message]


def _is_new(schema: Any, args: Any) -> bool:
    """Return whether a result is no view; one of a tensor of the host is new on the card (`torch.tensor`)."""
    return schema.returns[0].alias_info is None or not isinstance(args[0], FakeTensor)


@functools.cache
def _is_computable(function: Any) -> bool:
    """Return whether an operation gives the same result each time, without anything but its arguments."""
    name: str = function._schema.name
    is_random = torch.Tag.nondeterministic_seeded in function.tags
    return name.startswith("aten::") and not is_random and "empty" not in name
