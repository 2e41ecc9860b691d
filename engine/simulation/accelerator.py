"""`torch.accelerator`: the same device under its general name."""

from __future__ import annotations

from typing import Any

import torch

from .simulation import Simulation
from .streams import Stream
from .thread_state import state


def install(simulation: Simulation) -> None:
    """Give torch the functions below `torch.accelerator`."""
    low = torch._C
    cuda = torch.device("cuda")
    low._accelerator_getAccelerator = low._get_accelerator = lambda check=None: cuda
    low._accelerator_getDeviceIndex = lambda: state.device
    low._accelerator_setDeviceIndex = low._cuda_setDevice
    low._accelerator_exchangeDevice = low._accelerator_maybeExchangeDevice = low._cuda_exchangeDevice
    low._accelerator_hooks_device_count = lambda: simulation.devices.count
    low._accelerator_hooks_get_current_device = lambda: state.device
    low._accelerator_hooks_set_current_device = low._cuda_setDevice
    low._accelerator_hooks_exchange_device = low._cuda_exchangeDevice
    low._accelerator_hooks_maybe_exchange_device = low._cuda_exchangeDevice
    low._accelerator_synchronizeDevice = lambda device: simulation.card(device).allocator.synchronize()
    low._accelerator_getStream = lambda device: Stream(
        device_index=simulation.card(device).ordinal, stream_id=state.streams.get(device, 0)
    )
    low._accelerator_setStream = _set_stream
    low._accelerator_isAllocatorInitialized = torch.cuda.is_initialized
    low._accelerator_emptyCache = low._cuda_emptyCache
    low._accelerator_emptyHostCache = lambda: None
    low._accelerator_getDeviceStats = low._cuda_memoryStats
    low._accelerator_resetPeakStats = low._cuda_resetPeakMemoryStats
    low._accelerator_resetAccumulatedStats = low._cuda_resetAccumulatedMemoryStats
    low._accelerator_getMemoryInfo = torch.cuda.mem_get_info
    low._accelerator_getDeviceCapability = _get_capability


def _set_stream(stream: Any) -> None:
    torch.cuda.set_stream(stream)


def _get_capability(device: int) -> dict[str, Any]:
    return {"supported_dtypes": {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64}}
