"""Random numbers: devices have generators of their own to save and restore; values come from the host's.

So the same seed gives the same numbers as on the host, whatever a script does with the generators of CUDA.
"""

from __future__ import annotations

from typing import Any

import torch

from .simulation import Simulation
from .thread_state import HOST


def install(simulation: Simulation) -> None:
    """Put generators in place."""
    original = torch.Generator

    class GeneratorMeta(type(original)):  # type: ignore[misc]
        """Lets the generators of the host, which are of the original class, count as instances too."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    class Generator(original, metaclass=GeneratorMeta):  # type: ignore[misc, valid-type]
        """A generator that knows its simulated device."""

        _device: Any = None

        def __new__(cls, device: Any = "cpu") -> Any:
            """Make a generator of the host that answers for its device."""
            target = simulation.devices.resolve(device)
            made = original.__new__(cls, device if target < HOST else "cpu")
            if target >= 0:
                made._device = simulation.devices.names[target]
            return made

        def __init__(self, device: Any = "cpu") -> None:
            pass

        @property
        def device(self) -> Any:
            """The device it makes numbers for."""
            return original.device.__get__(self) if self._device is None else self._device

        def __reduce__(self) -> Any:
            return _restore, (str(self.device), self.get_state())

    Generator.__name__ = Generator.__qualname__ = "Generator"
    Generator.__module__ = original.__module__
    torch.Generator = Generator
    torch.cuda.default_generators = tuple(Generator(name) for name in simulation.devices.names)


def _restore(device: str, generator_state: Any) -> Any:
    """Return a generator that was pickled."""
    made = torch.Generator(device)
    made.set_state(generator_state)
    return made
