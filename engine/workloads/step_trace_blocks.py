"""What blocks are for, as models and optimizers tell: parameters, buffers, gradients, state, inputs.

A block is marked once; what nobody marks is told by its lifetime, when the trace is read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from ..simulation.host_memory import Stack
from ..simulation.storages import StorageRegistry

PARAMETER, BUFFER, GRADIENT, SAMPLE_GRADIENT, STATE, INPUT = range(6)
_MOST_LEVELS = 4


class KindMarks:
    """Marks blocks of one trace: by place of the block, its kind and the module it belongs to."""

    def __init__(self, log: BlockLog, registry: StorageRegistry) -> None:
        self._log = log
        self._registry = registry
        self.place = StepPlace(self.note_model, self._note_input)
        self.marks: dict[int, tuple[int, int]] = {}
        self._owners: dict[int, int] = {}
        """Number of the module of each parameter, by the parameter's identity."""
        self._models: list[nn.Module] = []
        self._hooks: list[Any] = []

    def install(self) -> None:
        """Follow every module and every optimizer of this process."""
        self.place.install()
        # `torch.optim` hides its module of this name behind the class.
        optimizer = import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_pre_hook(lambda it, *_: self._note_gradients(it))
        optimizer.register_optimizer_step_post_hook(lambda it, *_: self._note_state(it))

    def begin_trace(self) -> None:
        """Forget what was marked."""
        self.marks = {}
        self._owners = {}
        self._models = []
        self._hooks = []
        self.place.begin_trace(self._log.events)

    def end_trace(self) -> None:
        """Let go of the models, after a last look at what they hold."""
        for model in self._models:
            self._mark_model(model)
        for hook in self._hooks:
            hook.remove()
        self._models = []
        self._hooks = []

    def note_model(self, model: nn.Module) -> None:
        """Mark what a model holds, and its gradients as they come."""
        self.place.name_modules(model)
        self._models.append(model)
        self._mark_model(model)
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.is_leaf:
                self._hooks.append(parameter.register_post_accumulate_grad_hook(self._note_gradient))

    def _mark_model(self, model: nn.Module) -> None:
        for module in model.modules():
            number = self.place.number_of(module)
            for parameter in module.parameters(recurse=False):
                self._owners.setdefault(id(parameter), number)
                self._mark(parameter, PARAMETER, number)
            for buffer in module.buffers(recurse=False):
                self._mark(buffer, BUFFER, number)

    def _note_gradient(self, parameter: Any) -> None:
        self._mark(parameter.grad, GRADIENT, self._owners.get(id(parameter), OUTSIDE))

    def _note_gradients(self, optimizer: Any) -> None:
        for parameter, owner in self._list_parameters(optimizer):
            for name in ("grad_sample", "summed_grad"):
                _each_tensor(getattr(parameter, name, None), self._marker(SAMPLE_GRADIENT, owner))
            _each_tensor(parameter.grad, self._marker(GRADIENT, owner))

    def _note_state(self, optimizer: Any) -> None:
        for parameter, owner in self._list_parameters(optimizer):
            _each_tensor(optimizer.state.get(parameter), self._marker(STATE, owner))

    def _note_input(self, args: Any) -> None:
        _each_tensor(args, self._marker(INPUT, OUTSIDE))

    def _list_parameters(self, optimizer: Any) -> list[tuple[Any, int]]:
        listed = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        return [(it, self._owners.get(id(it), OUTSIDE)) for it in listed]

    def _marker(self, kind: int, owner: int) -> Callable[[Any], None]:
        return lambda tensor: self._mark(tensor, kind, owner)

    def _mark(self, tensor: Any, kind: int, owner: int) -> None:
        record = None if tensor is None else self._registry.record_of(tensor)
        place = None if record is None else self._log.find(record.address)
        if place is not None and (kind == PARAMETER or place not in self.marks):
            self.marks[place] = kind, owner


def _each_tensor(value: Any, visit: Callable[[Any], None], levels: int = _MOST_LEVELS) -> None:
    """Visit the tensors in what is held, some levels deep."""
    if isinstance(value, torch.Tensor):
        visit(value)
    elif levels and isinstance(value, (list, tuple, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            _each_tensor(each, visit, levels - 1)


EMPTIED = 0
"""The event of a script that gave cached memory back."""


class Locator(Protocol):
    """Knows where the training step is."""

    def locate(self) -> tuple[int, int]:
        """Return the phase and the number of the module that is running."""


class BlockLog:
    """What came and went, as numbers: cheap to note, and read when all is over.

    A block is known by its place in `sizes`; an event is that place plus one, less than 0 where it ends.
    """

    def __init__(self) -> None:
        self.locator: Locator | None = None
        self.begin()

    def begin(self) -> None:
        """Forget everything: what is on the card now belongs to nobody's trace."""
        self.sizes: list[int] = []
        self.phases: list[int] = []
        self.modules: list[int] = []
        self.stacks: list[int] = []
        self.events: list[int] = []
        self.is_running = True
        self._live: dict[int, int] = {}
        self._stack_numbers: dict[Stack, int] = {}

    def note_allocated(self, address: int, size_bytes: int, stack: Stack) -> None:
        if not self.is_running:
            return
        phase, module = (0, 0) if self.locator is None else self.locator.locate()
        place = self._live[address] = len(self.sizes)
        self.sizes.append(size_bytes)
        self.phases.append(phase)
        self.modules.append(module)
        self.stacks.append(self._stack_numbers.setdefault(stack, len(self._stack_numbers)))
        self.events.append(place + 1)

    def note_freed(self, address: int) -> None:
        """Note the end of a block; of one that was there before, nothing."""
        place = self._live.pop(address, None)
        if place is not None and self.is_running:
            self.events.append(-place - 1)

    def note_emptied(self) -> None:
        """Note that cached memory was given back."""
        if self.is_running:
            self.events.append(EMPTIED)

    def find(self, address: int) -> int | None:
        """Return the place of the live block at an address."""
        return self._live.get(address)

    def describe_stacks(self) -> list[list[dict[str, Any]]]:
        """Return the stacks by their numbers, innermost frame first."""
        return [stack.frames for stack in self._stack_numbers]


# Forward passes tell by hooks that every module calls. In the backward pass an operation belongs to the
# module that was running when its node of the autograd graph was made, told by the node's sequence number.

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
