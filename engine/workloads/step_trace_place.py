"""Where a training step is: its phase, and the module whose forward or backward pass is running.

Forward passes tell by hooks that every module calls. In the backward pass an operation belongs to the module
that was running when its node of the autograd graph was made, told by the node's sequence number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

MAKING, FORWARD, BACKWARD, OPTIMIZER, RECOMPUTE = range(5)
OUTSIDE = 0
"""The module where none is running."""
_WRAPPERS = ("_module.", "module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
"""Names that wrappers of models put before those of the user."""


class StepPlace:
    """Follows a step; `names` and `types` are those of the modules by their numbers."""

    def __init__(self, note_root: Callable[[nn.Module], None], note_input: Callable[[Any], None]) -> None:
        self._note_root = note_root
        self._note_input = note_input
        self.names = [""]
        self.types = [""]
        self.events: list[int] = []
        """The log of events, whose length is the time."""
        self.backward_begins: list[int] = []
        self.recompute_ends: list[int] = []
        self._numbers: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
        self._phase = MAKING
        self._running: list[int] = []
        self._sequences: list[int] = []
        self._sequence_modules: list[int] = []

    def install(self) -> None:
        """Let every module of this process say when it runs."""
        module_hooks.register_module_forward_pre_hook(self._enter)
        module_hooks.register_module_forward_hook(self._leave, always_call=True)

    def begin_trace(self, events: list[int]) -> None:
        """Follow another model from its making on."""
        self.names = [""]
        self.types = [""]
        self.events = events
        self.backward_begins = []
        self.recompute_ends = []
        self._numbers = WeakKeyDictionary()
        self._phase = MAKING
        self._running = []

    def begin_step(self) -> None:
        """Begin with a forward pass."""
        self._phase = FORWARD
        self._sequences = []
        self._sequence_modules = []

    def locate(self) -> tuple[int, int]:
        """Return the phase and the number of the running module."""
        if torch._C._current_graph_task_id() == -1:
            if self._phase == BACKWARD:
                self._phase = OPTIMIZER
            return self._phase, self._running[-1] if self._running else OUTSIDE
        if self._phase != BACKWARD:
            self._phase = BACKWARD
            self.backward_begins.append(len(self.events))
        if self._running:
            return RECOMPUTE, self._running[-1]
        return BACKWARD, self._find_maker()

    def number_of(self, module: nn.Module) -> int:
        """Return the number of a module that was named."""
        return self._numbers.get(module, OUTSIDE)

    def name_modules(self, root: nn.Module) -> None:
        """Give a model and everything in it their names; those of a second model begin with its class."""
        kind = type(root).__name__
        before = f"{kind}." if len(self.names) > 1 else ""
        for name, module in root.named_modules():
            if module not in self._numbers:
                self._numbers[module] = len(self.names)
                stripped = _strip(name)
                self.names.append(before + stripped if stripped else kind)
                self.types.append(type(module).__name__)

    def _find_maker(self) -> int:
        node = torch._C._current_autograd_node()
        if node is None:
            return OUTSIDE
        place = bisect_right(self._sequences, node._sequence_nr()) - 1
        return self._sequence_modules[place] if place >= 0 else OUTSIDE

    def _enter(self, module: nn.Module, args: Any) -> None:
        if module not in self._numbers:
            self.name_modules(module)
            self._note_root(module)
        if not self._running and torch._C._current_graph_task_id() == -1:
            if self._phase in (BACKWARD, OPTIMIZER):
                self._phase = FORWARD
            self._note_input(args)
        self._running.append(self._numbers[module])
        self._note_sequence()

    def _leave(self, module: nn.Module, args: Any, result: Any) -> None:
        if self._running:
            self._running.pop()
        self._note_sequence()
        if not self._running and torch._C._current_graph_task_id() != -1:
            self.recompute_ends.append(len(self.events))

    def _note_sequence(self) -> None:
        """Note from which node of the autograd graph on another module is the maker."""
        self._sequences.append(torch._C._autograd._get_sequence_nr())
        self._sequence_modules.append(self._running[-1] if self._running else OUTSIDE)


def _strip(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = f"{name}.".replace(f".{wrapper}", ".").removeprefix(wrapper).removesuffix(".")
    return name
