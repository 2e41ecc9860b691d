"""Which module is the model: the largest that was called from outside of any other and trains."""

from __future__ import annotations

import re
import warnings
import weakref
from contextlib import suppress
from typing import Any

from ..base.foreign import Foreign, Module, Optimizer
from .module_watch import is_compiling

_WARNED = re.compile(r"Using `torch\.compile\(module\)` when there are global hooks")
"""What a compiled module says at each call while there is a hook on all modules: we print nothing."""
_SILENCE = ("ignore", _WARNED, UserWarning, None, 0)


class ModelSearch:
    """Notes the modules that are called, by a hook on all of them; used by the thread that trains only."""

    def __init__(self) -> None:
        self._candidates: list[weakref.ref[Any]] = []
        self._known: set[int] = set()
        self._handle: Any = None

    def begin(self, torch: Module) -> None:
        """Begin to note the modules that are called.

        Args:
            torch: The module.
        """
        self._handle = torch.nn.modules.module.register_module_forward_pre_hook(self._meet_module)
        # Not by `filterwarnings`, which would let warnings that were told once be told again.
        warnings.filters.insert(0, _SILENCE)  # type: ignore[attr-defined]

    def end(self) -> None:
        """Note no more, and forget what was noted."""
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
        # Copies in fp32 are not the model's own: then nothing tells but the size.
        own = [each for each in sized if any(id(p) in stepped for p in each[1].parameters())]
        return max(own or sized, key=lambda each: each[0], default=(0, None))[1]

    def _meet_module(self, module: Module, arguments: Foreign) -> None:
        """Keep a module that no other has called; its children are known with it."""
        if id(module) in self._known or is_compiling():
            return
        self._known.update(id(child) for child in module.modules())
        if any(parameter.requires_grad for parameter in module.parameters()):
            self._candidates.append(weakref.ref(module))
