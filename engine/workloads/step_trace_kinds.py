"""What blocks are for, as models and optimizers tell: parameters, buffers, gradients, state, inputs.

A block is marked once; what nobody marks is told by its lifetime, when the trace is read.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import nn

from ..simulation.storages import StorageRegistry
from .step_trace_log import BlockLog
from .step_trace_place import OUTSIDE, StepPlace

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
