"""A stand-in for `torch.cuda` and what lies around it, where a build for the CPU has nothing to ask.

It answers in the shape that PyTorch documents (`torch.cuda.memory_stats`, `memory_snapshot`), keeps what it
was asked, and fails the test when it is asked for what would create a context.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

MIB = 1 << 20
GROUPS = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
POOLS = ("all", "small_pool", "large_pool")
KINDS = ("current", "peak", "allocated", "freed")
COUNTERS = (
    "num_alloc_retries",
    "num_ooms",
    "num_sync_all_streams",
    "num_device_alloc",
    "num_device_free",
    "max_split_size",
)


class StandInCuda:
    """Answers by the names of `torch.cuda`."""

    def __init__(self, devices: int = 1) -> None:
        self.is_ready = True
        self.devices = [dict.fromkeys((*GROUPS, *COUNTERS, "peak", "calls"), 0) for _ in range(devices)]
        self.fraction = 1.0
        self.pinned = 0
        self.segments: list[dict[str, Any]] = []
        self.records: list[dict[str, Any]] = []
        self.is_recording = False
        self.observers: list[Callable[..., None]] = []
        self.emptied = 0
        self.is_capturing = False
        self.memory = SimpleNamespace(_record_memory_history=self._record)

    def allocate(self, size: int, device: int = 0) -> None:
        """Let a device hold some bytes more, or fewer."""
        figures = self.devices[device]
        for name in ("allocated_bytes", "requested_bytes", "active_bytes"):
            figures[name] += size
        figures["reserved_bytes"] = max(figures["reserved_bytes"], figures["allocated_bytes"])
        figures["peak"] = max(figures["peak"], figures["allocated_bytes"])
        figures["calls"] += size > 0

    def reset_peak(self, device: int = 0) -> None:
        """Do what `reset_peak_memory_stats` does; only the program may."""
        self.devices[device]["peak"] = self.devices[device]["allocated_bytes"]

    def empty_cache(self) -> None:
        """Give back what is held and not in use."""
        assert not self.is_capturing
        self.emptied += 1
        for figures in self.devices:
            figures["reserved_bytes"] = figures["allocated_bytes"]

    def is_current_stream_capturing(self) -> bool:
        """Tell whether a CUDA graph is being recorded."""
        return self.is_capturing

    def is_initialized(self) -> bool:
        """Tell whether the program has initialised the runtime."""
        return self.is_ready

    def device_count(self) -> int:
        """Return the number of devices."""
        assert self.is_ready
        return len(self.devices)

    def memory_stats_as_nested_dict(self, device: int) -> dict[str, Any]:
        """Return 122 statistics, as PyTorch nests them."""
        assert self.is_ready
        figures = self.devices[device]
        stats: dict[str, Any] = {name: figures[name] for name in COUNTERS}
        for group in GROUPS:
            held = figures[group]
            stats[group] = {pool: dict.fromkeys(KINDS, held) for pool in POOLS}
        for group in ("oversize_allocations", "oversize_segments"):
            stats[group] = dict.fromkeys(KINDS, 0)
        stats["allocated_bytes"]["all"]["peak"] = figures["peak"]
        stats["allocation"]["all"]["allocated"] = figures["calls"]
        return stats

    def host_memory_stats_as_nested_dict(self) -> dict[str, Any]:
        """Return the statistics of pinned memory."""
        held = {"current": self.pinned, "peak": self.pinned}
        return {"allocated_bytes": held, "active_bytes": {"current": 0, "peak": self.pinned}}

    def get_device_properties(self, device: int) -> SimpleNamespace:
        """Return what CUDA says of a device."""
        assert self.is_ready
        return SimpleNamespace(
            name="Stand-in 24G",
            total_memory=24 * 1024 * MIB,
            uuid=f"11111111-2222-3333-4444-{device:012d}",
            pci_bus_id=0x3B + device,
            pci_device_id=0,
            pci_domain_id=0,
        )

    def get_per_process_memory_fraction(self, device: int) -> float:
        """Return the limit that the program has set."""
        assert self.is_ready
        assert device < len(self.devices)
        return self.fraction

    def memory_snapshot(self, mempool_id: object = None, include_traces: bool = True) -> list[dict[str, Any]]:
        """Return the segments; never to be asked with traces."""
        assert self.is_ready
        assert not include_traces
        return self.segments

    def _record(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = 2**63 - 1,
    ) -> None:
        self.is_recording = enabled is not None
        self.records.append(
            {"enabled": enabled, "context": context, "stacks": stacks, "max_entries": max_entries}
        )


def make_torch(cuda: StandInCuda, *, has_history: bool = True, has_observer: bool = True) -> SimpleNamespace:
    """Return a stand-in for the module torch around the one for its part CUDA."""
    private: dict[str, object] = {}
    if has_history:
        private["_cuda_isHistoryEnabled"] = lambda: cuda.is_recording
    if has_observer:
        private["_cuda_attach_out_of_memory_observer"] = cuda.observers.append
    return SimpleNamespace(
        cuda=cuda,
        version=SimpleNamespace(hip=None),
        __version__="0.0+stand-in",
        _C=SimpleNamespace(**private),
    )


class StandInParameter:
    """What is asked of a parameter: where it lives, and its storage."""

    grad = None

    def __init__(self, device_type: str, index: int | None) -> None:
        self.device = SimpleNamespace(type=device_type, index=index)

    def untyped_storage(self) -> SimpleNamespace:
        """Return a storage of four bytes."""
        return SimpleNamespace(device=self.device, data_ptr=lambda: id(self), nbytes=lambda: 4)


class StandInOptimizer:
    """What is asked of an optimizer: its parameters, and its state."""

    def __init__(self, device_type: str = "cuda", index: int | None = 0) -> None:
        self.param_groups = [{"params": [StandInParameter(device_type, index)]}]
        self.state: dict[object, object] = {}


def make_segment(
    blocks: list[tuple[int, str]], *, address: int = 1 << 40, frames: int = 0, **fields: object
) -> dict[str, Any]:
    """Return a segment as `memory_snapshot` spells it.

    Args:
        blocks: Size and state of each, in order of address.
        address: Of the segment.
        frames: How many frames each live block carries; 0 for none.
        **fields: What differs from a plain large segment of device 0.
    """
    described = []
    position = address
    for size, state in blocks:
        block: dict[str, Any] = {"address": position, "size": size, "requested_size": size, "state": state}
        if frames and state == "active_allocated":
            block["frames"] = [
                {"filename": f"/code/layer_{size}.py", "line": 10 + depth, "name": f"f{depth}"}
                for depth in range(frames)
            ]
        described.append(block)
        position += size
    total = sum(size for size, _ in blocks)
    return {
        "device": 0,
        "address": address,
        "total_size": total,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "blocks": described,
        **fields,
    }
