"""Exact bytes of parameters, gradients and optimizer state, from the optimizers and the modules."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Callable

from .base.current import Guard
from .base.foreign import Foreign, Module, Optimizer, Tensor
from .base.storages import StorageBytes
from .clock import SystemClock

# Each of these is measured: gradients and optimizer state appear in them.
_FIRST_STEPS = 3
_EVERY_S = 30.0
_LONGEST_WALK_S = 0.05
# A walk is followed by at least so many times its own length without one: 0.1 % of the training thread.
_REST_PER_WALK = 1000.0
# A program that steps in the backward pass has one for each of its parameters.
MOST_OPTIMIZERS = 10_000

# Of one process; the largest models in use have some tens of thousands.
_MOST_MODULES = 200_000

# By `id`: every `torch.nn.Module` of this process that got a parameter or a parent since torch was imported.
_modules: dict[int, weakref.ref[Any]] = {}
# Modules `torch.nn.modules.module` that call us; a hook is never removed, as those of optimizers.
_hooked: list[Module] = []

State = dict[str, "int | None"]
_UNMEASURED: State = dict.fromkeys(
    ("parameters_bytes", "gradients_bytes", "optimizer_bytes", "grad_sample_bytes")
)


def hook_modules(torch: Foreign) -> None:
    """Note modules as they are built, through PyTorch's own hooks: frozen weights are in no optimizer."""
    module = getattr(getattr(getattr(torch, "nn", None), "modules", None), "module", None)
    on_parameter = getattr(module, "register_module_parameter_registration_hook", None)
    on_child = getattr(module, "register_module_module_registration_hook", None)
    if on_parameter is None or on_child is None or any(known is module for known in _hooked):
        return
    _hooked.append(module)
    on_parameter(lambda owner, *_: _note_module(owner))
    # A copy of a module registers no parameter; it is found below the module that it becomes a part of.
    on_child(lambda _, __, child: _note_module(child))


def _note_module(module: Foreign) -> None:
    identity = id(module)
    if identity in _modules or module is None or len(_modules) >= _MOST_MODULES:
        return
    forget = _modules
    try:
        forget[identity] = weakref.ref(module, lambda _: forget.pop(identity, None))
    except TypeError:
        # A stand-in that something put in the place of a module.
        return


class ModelStateWatch:
    """Decides when the optimizers are measured, and does it in the thread that trains."""

    def __init__(self, clock: SystemClock) -> None:
        # Why the newest walk measured nothing, in one sentence.
        self.note: str | None = None
        self._clock = clock
        self._guard = Guard("the walk through the optimizers")
        self._optimizers: dict[int, weakref.ref[Any]] = {}
        # Whether optimizers were left out for lack of room.
        self._is_crowded = False
        self._next_s = float("-inf")
        self._entries = 0
        self._walks = 0
        self._rest_s = float("-inf")

    @property
    def is_new(self) -> bool:
        """Whether it is still in the first steps, which are all measured."""
        return self._walks < _FIRST_STEPS and not self._guard.is_shut

    def note_optimizer(self, optimizer: Optimizer) -> None:
        """Remember an optimizer that has stepped, for as long as the program keeps it."""
        identity = id(optimizer)
        if identity in self._optimizers:
            return
        if len(self._optimizers) >= MOST_OPTIMIZERS:
            self._is_crowded = True
            return
        forget = self._optimizers
        self._optimizers[identity] = weakref.ref(optimizer, lambda _: forget.pop(identity, None))

    def measure(self) -> State | None:
        """Return the bytes if a walk is due, else None; meant for once a second. Never raises.

        A walk that did not finish returns None for every value: part of a sum is not the sum.
        """
        if self._guard.is_shut:
            return None
        try:
            return self._measure()
        except Exception as error:  # noqa: BLE001 - the steps go on without these values
            self._guard.count(error)
            return dict(_UNMEASURED)

    def _measure(self) -> State | None:
        now_s = self._clock.monotonic_s()
        if not self.is_new and now_s < self._rest_s:
            return None
        optimizers = self.optimizers
        entries = sum(
            len(it.state) + sum(len(group["params"]) for group in it.param_groups) for it in optimizers
        )
        if not self.is_new and now_s < self._next_s and entries == self._entries:
            self._rest_after(now_s)
            return None
        self._walks += 1
        self._entries = entries
        state = self._walk(optimizers, now_s)
        ended_s = self._rest_after(now_s)
        self._next_s = max(ended_s + _EVERY_S, self._rest_s)
        return state

    def _walk(self, optimizers: list[Any], now_s: float) -> State:
        """Return the bytes, or None for all if one cannot be known; the note says why."""
        if self._is_crowded:
            self.note = (
                f"the model's size is not reported: more than {MOST_OPTIMIZERS:,} optimizers have stepped"
            )
            return dict(_UNMEASURED)
        state = measure_state(optimizers, self._clock.monotonic_s, now_s + _LONGEST_WALK_S)
        self.note = None
        if state is None:
            self.note = (
                "the model's size is not reported: counting it took the training longer than "
                f"{1000.0 * _LONGEST_WALK_S:.0f} ms"
            )
        return dict(_UNMEASURED) if state is None else state

    def _rest_after(self, began_s: float) -> float:
        """Plan a rest in proportion to what was begun, and return the time."""
        ended_s = self._clock.monotonic_s()
        self._rest_s = ended_s + _REST_PER_WALK * (ended_s - began_s)
        return ended_s

    @property
    def optimizers(self) -> list[Any]:
        """Those that have stepped and are kept by the program."""
        found = [reference() for reference in list(self._optimizers.values())]
        return [optimizer for optimizer in found if optimizer is not None]


def measure_state(
    optimizers: Iterable[Optimizer], monotonic_s: Callable[[], float], deadline_s: float
) -> State | None:
    """Return the bytes of optimizers, each storage counted once and under its first use.

    A sum with a tensor without a storage is None. Parameters that no optimizer holds (frozen ones, or those
    that an optimizer keeps a copy or a part of) count where they are on a kind of device of one that steps.

    Args:
        optimizers: Of PyTorch; those of Opacus pass the one that they wrap.
        deadline_s: When to give up and return None.
    """
    held = StorageBytes()
    kinds = set()
    for optimizer in optimizers:
        for parameter in _list_parameters(optimizer):
            if monotonic_s() > deadline_s:
                return None
            kinds.add(parameter.device.type)
            held.add("parameters_bytes", parameter)
            _add_gradients(held, parameter)
            for name in ("grad_sample", "summed_grad"):
                for tensor in _tensors(getattr(parameter, name, None)):
                    held.add("grad_sample_bytes", tensor)
            # Not `state[parameter]`: the state is a defaultdict, and looking would change it.
            for tensor in _tensors(optimizer.state.get(parameter)):
                if tensor.device.type == parameter.device.type:
                    held.add("optimizer_bytes", tensor)
    for parameter in _list_module_parameters():
        if monotonic_s() > deadline_s:
            return None
        if parameter.device.type in kinds:
            held.add("parameters_bytes", parameter)
            _add_gradients(held, parameter)
    return {name: held.find(name, None if name == "grad_sample_bytes" else 0) for name in _UNMEASURED}


def _add_gradients(held: StorageBytes, parameter: Tensor) -> None:
    """Count a parameter's gradient, and the buffer in which Megatron-LM accumulates it."""
    held.add("gradients_bytes", parameter.grad)
    held.add("gradients_bytes", getattr(parameter, "main_grad", None))


def _list_module_parameters() -> Iterator[Tensor]:
    """Yield the parameters of all modules of this process, but of those that have no shape yet."""
    met: set[int] = set()
    pending = [module for reference in list(_modules.values()) if (module := reference()) is not None]
    while pending:
        module = pending.pop()
        if module is None or id(module) in met:
            continue
        met.add(id(module))
        for parameter in list(module._parameters.values()):
            if parameter is not None and not hasattr(type(parameter), "materialize"):
                yield parameter
        pending.extend(module._modules.values())


def _list_parameters(optimizer: Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _tensors(held: Tensor) -> Iterator[Tensor]:
    """Yield the tensors that an optimizer keeps for one parameter, some levels deep."""
    pending = [held]
    while pending:
        value = pending.pop()
        if hasattr(value, "untyped_storage"):
            yield value
        elif isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, (list, tuple)):
            pending.extend(value)
