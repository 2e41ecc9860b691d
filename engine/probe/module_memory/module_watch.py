"""Hooks on a model's modules: which one runs, the outputs of the leaves, the ends of forward and backward."""

from __future__ import annotations

import re
import sys
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Callable

from ..base.current import Guard
from ..base.foreign import Foreign, Module, Optimizer, Tensor
from .ledger import Pieces

# `torch.autograd.graph.saved_tensors_hooks` passes each tensor that is saved; the object that replaces it
# dies with the graph, and so its end is seen too. Tensors that another such hook replaces, as `save_on_cpu`
# does, are not counted.

# Place of tensors that are saved while no module of the model runs: the loss, mostly.
OUTSIDE = "(outside of modules)"


class SavedTensors:
    """Counts live bytes of saved tensors, each storage once and under the module that saved it first.

    Args:
        device_type: Where the model is; tensors elsewhere do not count.
    """

    def __init__(self, pieces: Pieces, device_type: str, find_place: Callable[[], str]) -> None:
        self.live_bytes = 0
        self.peak_bytes = 0
        # Bytes by module at the moment of the peak.
        self.peak_by_place: dict[str, int] = {}
        # Parameters and buffers, which would be there without a backward pass.
        self.model_storages: set[Foreign] = set()
        self.is_on = False
        self._pieces = pieces
        self._device_type = device_type
        self._find_place = find_place
        self._parameter: Any = sys.modules["torch"].nn.Parameter
        self._held: dict[Foreign, list[Any]] = {}
        self._by_place: dict[str, int] = {}
        self._is_growing = False
        self._hooks: Any = None
        self._disable: Any = None
        self._guard = Guard("the count of saved tensors")

    def start(self) -> bool:
        """Hook the tensors that this thread saves from now on; return whether that is possible.

        Under hooks of the program it is not: those would end before ours, and torch undoes the newest first.
        """
        graph = sys.modules["torch"].autograd.graph
        if _find_top_hooks() is not None:
            return False
        self._hooks = graph.saved_tensors_hooks(self._pack, self._unpack)
        self._hooks.__enter__()
        self._disable = graph.disable_saved_tensors_hooks
        graph.disable_saved_tensors_hooks = self._step_aside
        self.is_on = True
        return True

    def stop(self) -> None:
        """Count no more. Hooks under those of the program stay, without effect, until the thread ends."""
        if not self.is_on:
            return
        self.is_on = False
        sys.modules["torch"].autograd.graph.disable_saved_tensors_hooks = self._disable
        if self._is_on_top():
            self._hooks.__exit__(None, None, None)

    @contextmanager
    def _step_aside(self, error_message: str) -> Iterator[None]:
        """Replace torch's function of that name, which raises if there are hooks: `torch.func` calls it."""
        is_on_top = self._is_on_top()
        if is_on_top:
            self._hooks.__exit__(None, None, None)
        try:
            with self._disable(error_message):
                yield
        finally:
            if is_on_top:
                self._hooks.__enter__()

    def _is_on_top(self) -> bool:
        top = _find_top_hooks()
        return top is not None and top[0] == self._pack

    def note_peak(self) -> None:
        """Keep the present moment if it is the largest."""
        self._is_growing = False
        if self.live_bytes > self.peak_bytes:
            self.peak_bytes = self.live_bytes
            self.peak_by_place = {place: size for place, size in self._by_place.items() if size}

    def _pack(self, tensor: Tensor) -> Foreign:
        if not self.is_on or self._guard.is_shut or tensor.device.type != self._device_type:
            return tensor
        try:
            return self._count_saved(tensor)
        except Exception as error:  # noqa: BLE001 - the training goes on, uncounted
            self._guard.count(error)
            return tensor

    def _unpack(self, packed: Foreign) -> Tensor:
        return packed.tensor if type(packed) is _Held else packed

    def _count_saved(self, tensor: Tensor) -> Foreign:
        base = tensor._base
        if isinstance(tensor if base is None else base, self._parameter):
            # Also one that FSDP has gathered for the length of a layer: its storage is not the model's.
            return tensor
        keys = []
        for extent in self._pieces.locate(tensor) or ():
            if extent.storage in self.model_storages:
                continue
            keys.append(extent.storage)
            entry = self._held.get(extent.storage)
            if entry is not None:
                entry[0] += 1
                continue
            place = self._find_place()
            self._held[extent.storage] = [1, extent.storage_bytes, place]
            self._by_place[place] = self._by_place.get(place, 0) + extent.storage_bytes
            self.live_bytes += extent.storage_bytes
            self._is_growing = True
        return _Held(tensor, keys, self._release) if keys else tensor

    def _release(self, keys: list[Foreign]) -> None:
        if self._is_growing:
            self.note_peak()
        for key in keys:
            entry = self._held[key]
            entry[0] -= 1
            if not entry[0]:
                _, size_bytes, place = self._held.pop(key)
                self._by_place[place] -= size_bytes
                self.live_bytes -= size_bytes


class _Held:
    """Replaces a saved tensor in a graph; the graph drops it when it no longer needs it."""

    __slots__ = ("_keys", "_release", "tensor")

    def __init__(self, tensor: Tensor, keys: list[Foreign], release: Callable[[list[Foreign]], None]) -> None:
        self.tensor = tensor
        self._keys = keys
        self._release = release

    def __del__(self) -> None:
        self._release(self._keys)


def _find_top_hooks() -> Foreign:
    """Return the pair of hooks that this thread calls now, or None if there is none or torch does not say."""
    ask = getattr(sys.modules["torch"]._C._autograd, "_top_saved_tensors_default_hooks", None)
    if ask is None:
        return None
    try:
        return ask(True)
    except TypeError:  # it took no argument at first
        return ask()


# Levels of an output that are searched for tensors.
_DEEPEST = 4
# Tensors of one output at which the backward pass is awaited.
_MOST_HOOKED = 8


class ModuleWatch:
    """Watches one chunk of a model: all of it, unless pipeline stages are interleaved.

    Args:
        root: Name of its tree, as `activations_0`.
    """

    def __init__(
        self,
        chunk: Module,
        root: str,
        stack: list[str],
        pieces: Pieces,
        after_forward: Callable[[ModuleWatch], None],
        after_backward: Callable[[ModuleWatch], None],
    ) -> None:
        self.root = root
        # Bytes of the outputs of each leaf in the first forward pass, by path.
        self.outputs: dict[str, int] = {}
        # Whether the outputs of a forward pass are known; they are recorded once.
        self.is_known = False
        self._stack = stack
        self._pieces = pieces
        self._after_forward = after_forward
        self._after_backward = after_backward
        self._guard = Guard("the hooks of modules")
        self._handles: list[Any] = []
        self._is_in_backward = False
        for name, module in chunk.named_modules():
            self._watch(module, f"{root}.{name}" if name else root, is_leaf=not any(module.children()))

    def begin(self) -> None:
        """Note that a forward pass of the chunk has begun."""
        self._stack[:] = [self.root]
        if not self.is_known:
            self.outputs.clear()

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _watch(self, module: Module, path: str, *, is_leaf: bool) -> None:
        is_root = path == self.root

        def enter(module: Module, arguments: Foreign) -> None:
            if not is_compiling():
                self.begin() if is_root else self._stack.append(path)

        def leave(module: Module, arguments: Foreign, output: Foreign) -> None:
            if not is_compiling() and not self._guard.is_shut:
                try:
                    self._leave(path, output, is_leaf=is_leaf)
                except Exception as error:  # noqa: BLE001 - the training goes on
                    self._guard.count(error)

        self._handles.append(module.register_forward_pre_hook(enter))
        self._handles.append(module.register_forward_hook(leave))

    def _leave(self, path: str, output: Foreign, *, is_leaf: bool) -> None:
        if is_leaf and not self.is_known:
            size_bytes = sum(self._pieces.measure_shape(tensor) for tensor in find_tensors(output))
            self.outputs[path] = self.outputs.get(path, 0) + size_bytes
        # A module that raised has left its name; what follows belongs to who caught it.
        while self._stack and self._stack.pop() != path:
            pass
        if path == self.root:
            self.is_known = True
            self._is_in_backward = False
            waiting = [tensor for tensor in find_tensors(output) if tensor.requires_grad]
            for tensor in waiting[:_MOST_HOOKED]:
                tensor.register_hook(self._await_backward_end)
            self._after_forward(self)

    def _await_backward_end(self, gradient: Tensor) -> None:
        """Have the engine call back at the end of the backward pass that has reached this chunk's output."""
        if self._is_in_backward:
            return
        self._is_in_backward = True
        engine = sys.modules["torch"].autograd.Variable._execution_engine
        engine.queue_callback(self._end_backward)

    def _end_backward(self) -> None:
        self._is_in_backward = False
        if self._guard.is_shut:
            return
        try:
            self._after_backward(self)
        except Exception as error:  # noqa: BLE001 - the training goes on
            self._guard.count(error)


def find_place(stack: list[str]) -> str:
    return stack[-1] if stack else OUTSIDE


def find_tensors(value: Foreign, depth: int = _DEEPEST) -> list[Tensor]:
    """Return the tensors in the output of a module: alone, in lists and dictionaries, some levels deep."""
    if hasattr(value, "untyped_storage"):
        return [value]
    if not depth:
        return []
    if isinstance(value, dict):
        value = list(value.values())
    elif not isinstance(value, (list, tuple)):
        value = list(vars(value).values()) if hasattr(value, "__dataclass_fields__") else ()
    return [tensor for part in value for tensor in find_tensors(part, depth - 1)]


def is_compiling() -> bool:
    """Return whether PyTorch's compiler traces this call; then these hooks must do nothing."""
    compiler = getattr(sys.modules["torch"], "compiler", None)
    ask = getattr(compiler, "is_compiling", None)
    return ask is not None and bool(ask())


# What a compiled module says at each call while there is a hook on all modules: we print nothing.
_WARNED = re.compile(r"Using `torch\.compile\(module\)` when there are global hooks")
_SILENCE = ("ignore", _WARNED, UserWarning, None, 0)


class ModelSearch:
    """Notes the modules that are called, by a hook on all of them; used by the thread that trains only."""

    def __init__(self) -> None:
        self._candidates: list[weakref.ref[Any]] = []
        self._known: set[int] = set()
        self._handle: Any = None

    def begin(self, torch: Module) -> None:
        self._handle = torch.nn.modules.module.register_module_forward_pre_hook(self._note_module)
        # Not by `filterwarnings`, which would let warnings that were shown once be shown again.
        warnings.filters.insert(0, _SILENCE)  # type: ignore[attr-defined]

    def end(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            with suppress(ValueError):  # the program has put other filters in their place
                warnings.filters.remove(_SILENCE)  # type: ignore[attr-defined]
        self._handle = None
        self._known.clear()
        self._candidates.clear()

    def find(self, optimizer: Optimizer) -> Module | None:
        """Return the largest module that was called from outside and has a parameter of the optimizer."""
        stepped = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        found = [module for module in (reference() for reference in self._candidates) if module is not None]
        sized = [(sum(p.numel() for p in module.parameters()), module) for module in found]
        # Copies in fp32 are not the model's own: then only the size decides.
        own = [each for each in sized if any(id(p) in stepped for p in each[1].parameters())]
        return max(own or sized, key=lambda each: each[0], default=(0, None))[1]

    def _note_module(self, module: Module, arguments: Foreign) -> None:
        """Keep a module that no other has called; its children are known with it."""
        if id(module) in self._known or is_compiling():
            return
        self._known.update(id(child) for child in module.modules())
        if any(parameter.requires_grad for parameter in module.parameters()):
            self._candidates.append(weakref.ref(module))
