"""The functions of a CUDA build: memory statistics and history, devices, `torch.accelerator`, replication."""

from __future__ import annotations

import inspect
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import torch

from . import generators, streams
from .card import Allocator, Card
from .devices import state
from .host_memory import MOST_STACKS, Stack, capture_stack
from .simulation import Simulation
from .streams import Stream


class UserFrames:
    """Returns the frames of the calling thread without those of the model; one list for one stack."""

    def __init__(self, allocator: Allocator, capture: Callable[[], Stack]) -> None:
        # The model is loaded by path, so its files are known by their folder, whatever its name is.
        self._folder = str(Path(inspect.getfile(type(allocator))).parent)
        self._capture = capture
        self._known: dict[Stack, list[dict[str, Any]]] = {}

    def __call__(self) -> list[dict[str, Any]]:
        """Innermost first."""
        stack = self._capture()
        frames = self._known.get(stack)
        if frames is None:
            if len(self._known) >= MOST_STACKS:
                self._known.clear()
            frames = self._known[stack] = [
                frame for frame in stack.frames if not str(frame["filename"]).startswith(self._folder)
            ]
        return frames


# If the script sets no limit.
MOST_HISTORY_ENTRIES = 1_000_000
# Key among the allocator's settings in a snapshot: the modelled card.
MARK = "vramscope_simulated"


def install_memory_functions(simulation: Simulation) -> None:
    low = torch._C
    card = simulation.card
    low._cuda_memoryStats = lambda device: card(device).allocator.memory_stats_as_nested_dict()
    low._cuda_resetPeakMemoryStats = lambda device: card(device).allocator.reset_peak_memory_stats()
    low._cuda_resetAccumulatedMemoryStats = lambda device: card(
        device
    ).allocator.reset_accumulated_memory_stats()
    low._cuda_emptyCache = lambda: _empty(simulation)
    low._cuda_setMemoryFraction = lambda fraction, device: _limit(card(device), fraction)
    low._cuda_getMemoryFraction = lambda device: (
        1.0 if card(device).fraction is None else card(device).fraction
    )
    low._cuda_memorySnapshot = _make_snapshot(simulation)
    history = History(simulation)
    low._cuda_record_memory_history = history.record
    low._cuda_record_memory_history_legacy = history.record_legacy
    low._cuda_isHistoryEnabled = lambda: history.is_on
    low._cuda_allocationTraceback = lambda address: _trace_back(simulation, address)
    low._cuda_getAllocatorBackend = lambda: "native"
    low._cuda_cudaCachingAllocator_is_enabled = lambda: True
    low._cuda_cudaCachingAllocator_enable = lambda value: None
    low._cuda_hostMemoryStats = lambda: _host_stats(simulation)
    low._cuda_resetPeakHostMemoryStats = lambda: _reset_host_peak(simulation)
    low._cuda_resetAccumulatedHostMemoryStats = lambda: None
    metadata = [""]
    low._cuda_setMemoryMetadata = lambda text: metadata.__setitem__(0, text)
    low._cuda_getMemoryMetadata = lambda: metadata[0]


class History:
    """Memory history as `torch.cuda.memory._record_memory_history` switches it."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.is_on = False

    def record(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = sys.maxsize,
        *_: Any,
    ) -> None:
        """Record on every card, or stop."""
        torch.cuda._lazy_init()
        self.is_on = enabled is not None
        for card in self._simulation.cards:
            frames = UserFrames(card.allocator, capture_stack) if context is not None else None
            if enabled is None:
                card.allocator.record_history(None)
            else:
                entries = min(max_entries, MOST_HISTORY_ENTRIES) if enabled == "all" else 1
                card.allocator.record_history(entries, frames)

    def record_legacy(
        self, enabled: bool, record_context: bool = True, max_entries: int = 1, *_: Any
    ) -> None:
        """The call of PyTorch 2.0."""
        self.record("all" if enabled else None, "all" if record_context else None, "all", max_entries)


def _make_snapshot(simulation: Simulation) -> Any:
    def take_snapshot(options: Any = None) -> dict[str, Any]:
        """Return segments of all cards; traces too unless the third option is False."""
        snapshots = []
        for card in simulation.cards:
            snapshot = card.allocator.snapshot()
            card.add_frames(snapshot["segments"])
            snapshots.append(snapshot)
        merged = dict(snapshots[0]) if snapshots else {"segments": [], "device_traces": []}
        config = simulation.config
        card_mark = {"total_bytes": config.total_bytes, "name": config.name}
        merged["allocator_settings"] = {**merged.get("allocator_settings", {}), MARK: card_mark}
        merged["segments"] = [segment for it in snapshots for segment in it["segments"]]
        has_traces = not (isinstance(options, tuple) and len(options) == 3 and not options[2])
        merged["device_traces"] = [
            _traces_of(it, ordinal) if has_traces else [] for ordinal, it in enumerate(snapshots)
        ]
        return merged

    return take_snapshot


def _traces_of(snapshot: dict[str, Any], ordinal: int) -> list[Any]:
    """Return the trace of one card from a snapshot that may have lists for other devices too."""
    traces = snapshot.get("device_traces", [])
    return list(traces[ordinal]) if ordinal < len(traces) else [it for trace in traces for it in trace]


def _trace_back(simulation: Simulation, address: int) -> list[dict[str, object]] | None:
    for card in simulation.cards:
        stack = card.stacks.get(address)
        if stack is not None:
            return stack.frames
    return None


def _empty(simulation: Simulation) -> None:
    for card in simulation.cards:
        card.empty_cache()


def _limit(card: Card, fraction: float) -> None:
    card.fraction = fraction
    card.allocator.set_memory_fraction(fraction)


def _host_stats(simulation: Simulation) -> dict[str, Any]:
    """The modelled part of `torch.cuda.host_memory_stats_as_nested_dict`."""
    pinned = simulation.pinned
    size_bytes = {"current": pinned.current_bytes, "peak": pinned.peak_bytes}
    return {
        "allocated_bytes": size_bytes,
        "active_bytes": dict(size_bytes),
        "allocations": {"current": pinned.current, "allocated": pinned.allocated},
    }


def _reset_host_peak(simulation: Simulation) -> None:
    simulation.pinned.peak_bytes = simulation.pinned.current_bytes


def install_accelerator(simulation: Simulation) -> None:
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


WARP_SIZE = 32


@dataclass(frozen=True)
class DeviceProperties:
    """`torch.cuda.get_device_properties` of a simulated device."""

    name: str
    total_memory: int
    major: int
    minor: int
    multi_processor_count: int
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


def install_device_functions(simulation: Simulation) -> None:
    """Install the functions of a CUDA build that choose and describe devices."""
    cuda = torch.cuda
    low = torch._C
    low._cuda_getDeviceCount = lambda: simulation.devices.count
    low._cuda_init = lambda: None
    low._cuda_getDevice = lambda: state.device
    low._cuda_setDevice = _make_set(simulation)
    # Two functions: Dynamo knows each by its identity.
    low._cuda_exchangeDevice = _make_exchange(simulation)
    low._cuda_maybeExchangeDevice = _make_exchange(simulation)
    low._cuda_synchronize = lambda: _synchronize(simulation)
    low._cuda_canDeviceAccessPeer = lambda device, peer: True
    low._cuda_getArchFlags = lambda: "sm_{}{}".format(*simulation.config.capability)
    low._cuda_ipc_collect = lambda: None
    low._cuda_isCurrentStreamCapturing = lambda: False
    low._cuda_set_sync_debug_mode = lambda mode: None
    low._cuda_get_sync_debug_mode = lambda: 0
    low._cuda_sleep = lambda cycles: None
    low._cuda_isInBadFork = cuda._is_in_bad_fork = lambda: simulation.devices.is_foreign
    cuda._cudart = CudaRuntime(simulation)
    cuda._exchange_device = low._cuda_exchangeDevice
    cuda._maybe_exchange_device = low._cuda_maybeExchangeDevice
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
    """The part of `torch.cuda.cudart()` that scripts call."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def cudaMemGetInfo(self, device: int) -> tuple[int, int]:  # noqa: N802  (CUDA's name)
        """Return free and total bytes of a card, with all processes."""
        card = self._simulation.card(device)
        card.open_context()
        return card.memory.free_bytes(), card.total_bytes

    def cudaProfilerStart(self) -> int:  # noqa: N802  (CUDA's name)
        """Do nothing: there is nothing to profile."""
        return 0

    def cudaProfilerStop(self) -> int:  # noqa: N802  (CUDA's name)
        return 0


class Markers:
    """`torch.cuda.nvtx`: marks for a profiler that does not exist."""

    def __init__(self) -> None:
        self._depth = 0

    def rangePushA(self, message: str) -> int:  # noqa: N802  (NVTX's name)
        self._depth += 1
        return self._depth - 1

    def rangePop(self) -> int:  # noqa: N802  (NVTX's name)
        self._depth -= 1
        return self._depth

    def markA(self, message: str) -> None:  # noqa: N802  (NVTX's name)
        ...

    def rangeStartA(self, message: str) -> int:  # noqa: N802  (NVTX's name)
        return 0

    def rangeEnd(self, handle: int) -> None:  # noqa: N802  (NVTX's name)
        ...

    def deviceRangeStart(self, *_: Any) -> None:  # noqa: N802  (NVTX's name)
        ...

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
        return DeviceProperties(
            config.name,
            config.total_bytes,
            *config.capability,
            config.multiprocessors,
            uuid=str(identity),
            pci_bus_id=number,
        )

    return get_properties


def _synchronize(simulation: Simulation) -> None:
    simulation.card().allocator.synchronize()


def _used(simulation: Simulation, device: Any) -> int:
    card = simulation.card(device)
    return card.total_bytes - card.memory.free_bytes()


def _not_measured(device: Any = None) -> int:
    raise RuntimeError("a simulated device has no utilization, temperature, power or clock")


__all__ = ["install_cuda_surface"]


def install_cuda_surface(simulation: Simulation) -> None:
    install_device_functions(simulation)
    install_memory_functions(simulation)
    streams.install(simulation)
    generators.install(simulation)
    install_accelerator(simulation)
    install_replication()
    install_refusals()


Tensors = Sequence[Any]


def install_replication() -> None:
    """Install the functions of a CUDA build that copy to several devices at once."""
    low = torch._C
    low._broadcast = _broadcast
    low._broadcast_coalesced = lambda tensors, devices, buffer_bytes: [
        [tensor.cuda(device) for tensor in tensors] for device in devices
    ]
    low._scatter = _scatter
    low._gather = _gather
    torch.cuda.nccl.is_available = lambda tensors: False


def _broadcast(tensor: Any, devices: Sequence[int]) -> list[Any]:
    """Return a tensor on each device; on its own device it is itself."""
    return [tensor.cuda(device) for device in devices]


def _scatter(tensor: Any, devices: Sequence[int], sizes: Any, dim: int, streams: Any = None) -> list[Any]:
    """Return the parts of a tensor, one on each device until there are no more."""
    parts = tensor.chunk(len(devices), dim) if sizes is None else tensor.split(list(sizes), dim)
    return [part.contiguous().cuda(device) for part, device in zip(parts, devices)]


def _gather(tensors: Tensors, dim: int, destination: int | None) -> Any:
    """Concatenate parts on one device; -1 is the host."""
    target = "cpu" if destination == -1 else torch.device("cuda", destination or 0)
    return torch.cat([tensor.to(target) for tensor in tensors], dim)


def install_refusals() -> None:
    """Refuse CUDA graphs."""
    refused: dict[str, Any] = {
        **{name: _make_refusing_class(name) for name in ("CUDAGraph", "graph")},
        **{name: _make_refusal(name) for name in ("make_graphed_callables", "graph_pool_handle")},
    }
    for owner in (torch.cuda, torch.cuda.graphs):
        for name, refusal in refused.items():
            setattr(owner, name, refusal)


def _make_refusal(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(
            f"torch.cuda.{name} is not simulated: capture and replay need a real GPU; run without CUDA graphs"
        )

    return refuse


def _make_refusing_class(name: str) -> type:
    """Return a class that cannot be instantiated, but can be an annotation."""
    return type(name, (), {"__init__": _make_refusal(name)})
