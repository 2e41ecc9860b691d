"""Sees every operation of every thread, and puts each new storage where CUDA would have it."""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .alone import moves_tensors
from .card import OutOfMemory
from .collectives import Collectives, is_functional, is_sent, is_wait
from .devices import HOST, UNNAMED, state
from .host_memory import STRIDE_BYTES, HostMemory, read_refused_bytes
from .outside import CONVOLUTIONS, OutsideUses
from .storages import UNDECIDED, StorageRegistry, parts_of, storage_of

# Operations whose tensors may be on the host and on a device at once.
_TAKES_BOTH = frozenset(
    {
        "copy_",
        "_to_copy",
        "to",
        "index",
        "index_put",
        "index_put_",
        "_index_put_impl_",
        "set_",
        "set_data",
        "_foreach_copy_",
        "_pack_padded_sequence",
        "is_same_size",
        "_has_compatible_shallow_copy_type",
        "_local_scalar_dense",
        "record_stream",
    }
)

_MOVES = frozenset({"_to_copy", "copy_", "_foreach_copy_", "_copy_from"})

_RESIZES = frozenset({"resize_", "set_", "resize_as_", "_resize_output_"})


# Results that stay on the host, by position, wherever the inputs are.
_HOST_OUTPUTS = {"_pack_padded_sequence": frozenset({1})}


class Operation:
    """How one overload of an operation treats storages."""

    __slots__ = (
        "creates",
        "host_outputs",
        "is_composite",
        "is_convolution",
        "is_of_group",
        "may_resize",
        "moves",
        "name",
        "takes_both",
    )

    def __init__(self, function: Any) -> None:
        schema = getattr(function, "_schema", None)
        self.name: str = schema.name.split("::")[-1] if schema else str(function)
        returned = schema.returns if schema else ()
        # Whether its results may have storages of their own; not so for views and in-place
        # operations.
        self.creates = not schema or any(it.alias_info is None for it in returned)
        self.takes_both = not schema or self.name in _TAKES_BOTH or schema.name.startswith("c10d::")
        self.host_outputs = _HOST_OUTPUTS.get(self.name, frozenset())
        self.moves = self.name in _MOVES
        self.is_of_group = moves_tensors(function)
        self.is_convolution = self.name in CONVOLUTIONS
        self.may_resize = self.name in _RESIZES or any(
            it.is_out for it in (schema.arguments if schema else ())
        )
        # Whether it is made of smaller operations, and none has its own kernel on the host
        # (`inference_mode` hands them over whole).
        self.is_composite = _is_composite(function)


def measure_made(args: Any, kwargs: Any) -> int:
    """Bytes of the tensor that a factory is about to make, by its sizes; 0 for other operations."""
    if not args or not isinstance(args[0], (list, tuple)) or not all(isinstance(it, int) for it in args[0]):
        return 0
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    return int(prod(args[0]) * dtype.itemsize)


def _is_composite(function: Any) -> bool:
    try:
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        name = function.name()
        return bool(has_kernel(name, "CompositeImplicitAutograd")) and not has_kernel(name, "CPU")
    except (AttributeError, RuntimeError):
        return False


Tensor = torch.Tensor
_FAKE_TENSORS = "torch._subclasses.fake_tensor"


@functools.cache
def _is_wrapper(kind: type) -> bool:
    """Return whether tensors of a type are made of others, as sharded and quantized ones are."""
    has_operations = getattr(kind, "__torch_dispatch__", None) is not Tensor.__torch_dispatch__
    return has_operations and all(it.__module__ != _FAKE_TENSORS for it in kind.__mro__)


class Survey:
    __slots__ = ("device", "host", "is_anywhere", "other", "undecided")

    def __init__(self) -> None:
        # Ordinal of the first input on a device.
        self.device: int | None = None
        # Ordinal of another device, where inputs are on two.
        self.other: int | None = None
        # The first input on the host that is more than a number.
        self.host: Any | None = None
        # Inputs that go where the others are.
        self.undecided: list[Any] | None = None
        # Whether no input is plainly on the host.
        self.is_anywhere = True


class AccountingMode(TorchDispatchMode):
    """Runs operations as they are and counts the storages that they made."""

    supports_higher_order_operators = True

    def __init__(self, registry: StorageRegistry, host: HostMemory, uses: OutsideUses) -> None:
        super().__init__()
        self._uses = uses
        self._registry = registry
        self._host = host
        self._records = registry.records
        self._operations: dict[Any, Operation] = {}
        self._collectives = Collectives()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap every call for torch.compile, which costs ten times the call itself.
        return False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types and any(map(_is_wrapper, types)):
            return NotImplemented  # its own operations on its inner tensors come here one by one
        operation = self._operations.get(function)
        if operation is None:
            operation = self._operations[function] = Operation(function)
        if operation.is_composite:
            with self:
                result = function.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        survey = Survey()
        self._survey(args, survey)
        if kwargs:
            self._survey(kwargs.values(), survey)
        if survey.device is not None:
            self._settle(operation, survey, args)
            if operation.is_of_group:
                self._uses.note_group(function, args)
        try:
            run = self.run_collective if operation.is_of_group else self.run
            result = run(function, args, kwargs or {}, survey)
            if operation.creates:
                self._place(result, survey, operation)
            if operation.is_convolution and survey.device is not None:
                self._uses.note_convolution(operation.name, args, result)
            if operation.may_resize and survey.device is not None:
                self._follow(args, kwargs)
        except OutOfMemory as error:
            # The steps below are ours, and tell the user nothing.
            raise error.with_traceback(None) from None
        return result

    def run(self, function: Any, args: Any, kwargs: Any, survey: Survey) -> Any:
        """Compute an operation; with real storage that is the plain kernel of the host.

        Raises:
            torch.OutOfMemoryError: Neither the host nor the card has the memory.
            SystemExit: The card has it, and the host has not.
        """
        target = survey.device if state.target == UNNAMED else state.target
        if target is not None and target >= 0 and survey.device is None:
            made_bytes = measure_made(args, kwargs)
            # Much that is made at once would be written before it is counted: card and host are asked before.
            if made_bytes >= STRIDE_BYTES:
                self._try(target, made_bytes)
                self._host.check_growth(made_bytes)
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            size_bytes = read_refused_bytes(error)
            if size_bytes is None or target is None or target < 0:
                raise
        self._try(target, size_bytes)
        return self._host.refuse(size_bytes)

    def run_collective(self, function: Any, args: Any, kwargs: Any, survey: Survey) -> Any:
        if is_sent(function):
            return self._collectives.send(function, args, kwargs)
        if is_functional(function):
            # Its kernel calls an operation that writes: that comes here too.
            state.is_functional = True
            try:
                with self:
                    return function._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
            finally:
                state.is_functional = False
        if is_wait(function):
            self._collectives.land(args[0])
        return function(*args, **kwargs)

    def _try(self, target: int, size_bytes: int) -> None:
        card = self._registry.card_of(target)
        card.free(card.allocate(size_bytes, 0))

    def _survey(self, values: Any, survey: Survey) -> None:
        """Find where the tensors among some values are, those in lists too."""
        records = self._records
        for value in values:
            if isinstance(value, Tensor):
                try:
                    record = records.get(storage_of(value)._cdata)
                except (NotImplementedError, RuntimeError):
                    self._survey(parts_of(value), survey)
                    continue
                if record is None:
                    survey.is_anywhere = False
                    if survey.host is None and value.dim():
                        survey.host = value
                elif record.device == UNDECIDED:
                    survey.undecided = [*(survey.undecided or ()), value]
                elif survey.device is None:
                    survey.device = record.device
                elif record.device != survey.device and value.dim():
                    survey.other = record.device
            elif isinstance(value, (list, tuple)):
                self._survey(value, survey)

    def _settle(self, operation: Operation, survey: Survey, args: Any) -> None:
        """Refuse inputs on two devices as CUDA does, and put undecided ones on the device of the others."""
        if survey.undecided and state.target == UNNAMED:
            for value in survey.undecided:
                self._registry.place(storage_of(value), survey.device or 0)
        if survey.other is not None and not operation.moves and not operation.takes_both:
            raise RuntimeError(_describe_two(f"cuda:{survey.device}", f"cuda:{survey.other}"))
        if survey.host is None or operation.moves or _is_meta(survey.host):
            return
        if not operation.takes_both:
            raise RuntimeError(_describe_two(f"cuda:{survey.device}", "cpu"))
        if operation.name.startswith("index") and survey.host is args[0]:
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
            )

    def _place(self, result: Any, survey: Survey, operation: Operation) -> None:
        target = state.target
        if target == HOST:
            return
        if target == UNNAMED:
            if survey.device is not None:
                target = survey.device
            elif survey.is_anywhere:
                target = UNDECIDED
            else:
                return
        if isinstance(result, Tensor):
            self._registry.place_tensor(result, target)
        elif isinstance(result, (list, tuple)):
            for position, value in enumerate(result):
                if isinstance(value, Tensor) and position not in operation.host_outputs:
                    self._registry.place_tensor(value, target)

    def _follow(self, args: Any, kwargs: Any) -> None:
        """Update the storages that an operation may have made larger or smaller."""
        for value in (*args, *(kwargs or {}).values()):
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(tensor, Tensor) and self._registry.record_of(tensor) is not None:
                    self._registry.resize(storage_of(tensor))


def _is_meta(tensor: Any) -> bool:
    """A tensor without data may meet any other in checks of shapes."""
    return bool(torch._C.TensorBase.is_meta.__get__(tensor))


def _describe_two(first: str, second: str) -> str:
    return (
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{first} and {second}!"
    )
