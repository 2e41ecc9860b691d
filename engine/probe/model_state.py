"""Exact bytes of parameters, gradients and optimizer state, taken from the optimizers themselves."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Callable

from .clock import SystemClock
from .foreign import Foreign, Optimizer, Storage, Tensor

_FIRST_STEPS = 3
"""Of which each is measured: gradients and optimizer state appear in them."""
_EVERY_S = 30.0
_LONGEST_WALK_S = 0.05
_REST_PER_WALK = 1000.0
"""A walk is followed by at least so many times its own length without one: 0.1 % of the training thread."""
_MOST_OPTIMIZERS = 64

State = dict[str, "int | None"]


class ModelStateWatch:
    """Decides when the optimizers are walked through, and does it in the thread that trains."""

    def __init__(self, clock: SystemClock) -> None:
        self.is_given_up = False
        """Whether the newest walk was ended by its limit of time, so that nothing was measured."""
        self._clock = clock
        self._optimizers: dict[int, weakref.ref[Any]] = {}
        self._next_s = float("-inf")
        self._entries = 0
        self._walks = 0
        self._rest_s = float("-inf")

    @property
    def is_new(self) -> bool:
        """Whether the first steps, each of which is measured, are not over."""
        return self._walks < _FIRST_STEPS

    def note_optimizer(self, optimizer: Optimizer) -> None:
        """Remember an optimizer that has stepped, for as long as the program keeps it."""
        identity = id(optimizer)
        if identity not in self._optimizers and len(self._optimizers) < _MOST_OPTIMIZERS:
            forget = self._optimizers
            self._optimizers[identity] = weakref.ref(optimizer, lambda _: forget.pop(identity, None))

    def measure(self) -> State | None:
        """Return the bytes where a walk is due and came to its end, else None; meant for once a second."""
        optimizers = self._living()
        entries = sum(len(it.state) + _count_parameters(it) for it in optimizers)
        now_s = self._clock.monotonic_s()
        if not self.is_new and now_s < self._next_s and (entries == self._entries or now_s < self._rest_s):
            return None
        self._walks += 1
        self._entries = entries
        state = measure_state(optimizers, self._clock.monotonic_s, now_s + _LONGEST_WALK_S)
        ended_s = self._clock.monotonic_s()
        self._rest_s = ended_s + _REST_PER_WALK * (ended_s - now_s)
        self._next_s = max(ended_s + _EVERY_S, self._rest_s)
        self.is_given_up = state is None
        return state

    def _living(self) -> list[Any]:
        found = [reference() for reference in list(self._optimizers.values())]
        return [optimizer for optimizer in found if optimizer is not None]


def measure_state(
    optimizers: Iterable[Optimizer], monotonic_s: Callable[[], float], deadline_s: float
) -> State | None:
    """Return the bytes that optimizers hold, each storage counted once and where it was met first.

    Args:
        optimizers: Of PyTorch; those of Opacus hand over the one that they wrap.
        monotonic_s: The clock.
        deadline_s: When to give up and return None.
    """
    counter = _Counter()
    parameters = gradients = state = samples = 0
    has_samples = False
    for optimizer in optimizers:
        for parameter in _list_parameters(optimizer):
            if monotonic_s() > deadline_s:
                return None
            parameters += counter.count(parameter)
            gradients += counter.count(parameter.grad)
            for name in ("grad_sample", "summed_grad"):
                held = getattr(parameter, name, None)
                has_samples = has_samples or held is not None
                samples += sum(counter.count(tensor) for tensor in _tensors(held))
            # Not `state[parameter]`: the state is a defaultdict, and looking would change it.
            for tensor in _tensors(optimizer.state.get(parameter)):
                if tensor.device.type == parameter.device.type:
                    state += counter.count(tensor)
    return {
        "parameters_bytes": parameters,
        "gradients_bytes": gradients,
        "optimizer_bytes": state,
        "grad_sample_bytes": samples if has_samples else None,
    }


class _Counter:
    """Bytes of storages that were not met before."""

    def __init__(self) -> None:
        self._met: set[Any] = set()
        self._plain = _find_plain_types()

    def count(self, tensor: Tensor) -> int:
        if tensor is None:
            return 0
        is_plain = type(tensor) in self._plain
        if not is_plain and hasattr(type(tensor), "__tensor_flatten__"):
            # A wrapper, as DTensor: its bytes are those of the tensors inside it.
            return sum(self.count(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0])
        storage = tensor.untyped_storage()
        key = (storage.data_ptr() if is_plain else 0) or _identify(storage)
        if key in self._met:
            return 0
        self._met.add(key)
        return int(storage.nbytes())


def _find_plain_types() -> set[Foreign]:
    """Return the types of tensors that are neither wrappers nor fake: most, and quicker to look at."""
    torch = sys.modules.get("torch")
    neural = getattr(torch, "nn", None)
    return {getattr(torch, "Tensor", None), getattr(neural, "Parameter", None)}


def _identify(storage: Storage) -> Foreign:
    """Return what tells a storage from others: its address, and its own object where it has no memory.

    Fake tensors lie on the device `meta`; to ask them for an address makes PyTorch print a warning.
    """
    if storage.device.type != "meta":
        address = storage.data_ptr()
        if address:
            return address
    return ("storage", getattr(storage, "_cdata", id(storage)))


def _list_parameters(optimizer: Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _count_parameters(optimizer: Optimizer) -> int:
    return sum(len(group["params"]) for group in optimizer.param_groups)


def _tensors(held: Tensor) -> Iterator[Tensor]:
    """Yield the tensors in what an optimizer keeps for one parameter, some levels deep."""
    pending = [held]
    while pending:
        value = pending.pop()
        if hasattr(value, "untyped_storage"):
            yield value
        elif isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, (list, tuple)):
            pending.extend(value)
