"""Generators of the card: the host's numbers, and a state in CUDA's form.

So the same seed gives the same numbers as on the host. A state of CUDA is 16 bytes, seed and offset, and code
takes it apart (`torch.distributed.tensor`); one of the host has 5,056. Once numbers were drawn, taking the
state moves the generator to where seed and offset alone determine what follows.
"""

from __future__ import annotations

from typing import Any

import torch

from .devices import HOST, inside, targeting
from .simulation import Simulation

_STATE_BYTES = 16
# Numbers that CUDA's generators draw at once; their offsets are multiples of it.
_STRIDE = 4
_LARGEST = 1 << 64
# An odd number of many bits: neighbouring offsets get seeds far apart.
_SPREAD = 0x9E3779B97F4A7C15


_Original = torch.Generator


class GeneratorMeta(type(_Original)):  # type: ignore[misc]
    """Lets the generators of the host, which are of the original class, count as instances too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Original)


class Generator(_Original, metaclass=GeneratorMeta):  # type: ignore[misc, valid-type]
    """A generator that knows its simulated device."""

    simulation: Any = None
    _device: Any = None
    # State in CUDA's form, and the host's when that was set.
    _place: Any = None

    def __new__(cls, device: Any = "cpu") -> Any:
        target = cls.simulation.devices.resolve(device)
        if target >= 0:
            return cls.make_on(cls.simulation.devices.names[target])
        return _Original.__new__(cls, device if target < HOST else "cpu")

    def __init__(self, device: Any = "cpu") -> None:
        pass

    @classmethod
    def make_on(cls, name: Any) -> Any:
        """Make a generator of the host that answers for a card."""
        made = _Original.__new__(cls, "cpu")
        made._device = name
        made._note(_Original.initial_seed(made), 0)
        return made

    @property
    def device(self) -> Any:
        return _Original.device.__get__(self) if self._device is None else self._device

    def manual_seed(self, seed: int) -> Any:
        _Original.manual_seed(self, seed)
        self._note(_Original.initial_seed(self), 0)
        return self

    def seed(self) -> int:
        seed = _Original.seed(self)
        self._note(seed, 0)
        return int(seed)

    def initial_seed(self) -> int:
        return int(_Original.initial_seed(self)) if self._device is None else int(self._place[0])

    def get_state(self) -> Any:
        if self._device is None:
            return _Original.get_state(self)
        return _pack(*self._settle())

    def set_state(self, new_state: Any) -> Any:
        with inside():
            is_cuda = self._device is not None and new_state.numel() == _STATE_BYTES
            if not is_cuda:
                _Original.set_state(self, new_state)
                self._note(_Original.initial_seed(self), 0)
                return self
        self._move(*_unpack(new_state))
        return self

    graphsafe_get_state = get_state
    graphsafe_set_state = set_state

    def clone_state(self) -> Any:
        if self._device is None:
            return _Original.clone_state(self)
        return Generator(self._device).set_state(self.get_state())

    def get_offset(self) -> int:
        return int(_Original.get_offset(self)) if self._device is None else int(self._settle()[1])

    def set_offset(self, offset: int) -> Any:
        if self._device is None:
            return _Original.set_offset(self, offset)
        self._move(self._place[0], offset)
        return self

    def __reduce__(self) -> Any:
        return _restore, (str(self.device), self.get_state())

    def _settle(self) -> tuple[int, int]:
        """Return seed and offset, from which alone all further numbers follow."""
        seed, offset, at_host = self._place
        if not _is_same(at_host, _Original.get_state(self)):
            self._move(seed, offset + _STRIDE)
        return self._place[0], self._place[1]

    def _move(self, seed: int, offset: int) -> None:
        _Original.manual_seed(self, _mix(seed, offset))
        self._note(seed, offset)

    def _note(self, seed: int, offset: int) -> None:
        if self._device is not None:
            self._place = seed, offset, _Original.get_state(self)


def install(simulation: Simulation) -> None:
    """Replace `torch.Generator`, and make a default generator for each card."""
    Generator.simulation = simulation
    Generator.__name__ = Generator.__qualname__ = "Generator"
    Generator.__module__ = _Original.__module__
    torch.Generator = Generator
    # Not by naming the cards, which would initialise CUDA: meshes of devices choose the card of a rank only
    # while it is not.
    torch.cuda.default_generators = tuple(map(Generator.make_on, simulation.devices.names))


def seed_host() -> None:
    """Let the host's generator draw what follows from the state of the current card's.

    Numbers on a card are drawn there, so that the host's state, saved and restored around a draw, would
    bring the same ones again.
    """
    seed, offset = _unpack(torch.cuda.get_rng_state())
    torch.default_generator.manual_seed(_mix(seed, offset))


def _mix(seed: int, offset: int) -> int:
    """Return a seed of the host; at offset 0 it is the card's."""
    return (seed + offset * _SPREAD) % _LARGEST


def _pack(seed: int, offset: int) -> Any:
    data = seed.to_bytes(8, "little") + offset.to_bytes(8, "little")
    with targeting(HOST):
        return torch.tensor(list(data), dtype=torch.uint8)


def _unpack(packed: Any) -> tuple[int, int]:
    data = bytes(packed.tolist())
    return int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")


def _is_same(first: Any, second: Any) -> bool:
    with torch._C._DisableTorchDispatch():
        return bool(torch.equal(first, second))


def _restore(device: str, generator_state: Any) -> Any:
    made = torch.Generator(device)
    made.set_state(generator_state)
    return made
