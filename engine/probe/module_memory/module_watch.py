"""Hooks on a model's modules: which one runs, what the leaves put out, where forward and backward end."""

from __future__ import annotations

import sys
from typing import Any, Callable

from ..base.foreign import Foreign, Module, Tensor
from ..base.guard import Guard
from .ledger import Pieces
from .saved_tensors import OUTSIDE

_DEEPEST = 4
"""Levels of an output that are searched for tensors."""
_MOST_HOOKED = 8
"""Tensors of one output at which the backward pass is awaited."""


class ModuleWatch:
    """Watches one chunk of a model, which is all of it without interleaved pipeline stages.

    Args:
        chunk: The module.
        root: Name of its tree, as `activations_0`.
        stack: Paths of the modules that run now, shared by the chunks.
        pieces: Weighs tensors by their shapes.
        after_forward: Called at the end of each forward pass of the chunk.
        after_backward: Called at the end of each backward pass through it.
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
        self.outputs: dict[str, int] = {}
        """Bytes of the tensors that each leaf put out in the first forward pass, by path."""
        self.is_known = False
        """Whether the outputs of a forward pass are known; they are taken down once."""
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
        """Take notice that a forward pass of the chunk has begun."""
        self._stack[:] = [self.root]
        if not self.is_known:
            self.outputs.clear()

    def close(self) -> None:
        """Take all hooks away."""
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
            self._await_backward(output)
            self._after_forward(self)

    def _await_backward(self, output: Foreign) -> None:
        self._is_in_backward = False
        waiting = [tensor for tensor in find_tensors(output) if tensor.requires_grad]
        for tensor in waiting[:_MOST_HOOKED]:
            tensor.register_hook(self._meet_backward)

    def _meet_backward(self, gradient: Tensor) -> None:
        """Have the engine call back at the end of the backward pass that has come to this chunk's output."""
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
    """Return the path of the innermost module that runs now."""
    return stack[-1] if stack else OUTSIDE


def find_tensors(value: Foreign, depth: int = _DEEPEST) -> list[Tensor]:
    """Return the tensors in what a module puts out: alone, in lists and dictionaries, some levels deep."""
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
    """Tell whether PyTorch's compiler traces this call, to which these hooks then are nothing."""
    compiler = getattr(sys.modules["torch"], "compiler", None)
    ask = getattr(compiler, "is_compiling", None)
    return ask is not None and bool(ask())
