"""Puts the simulated device into a process, part by part."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from typing import Any

from . import autocast, cuda_surface, distributed, grouping, legacy_types, threads
from .config import SimulationConfig
from .dispatch_mode import AccountingMode
from .factories import Factories
from .host_memory import HostMemory, watch_host, watch_nothing
from .kernels import FusedKernels
from .ledger import CardLedger
from .private_memory import PrivateMemory
from .protocols import AllocatorModule, DeviceMemory
from .simulation import Simulation
from .storage_methods import StorageMethods
from .storages import StorageRegistry
from .tensor_methods import TensorMethods


def install(content: Mapping[str, Any], allocator_module: AllocatorModule) -> Simulation:
    """Put the simulated device into this process.

    Args:
        content: The configuration, as `SimulationConfig.read` takes it.
        allocator_module: The package that models the allocator.
    """
    config = SimulationConfig.read(content)
    host = watch_nothing() if config.is_fake else watch_host(config.host_reserve_bytes)
    host.check_capacity(config.total_bytes * config.devices)
    simulation = Simulation(config, allocator_module, lambda number: _make_memory(config, number), host)
    devices = simulation.devices
    registry = simulation.registry
    transfers = simulation.transfers
    cuda_surface.install(simulation)
    TensorMethods(devices, registry, transfers, simulation.pinned).install()
    StorageMethods(devices, registry).install()
    Factories(devices, registry, transfers).install()
    FusedKernels(registry).install()
    grouping.install()
    legacy_types.install()
    autocast.install()
    distributed.install(registry)
    threads.install(simulation, _make_mode(config, registry, host))
    atexit.register(_close, simulation)
    return simulation


def _make_mode(config: SimulationConfig, registry: StorageRegistry, host: HostMemory) -> AccountingMode:
    """Return what accounts: with real storage, or without any."""
    if not config.is_fake:
        return AccountingMode(registry, host)
    # Fake tensors are not loaded for those who do not ask for them.
    from . import fake_storage

    fake_storage.install(registry)
    return fake_storage.FakeAccountingMode(registry, host)


def _make_memory(config: SimulationConfig, number: int) -> DeviceMemory:
    """Return the memory of a card: shared through a file where there is a folder for it."""
    if config.ledger_dir is None:
        return PrivateMemory(config.total_bytes)
    ledger = CardLedger(config.ledger_dir, number, config.total_bytes)
    atexit.register(ledger.close)
    return ledger


def _close(simulation: Simulation) -> None:
    """Stop accounting: what ends with the interpreter ends in no order."""
    simulation.registry.is_closed = True
