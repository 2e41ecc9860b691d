"""Collectives of this process: gloo moves the values, and tensors are held as NCCL's groups hold them.

Who holds a tensor until when decides the peak. PyTorch's groups of NCCL (since 2.8, pytorch/pytorch#150398)
keep what an operation with `async_op=True` reads and writes until its work is waited for, and its results for
as long as the work lives; an operation without it keeps nothing. Groups of gloo have a thread that lets go of
an operation some time after the waiting has ended. So gloo gets tensors that own nothing, and the work that a
script gets is made here, with storage and without it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from .devices import state
from .patching import replace
from .storages import storage_of

_WAIT = "_c10d_functional::wait_tensor"
# Marks a result that somebody must wait for, at its first use.
_MARK_PENDING = "_c10d_functional::_wrap_tensor_autograd"
_FUNCTIONAL = "_c10d_functional::"
# No thread of gloo has the tensors of a transfer, and those of a barrier are not the script's.
_PASSED_ON = (
    "c10d::send",
    "c10d::recv_",
    "c10d::recv_any_source_",
    "c10d::barrier",
    "c10d::monitored_barrier_",
    "c10d::check_for_nan",
)
# Functional collectives that give NCCL their input; the others give it a copy, which is their result.
_READS_INPUT = ("all_gather", "reduce_scatter", "all_to_all")
# PyTorch's own ways to wait, which are replaced.
_wait: Any = getattr(getattr(torch.distributed, "Work", None), "wait", None)
_get_future: Any = getattr(getattr(torch.distributed, "Work", None), "get_future", None)
_aten = torch.ops.aten
_HOST = torch.device("cpu")


class Results(list):  # type: ignore[type-arg]
    """What an operation has written: the value of its future, which its work owns."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        super().__init__(tensors)
        # Other tensors that stay until somebody waits.
        self.stashed: tuple[Any, ...] = ()
        # The work of gloo; None once it is done.
        self.sending: Any = None

    def land(self) -> None:
        """Wait for the operation, and let go of what it has read."""
        sending = self.sending
        self.sending = None
        if sending is not None:
            _wait(sending)
        self.stashed = ()

    def __del__(self) -> None:
        # gloo still writes into these tensors.
        self.land()

    def __reduce__(self) -> Any:
        # C++ finds the tensors in an object by pickling it.
        return list, (list(self),)


class Collectives:
    """Runs collectives, and has the functional ones that nobody has waited for."""

    def __init__(self) -> None:
        # By the storages of their results.
        self._unawaited: dict[int, Results] = {}

    def send(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Run a collective by gloo; return what it gives."""
        made = function(*_borrow(args), **kwargs)
        results = self._describe(function, args)
        work = made[-1] if isinstance(made, (list, tuple)) else made
        results.sending = torch.distributed.Work.unbox(work)
        if not results.stashed:
            results.land()
        return _give(function, args, results)

    def complete(self, function: Any, args: Any) -> Any:
        """Return what a collective gives at once, without any other process.

        Only for tensors without values: what they would receive has the same sizes.
        """
        name = function._schema.name
        for tensor in list_tensors(args):
            # PyTorch's own knowledge of a fake tensor, which others may have overwritten.
            tensor.constant = None
        if name == _WAIT:
            self.land(args[0])
            return args[0]
        if name == _MARK_PENDING:
            from torch.distributed._functional_collectives import AsyncCollectiveTensor

            return AsyncCollectiveTensor(args[0])
        return _give(function, args, self._describe(function, args))

    def hold(self, function: Any, args: Any, made: Any) -> None:
        """Keep the tensors of a functional collective that needs no other process, until somebody waits."""
        results = Results(list_tensors([made]))
        if function._schema.name[len(_FUNCTIONAL) :].startswith(_READS_INPUT):
            results.stashed = tuple(list_tensors(args))
        self._await(results)

    def land(self, tensor: Any) -> None:
        """Wait for the functional collective that writes a tensor."""
        results = self._unawaited.get(storage_of(tensor)._cdata)
        if results is None:
            return
        results.land()
        for key in [key for key, it in self._unawaited.items() if it is results]:
            del self._unawaited[key]

    def _describe(self, function: Any, args: Any) -> Results:
        results = Results(list_tensors(args[:1]))
        if state.is_functional or (_is_asynchronous(function, args) and _is_called_by_script()):
            results.stashed = tuple(list_tensors(args))
        if state.is_functional:
            self._await(results)
        return results

    def _await(self, results: Results) -> None:
        for tensor in results:
            self._unawaited[storage_of(tensor)._cdata] = results


def _give(function: Any, args: Any, results: Results) -> Any:
    """Return what a collective returns: tensors that it has written, its work, or both."""
    returned = function._schema.returns
    if not returned:
        return None
    future: Any = torch.futures.Future()
    future.set_result(results)
    work = torch._C._distributed_c10d._create_work_from_future(future).boxed()
    return (args[0], work) if len(returned) == 2 else work


def _is_asynchronous(function: Any, args: Any) -> bool:
    names = [it.name for it in function._schema.arguments]
    place = names.index("async_op") if "async_op" in names else len(args)
    return place >= len(args) or bool(args[place])


def _is_called_by_script() -> bool:
    """Return whether Python gets the work, so that its methods say when somebody waits.

    C++ (DDP's reducer and its broadcasts) waits without them, soon and in the order of its calls.
    """
    frame = sys._getframe(1)
    while frame is not None and _is_in_between(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_code.co_filename.endswith("distributed_c10d.py")


@functools.cache
def _is_in_between(name: str) -> bool:
    """Return whether a file is ours, or torch's way to an operation, so that its caller matters."""
    is_ours = Path(name).parent == Path(__file__).parent
    return is_ours or name.endswith(("torch/_ops.py", "_python_dispatch.py"))


def _borrow(value: Any) -> Any:
    """Return tensors with the values of others, which they do not keep alive; anything else as it is."""
    if isinstance(value, (list, tuple)):
        return [_borrow(it) for it in value]
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return value
    storage = storage_of(value)
    if not storage.nbytes():
        return value
    same = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), _HOST, storage.nbytes())
    empty = _aten.empty.memory_format([0], dtype=value.dtype, device=_HOST)
    place = value.storage_offset(), tuple(value.shape), value.stride()
    return _aten.set_.source_Storage_storage_offset(empty, same, *place)


def list_tensors(value: Any) -> Iterator[Any]:
    """Return the tensors among some values, in lists too."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for it in value:
            yield from list_tensors(it)


@functools.cache
def is_wait(function: Any) -> bool:
    return _name(function) == _WAIT


@functools.cache
def is_functional(function: Any) -> bool:
    """Return whether an operation is a collective that returns a result, in place of a work."""
    name = _name(function)
    return name.startswith(_FUNCTIONAL) and name not in (_WAIT, _MARK_PENDING)


@functools.cache
def is_sent(function: Any) -> bool:
    """Return whether a thread of gloo moves the tensors of an operation."""
    name = _name(function)
    return name.startswith("c10d::") and name not in _PASSED_ON


@functools.cache
def is_collective(function: Any) -> bool:
    """Return whether an operation sends or receives tensors, or waits for that."""
    name = _name(function)
    return name in (_WAIT, _MARK_PENDING) or (name.startswith("c10d::") and name != "c10d::check_for_nan")


def _name(function: Any) -> str:
    return str(getattr(getattr(function, "_schema", None), "name", ""))


def install() -> None:
    """Let go of tensors where a script waits for their work."""
    for name in ("wait", "synchronize", "get_future", "result", "is_completed"):
        replace(torch.distributed.Work, name, _make_landing)


def _make_landing(original: Any) -> Any:
    def land_first(work: Any, *args: Any, **kwargs: Any) -> Any:
        results = _find_results(work)
        if results is not None:
            results.land()
        return original(work, *args, **kwargs)

    return land_first


def _find_results(work: Any) -> Results | None:
    try:
        future = _get_future(work)
    except RuntimeError:  # the work of a transfer from one rank to another has none
        return None
    value = future.value() if future.done() else None
    return value if isinstance(value, Results) else None
