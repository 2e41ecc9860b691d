"""Which devices there are, which is the current one, and what they are."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import torch

from .simulation import Simulation
from .thread_state import state

CAPABILITY = (8, 0)
"""Compute capability that is reported: the first with bfloat16 and flash attention."""
PROCESSORS = 108
WARP_SIZE = 32


@dataclass(frozen=True)
class DeviceProperties:
    """What `torch.cuda.get_device_properties` returns of a simulated device."""

    name: str
    total_memory: int
    major: int = CAPABILITY[0]
    minor: int = CAPABILITY[1]
    multi_processor_count: int = PROCESSORS
    warp_size: int = WARP_SIZE
    is_integrated: bool = False
    is_multi_gpu_board: bool = False
    max_threads_per_block: int = 1024
    max_threads_per_multi_processor: int = 2048
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 48 << 10
    shared_memory_per_block_optin: int = 163 << 10
    shared_memory_per_multiprocessor: int = 164 << 10
    L2_cache_size: int = 40 << 20
    gcnArchName: str = ""  # noqa: N815  (the name in torch)
    uuid: str = ""
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0


def install(simulation: Simulation) -> None:
    """Give torch the functions of a CUDA build that choose and describe devices."""
    cuda = torch.cuda
    low = torch._C
    low._cuda_getDeviceCount = lambda: simulation.devices.count
    low._cuda_init = lambda: None
    low._cuda_getDevice = lambda: state.device
    low._cuda_setDevice = _make_set(simulation)
    low._cuda_exchangeDevice = low._cuda_maybeExchangeDevice = _make_exchange(simulation)
    low._cuda_synchronize = lambda: _synchronize(simulation)
    low._cuda_canDeviceAccessPeer = lambda device, peer: True
    low._cuda_getArchFlags = lambda: f"sm_{CAPABILITY[0]}{CAPABILITY[1]}"
    low._cuda_ipc_collect = lambda: None
    low._cuda_isCurrentStreamCapturing = lambda: False
    low._cuda_set_sync_debug_mode = lambda mode: None
    low._cuda_get_sync_debug_mode = lambda: 0
    low._cuda_sleep = lambda cycles: None
    low._cuda_isInBadFork = cuda._is_in_bad_fork = lambda: simulation.devices.is_foreign
    cuda._cudart = CudaRuntime(simulation)
    cuda._exchange_device = low._cuda_exchangeDevice
    cuda._maybe_exchange_device = low._cuda_exchangeDevice
    cuda._get_device_properties = _make_properties(simulation)
    cuda._device_count_nvml = lambda: -1
    cuda._cached_device_count = None
    # Checks of real hardware against what torch was built for, queued when torch.cuda was imported.
    cuda._queued_calls.clear()
    for clear in (cuda.device_count, cuda.is_bf16_supported):
        getattr(clear, "cache_clear", lambda: None)()
    cuda.is_available = lambda: simulation.devices.count > 0
    cuda.utilization = cuda.temperature = cuda.power_draw = cuda.clock_rate = _not_measured
    cuda.device_memory_used = lambda device=None: _used(simulation, device)
    cuda.nvtx._nvtx = Markers()
    cuda._vramscope_simulated = simulation.mark


class CudaRuntime:
    """What scripts call of `torch.cuda.cudart()`."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def cudaMemGetInfo(self, device: int) -> tuple[int, int]:  # noqa: N802  (CUDA's name)
        """Return free and total bytes of a card, all processes counted."""
        card = self._simulation.card(device)
        card.open_context()
        return card.memory.free_bytes(), card.total_bytes

    def cudaProfilerStart(self) -> int:  # noqa: N802  (CUDA's name)
        """Do nothing: there is nothing to profile."""
        return 0

    def cudaProfilerStop(self) -> int:  # noqa: N802  (CUDA's name)
        """Do nothing: there is nothing to profile."""
        return 0


class Markers:
    """What `torch.cuda.nvtx` calls: marks for a profiler that is not there."""

    def __init__(self) -> None:
        self._depth = 0

    def rangePushA(self, message: str) -> int:  # noqa: N802  (NVTX's name)
        """Return the depth of the range that begins."""
        self._depth += 1
        return self._depth - 1

    def rangePop(self) -> int:  # noqa: N802  (NVTX's name)
        """Return the depth of the range that ends."""
        self._depth -= 1
        return self._depth

    def markA(self, message: str) -> None:  # noqa: N802  (NVTX's name)
        """Mark an instant."""

    def rangeStartA(self, message: str) -> int:  # noqa: N802  (NVTX's name)
        """Return the handle of a range."""
        return 0

    def rangeEnd(self, handle: int) -> None:  # noqa: N802  (NVTX's name)
        """End a range."""

    def deviceRangeStart(self, *_: Any) -> None:  # noqa: N802  (NVTX's name)
        """Mark the begin of a range on a stream."""

    deviceRangeEnd = deviceRangeStart  # noqa: N815  (NVTX's name)


def _make_set(simulation: Simulation) -> Any:
    def set_device(ordinal: int) -> None:
        torch.cuda._lazy_init()
        simulation.choose(simulation.devices.check(ordinal))

    return set_device


def _make_exchange(simulation: Simulation) -> Any:
    def exchange(ordinal: int) -> int:
        before = state.device
        if ordinal is None or ordinal < 0:
            return -1
        if ordinal != before:
            simulation.choose(simulation.devices.check(ordinal))
        return before

    return exchange


def _make_properties(simulation: Simulation) -> Any:
    def get_properties(ordinal: int) -> DeviceProperties:
        config = simulation.config
        number = simulation.devices.cards[ordinal]
        identity = uuid.uuid5(uuid.NAMESPACE_OID, f"sim-{config.job}-{number}")
        return DeviceProperties(config.name, config.total_bytes, uuid=str(identity), pci_bus_id=number)

    return get_properties


def _synchronize(simulation: Simulation) -> None:
    simulation.card().allocator.synchronize()


def _used(simulation: Simulation, device: Any) -> int:
    card = simulation.card(device)
    return card.total_bytes - card.memory.free_bytes()


def _not_measured(device: Any = None) -> int:
    raise RuntimeError("a simulated device has no utilization, temperature, power or clock")
