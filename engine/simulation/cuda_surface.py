"""`torch.cuda` and `torch.accelerator`: given the C functions below them, torch's own Python runs above."""

from __future__ import annotations

from . import accelerator, device_functions, generators, memory_functions, refusals, replication, streams
from .simulation import Simulation

__all__ = ["install"]


def install(simulation: Simulation) -> None:
    """Give torch the functions that a CUDA build has."""
    device_functions.install(simulation)
    memory_functions.install(simulation)
    streams.install(simulation)
    generators.install(simulation)
    accelerator.install(simulation)
    replication.install()
    refusals.install()
