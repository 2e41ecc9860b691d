"""One modelled card as this process sees it: an allocator, and who holds which of its blocks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import torch

from .host_memory import Stack, capture_stack


class DeviceMemory(Protocol):
    """The memory of one card, perhaps shared with other processes."""

    total_bytes: int

    def reserve(self, size_bytes: int) -> bool:
        """Take memory from the card; return False when it has no room."""

    def release(self, size_bytes: int) -> None:
        """Give back what was reserved."""

    def free_bytes(self) -> int:
        """Return what nobody holds at present."""


class Allocator(Protocol):
    """A caching allocator on one card, with PyTorch's rules and statistics."""

    def malloc(self, size_bytes: int, stream: int = 0) -> int:
        """Return the address of a new block; raise the module's out-of-memory error without room."""

    def free(self, address: int) -> None:
        """Take a block back."""

    def record_stream(self, address: int, stream: int) -> None:
        """Keep a block after its end until another stream has passed it."""

    def synchronize(self) -> None:
        """Let every stream pass everything."""

    def empty_cache(self) -> None:
        """Give cached segments back to the card."""

    def memory_stats(self) -> dict[str, Any]:
        """Return the statistics under PyTorch's flat keys."""

    def memory_stats_as_nested_dict(self) -> dict[str, Any]:
        """Return the statistics as PyTorch nests them."""

    def memory_snapshot(self) -> list[dict[str, Any]]:
        """Return segments and blocks as PyTorch does."""

    def record_history(
        self, max_entries: int | None, frames: Callable[[], list[dict[str, Any]]] | None = None
    ) -> None:
        """Keep a trace of what happens; None stops it."""

    def snapshot(self) -> dict[str, Any]:
        """Return segments, traces and settings as PyTorch does."""

    def reset_peak_memory_stats(self) -> None:
        """Let the peaks begin again at the present."""

    def reset_accumulated_memory_stats(self) -> None:
        """Let the counters begin again at zero."""

    def set_memory_fraction(self, fraction: float) -> None:
        """Limit this process to a share of the card."""


class BlockObserver(Protocol):
    """Follows the blocks of a card; called from wherever a tensor is made or ends."""

    def note_allocated(self, address: int, size_bytes: int, stack: Stack) -> None:
        """Note a new block, of the size that was asked for."""

    def note_freed(self, address: int) -> None:
        """Note the end of a block."""

    def note_emptied(self) -> None:
        """Note that the script gave cached segments back."""


class AllocatorModule(Protocol):
    """The package that models the allocator."""

    CachingAllocator: Any
    AllocatorSettings: Any
    AllocatorOutOfMemoryError: type[Exception]


GIB = 1 << 30
DEFAULT_CONTEXT_BYTES = 0


@dataclass(frozen=True)
class SimulationConfig:
    """One kind of card, how many of them, and where processes share them."""

    total_bytes: int
    """Capacity of each card."""
    devices: int = 1
    is_fake: bool = False
    """Whether tensors on the card have no storage."""
    context_bytes: int = DEFAULT_CONTEXT_BYTES
    """What a process takes of a card before its first tensor."""
    host_reserve_bytes: int | None = None
    """Host memory that real tensors may not take; None for a share of the host."""
    job: str = "local"
    ledger_dir: str | None = None
    """Folder of the files through which processes share a card; None for a card of this process alone."""
    allocator_settings: str = ""

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> SimulationConfig:
        """Return the configuration in a mapping; a key that is absent or None has its default."""
        known = {name: content[name] for name in cls.__dataclass_fields__ if content.get(name) is not None}
        return cls(**known)

    @property
    def name(self) -> str:
        """What the card calls itself."""
        return f"Simulated {self.total_bytes / GIB:.3g} GiB GPU"


OutOfMemory: type[Exception] = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError
"""What CUDA raises; the name is torch's own from 2.5 on."""

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def raise_out_of_memory(card: Card, size_bytes: int, cause: Exception | None) -> NoReturn:
    """Tell the probe, then raise.

    Args:
        card: Where there was no room.
        cause: What the allocator model said; None where the context itself did not fit.

    Raises:
        torch.OutOfMemoryError: Always.
    """
    message = _describe(card, size_bytes, cause)
    _tell_probe(card, size_bytes, message)
    raise OutOfMemory(message) from None


def _tell_probe(card: Card, size_bytes: int, message: str) -> None:
    """Let the probe write its flight record while everything is still held; it may not stop the error."""
    probe = sys.modules.get("vramscope_probe")
    record = getattr(probe, "record_out_of_memory", None)
    if record is not None:
        with suppress(Exception):
            record(
                size_bytes=size_bytes,
                message=message,
                device_free_bytes=card.memory.free_bytes(),
                device_index=card.ordinal,
                device_total_bytes=card.total_bytes,
            )


def _describe(card: Card, size_bytes: int, cause: Exception | None) -> str:
    """Return the text of c10/cuda/CUDACachingAllocator.cpp with this card's figures."""
    tried = getattr(cause, "segment_bytes", None) or size_bytes
    stats = card.allocator.memory_stats()
    allocated = int(stats.get("allocated_bytes.all.current", 0))
    reserved = int(stats.get("reserved_bytes.all.current", 0))
    limit = getattr(cause, "limit_bytes", None)
    context = card.context_bytes if card.has_context else 0
    allowed = f"{_format(limit)} allowed; " if limit is not None else ""
    return (
        f"CUDA out of memory. Tried to allocate {_format(tried)}. GPU {card.ordinal} has a total capacity of "
        f"{_format(card.total_bytes)} of which {_format(card.memory.free_bytes())} is free. "
        f"{_describe_others(card, reserved + context)}"
        f"Including non-PyTorch memory, this process has {_format(reserved + context)} memory in use. "
        f"{allowed}Of the allocated memory {_format(allocated)} is allocated by PyTorch, and "
        f"{_format(reserved - allocated)} is reserved by PyTorch but unallocated. If reserved but "
        "unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid "
        "fragmentation.  See documentation for Memory Management  "
        "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )


def _describe_others(card: Card, own_bytes: int) -> str:
    """Name the other processes on a shared card, as far as the card knows them."""
    holders = getattr(card.memory, "holders", None)
    if holders is None:
        return ""
    return "".join(
        f"Process {pid} has {_format(size_bytes)} memory in use. "
        for pid, size_bytes in sorted(holders().items())
        if pid != os.getpid()
    )


def _format(size_bytes: int) -> str:
    for unit, name in _UNITS:
        if size_bytes >= unit:
            return f"{size_bytes / unit:.2f} {name}"
    return f"{size_bytes} bytes"


class Card:
    """A card, from the first tensor of this process on it."""

    def __init__(
        self, ordinal: int, config: SimulationConfig, module: AllocatorModule, memory: DeviceMemory
    ) -> None:
        self.ordinal = ordinal
        """Number by which this process knows the card."""
        self.memory = memory
        self.total_bytes = config.total_bytes
        self.context_bytes = config.context_bytes
        self._out_of_memory = module.AllocatorOutOfMemoryError
        settings = module.AllocatorSettings.parse(config.allocator_settings)
        self.allocator: Allocator = module.CachingAllocator(memory, settings, device=ordinal)
        self.stacks: dict[int, Stack] = {}
        """Who allocated each live block, by address."""
        self.has_context = False
        self.fraction: float | None = None
        self.observer: BlockObserver | None = None
        """Told of each block as it comes and goes."""

    def open_context(self) -> None:
        """Take what a process takes of a card before its first tensor.

        Raises:
            torch.OutOfMemoryError: The card has no room even for that.
        """
        if not self.has_context:
            self.has_context = True
            if self.context_bytes and not self.memory.reserve(self.context_bytes):
                self.has_context = False
                raise_out_of_memory(self, self.context_bytes, None)

    def allocate(self, size_bytes: int, stream: int) -> int:
        """Return the address of a new block.

        Raises:
            torch.OutOfMemoryError: The card has no room.
        """
        if not self.has_context:
            self.open_context()
        try:
            address = self.allocator.malloc(size_bytes, stream)
        except self._out_of_memory as error:
            raise_out_of_memory(self, size_bytes, error)
        stack = self.stacks[address] = capture_stack()
        if self.observer is not None:
            self.observer.note_allocated(address, size_bytes, stack)
        return address

    def free(self, address: int) -> None:
        """Take a block back; called from wherever the last reference to a tensor went."""
        self.stacks.pop(address, None)
        if self.observer is not None:
            self.observer.note_freed(address)
        self.allocator.free(address)

    def empty_cache(self) -> None:
        """Give cached segments back to the card."""
        if self.observer is not None:
            self.observer.note_emptied()
        self.allocator.empty_cache()

    def describe_segments(self) -> list[dict[str, Any]]:
        """Return segments and blocks as `torch.cuda.memory_snapshot()` does, live blocks with frames."""
        segments = self.allocator.memory_snapshot()
        self.add_frames(segments)
        return segments

    def add_frames(self, segments: list[dict[str, Any]]) -> None:
        """Add to live blocks who allocated them."""
        for segment in segments:
            for block in segment["blocks"]:
                stack = self.stacks.get(block["address"])
                if stack is not None and not block.get("frames"):
                    block["frames"] = stack.frames


class PrivateMemory:
    """The memory of a card, counted in this process."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._used_bytes = 0

    def reserve(self, size_bytes: int) -> bool:
        """Take memory; return False when there is no room."""
        if self._used_bytes + size_bytes > self.total_bytes:
            return False
        self._used_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Give memory back."""
        self._used_bytes -= size_bytes

    def free_bytes(self) -> int:
        return self.total_bytes - self._used_bytes
