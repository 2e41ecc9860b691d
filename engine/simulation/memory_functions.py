"""Statistics, snapshots, history and limits of the modelled allocator, under the names of the C functions."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any, Callable

import torch

from .card import Allocator, Card
from .host_memory import MOST_STACKS, Stack, capture_stack
from .simulation import Simulation


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
