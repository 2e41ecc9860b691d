"""Puts the simulated device into a process, part by part."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _device as default_devices
from torch.utils._python_dispatch import _pop_mode

from . import direct_attention, distributed
from .card import AllocatorModule, DeviceMemory, PrivateMemory, SimulationConfig
from .compiled_regions import install_compile
from .device_functions import install_cuda_surface
from .dispatch_mode import AccountingMode
from .host_memory import watch_host, watch_nothing
from .kernels import FusedKernels, install_cuda_types
from .ledger import CardLedger
from .patching import PatchedNames, replace
from .simulation import Simulation
from .tensor_methods import (
    Factories,
    StorageMethods,
    TensorMethods,
    install_device_type,
    install_legacy_types,
)

# Prefix of the probe's threads: they watch, and make no tensors.
OWN_THREADS = "vramscope-"


def install_threads(simulation: Simulation, mode: Any) -> None:
    """Count in this thread and in every thread that starts; stop counting in forked children."""
    _enter(mode)
    replace(threading.Thread, "_bootstrap_inner", lambda original: _make_bootstrap(original, mode))
    os.register_at_fork(after_in_child=lambda: _close_card(simulation))


def _enter(mode: Any) -> None:
    # Not `with mode`: torch shall not think that a user's mode is active.
    torch._C._push_on_torch_dispatch_stack(mode)


def _make_bootstrap(original: Any, mode: Any) -> Any:
    def bootstrap(thread: threading.Thread) -> None:
        if thread.name.startswith(OWN_THREADS):
            original(thread)
            return
        _enter(mode)
        try:
            original(thread)
        finally:
            # All modes of the thread, whoever entered them. One that is still there when the thread ends is
            # released by the thread's destructors in C++, which ask for the GIL; if the interpreter is about
            # to end, that ends the process with an abort.
            while torch._C._len_torch_dispatch_stack():
                _pop_mode()

    return bootstrap


def _close_card(simulation: Simulation) -> None:
    """In a forked child: the blocks stay the parent's, and a device that was in use cannot be used here."""
    simulation.registry.is_closed = True
    simulation.devices.is_foreign = torch.cuda._initialized
    if not torch.cuda._initialized:
        simulation.registry.is_closed = False


def install_autocast() -> None:
    """Settings for CUDA count for the host too; torch itself answers questions about CUDA."""
    replace(torch, "set_autocast_enabled", _make_setter)
    replace(torch, "set_autocast_dtype", _make_setter)
    replace(torch, "set_autocast_gpu_dtype", lambda _: lambda dtype: torch.set_autocast_dtype("cuda", dtype))


def _make_setter(original: Any) -> Any:
    def set_value(*args: Any) -> None:
        # The old form names no device and means CUDA.
        device, value = args if len(args) == 2 else ("cuda", args[0])
        original(device, value)
        if device == "cuda":
            original("cpu", value)

    return set_value


# With them CUDA's defaults follow by themselves: optimizers and gradient clipping choose their foreach
# kernels.


def install_grouping() -> None:
    """Group tensors by the devices that they answer."""
    replace(torch._C, "_group_tensors_by_device_and_dtype", _make_group)


def _make_group(original: Any) -> Any:
    def group(lists: Any, with_indices: bool = False) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for (_, dtype), (members, indices) in original(lists, with_indices).items():
            devices = [tensor.device for tensor in members[0]]
            for device in dict.fromkeys(devices):
                chosen = [position for position, it in enumerate(devices) if it == device]
                found[device, dtype] = (
                    [[it[position] for position in chosen] if it else it for it in members],
                    [indices[position] for position in chosen] if indices else indices,
                )
        return found

    return group


def install(content: Mapping[str, Any], allocator_module: AllocatorModule) -> Simulation:
    """Put the simulated device into this process."""
    config = SimulationConfig.read(content)
    host = watch_nothing() if config.is_fake else watch_host(config.host_reserve_bytes)
    host.check_capacity(config.total_bytes * config.devices)
    simulation = Simulation(config, allocator_module, lambda number: _make_memory(config, number), host)
    devices = simulation.devices
    registry = simulation.registry
    transfers = simulation.transfers
    patched = _watch_patches() if config.is_fake else None
    install_cuda_surface(simulation)
    TensorMethods(devices, registry, transfers, simulation.pinned).install()
    StorageMethods(devices, registry).install()
    Factories(devices, registry, transfers, simulation.pinned).install()
    FusedKernels(registry).install()
    install_cuda_types(registry)
    direct_attention.install(registry)
    install_grouping()
    install_legacy_types()
    install_device_type(devices)
    install_autocast()
    distributed.install(registry, simulation.post)
    install_threads(simulation, _make_mode(simulation))
    if patched is not None:
        for names in patched:
            names.finish()
    install_compile(simulation, patched)
    atexit.register(_close, simulation)
    return simulation


def _watch_patches() -> tuple[PatchedNames, PatchedNames]:
    """Watch what is replaced of tensors, and of devices, so that a compiler can see torch without it."""
    from torch._subclasses import fake_tensor

    flex = sys.modules.get("torch._higher_order_ops.flex_attention")
    tensors = PatchedNames(
        [
            torch,
            torch.Tensor,
            torch.UntypedStorage,
            torch._VF,
            torch._subclasses,
            torch.fft,
            torch.nested,
            torch.nn.Module,
            torch.nn.functional,
            torch.nn.init,
            torch.utils,
            default_devices,
            default_devices.DeviceContext,
            torch._C._nn,
            fake_tensor.FakeTensor,
            *([] if flex is None else [flex.FlexAttentionHOP]),
        ],
        # A script has objects of these; autocast of CUDA is that of the host, also where a compiler looks.
        left_out=(
            "Generator",
            "Stream",
            "Event",
            "set_autocast_enabled",
            "set_autocast_dtype",
            "set_autocast_gpu_dtype",
        ),
    )
    cuda = torch.cuda
    return tensors, PatchedNames(
        [cuda, cuda.graphs, cuda.memory, cuda.nccl, cuda.streams, torch._C], left_out=("Stream", "Event")
    )


def _make_mode(simulation: Simulation) -> AccountingMode:
    config = simulation.config
    registry = simulation.registry
    host = simulation.host
    if not config.is_fake:
        return AccountingMode(registry, host, simulation.uses)
    # Fake tensors are not loaded for those who do not ask for them.
    from . import fake_storage

    mode = fake_storage.FakeAccountingMode(
        registry,
        host,
        simulation.uses,
        has_stand_ins=config.has_stand_ins,
        has_largest_sizes=config.has_largest_sizes,
    )
    fake_storage.install(registry, mode)
    if mode.stand_ins is not None:
        simulation.list_readings = mode.stand_ins.list_places
    return mode


def _make_memory(config: SimulationConfig, number: int) -> DeviceMemory:
    """The memory of a card: shared through a file if there is a folder for it."""
    if config.ledger_dir is None:
        return PrivateMemory(config.total_bytes)
    ledger = CardLedger(config.ledger_dir, number, config.total_bytes)
    atexit.register(ledger.close)
    return ledger


def _close(simulation: Simulation) -> None:
    """Stop counting: objects that end with the interpreter end in no order."""
    simulation.registry.is_closed = True
