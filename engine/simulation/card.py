"""One modelled card as this process sees it: an allocator, and the owners of its blocks."""

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
        """Return False if the card has no room."""

    def release(self, size_bytes: int) -> None: ...

    def free_bytes(self) -> int:
        """What no process has reserved."""


class Allocator(Protocol):
    """A caching allocator on one card, with PyTorch's rules and statistics."""

    def malloc(self, size_bytes: int, stream: int = 0) -> int:
        """Return the address of a new block; without room raise the module's out-of-memory error."""

    def free(self, address: int) -> None: ...

    def record_stream(self, address: int, stream: int) -> None:
        """Keep a block after its end until another stream has passed it."""

    def synchronize(self) -> None:
        """Every stream passes everything."""

    def empty_cache(self) -> None: ...

    def memory_stats(self) -> dict[str, Any]:
        """Statistics under PyTorch's flat keys."""

    def memory_stats_as_nested_dict(self) -> dict[str, Any]:
        """Statistics as PyTorch nests them."""

    def memory_snapshot(self) -> list[dict[str, Any]]:
        """Segments and blocks in PyTorch's form."""

    def record_history(
        self, max_entries: int | None, frames: Callable[[], list[dict[str, Any]]] | None = None
    ) -> None:
        """Record a trace of events; None stops it."""

    def snapshot(self) -> dict[str, Any]:
        """Segments, traces and settings in PyTorch's form."""

    def reset_peak_memory_stats(self) -> None: ...

    def reset_accumulated_memory_stats(self) -> None: ...

    def set_memory_fraction(self, fraction: float) -> None:
        """Limit this process to a share of the card."""


class BlockObserver(Protocol):
    """Follows the blocks of a card; called wherever a tensor is made or ends."""

    def note_allocated(self, address: int, size_bytes: int, stream: int, stack: Stack) -> None:
        """A new block, of the size that was asked for."""

    def note_freed(self, address: int) -> None: ...

    def note_emptied(self) -> None:
        """The script emptied the cache."""


class AllocatorModule(Protocol):
    CachingAllocator: Any
    AllocatorSettings: Any
    AllocatorOutOfMemoryError: type[Exception]


GIB = 1 << 30
DEFAULT_CONTEXT_BYTES = 0


@dataclass(frozen=True)
class SimulationConfig:
    """One kind of card, how many of them, and where processes share them."""

    total_bytes: int
    # Kind of card that the script asked for by name.
    kind: str | None = None
    # Compute capability; by default the first with bfloat16 and flash attention.
    capability: tuple[int, int] = (8, 0)
    multiprocessors: int = 108
    devices: int = 1
    # Tensors on the card have no storage.
    is_fake: bool = False
    # A script that reads a value of such a tensor gets a number instead of being stopped.
    has_stand_ins: bool = False
    # The same for a tensor whose size depends on values: it gets the largest size.
    has_largest_sizes: bool = True
    # Used by a process before its first tensor.
    context_bytes: int = DEFAULT_CONTEXT_BYTES
    # Host memory that real tensors may not use; None for a share of the host.
    host_reserve_bytes: int | None = None
    job: str = "local"
    # This process is one rank of so many, alone: collectives end at once. None where ranks are processes.
    ranks: int | None = None
    rank: int = 0
    # Folder of the files through which processes share a card; None for a card of this process alone.
    ledger_dir: str | None = None
    allocator_settings: str = ""

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> SimulationConfig:
        """A key that is absent or None has its default."""
        known = {name: content[name] for name in cls.__dataclass_fields__ if content.get(name) is not None}
        return cls(**known)

    @property
    def name(self) -> str:
        kind = f"{self.kind} of " if self.kind else ""
        return f"Simulated {kind}{self.total_bytes / GIB:.3g} GiB{'' if self.kind else ' GPU'}"


# CUDA's error; the name is torch's own from 2.5 on.
OutOfMemory: type[Exception] = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def raise_out_of_memory(card: Card, size_bytes: int, cause: Exception | None) -> NoReturn:
    """Report to the probe, then raise; `cause` is the allocator's error, None if the context did not fit."""
    message = _describe(card, size_bytes, cause)
    # Let the probe write its flight record before anything is freed; it may not stop the error.
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
    raise OutOfMemory(message) from None


def _describe(card: Card, size_bytes: int, cause: Exception | None) -> str:
    """The text of c10/cuda/CUDACachingAllocator.cpp with this card's numbers."""
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
        # The process's own number of the card.
        self.ordinal = ordinal
        self.memory = memory
        self.total_bytes = config.total_bytes
        self.context_bytes = config.context_bytes
        self._out_of_memory = module.AllocatorOutOfMemoryError
        settings = module.AllocatorSettings.parse(config.allocator_settings)
        self.allocator: Allocator = module.CachingAllocator(memory, settings, device=ordinal)
        # Who allocated each live block, by address.
        self.stacks: dict[int, Stack] = {}
        self.has_context = False
        self.fraction: float | None = None
        # Called for each block that is allocated or freed.
        self.observer: BlockObserver | None = None

    def open_context(self) -> None:
        """Reserve the memory of a process's context, before its first tensor."""
        if not self.has_context:
            self.has_context = True
            if self.context_bytes and not self.memory.reserve(self.context_bytes):
                self.has_context = False
                raise_out_of_memory(self, self.context_bytes, None)

    def allocate(self, size_bytes: int, stream: int) -> int:
        if not self.has_context:
            self.open_context()
        try:
            address = self.allocator.malloc(size_bytes, stream)
        except self._out_of_memory as error:
            raise_out_of_memory(self, size_bytes, error)
        stack = self.stacks[address] = capture_stack()
        if self.observer is not None:
            self.observer.note_allocated(address, size_bytes, stream, stack)
        return address

    def free(self, address: int) -> None:
        """Called wherever the last reference to a tensor was dropped."""
        self.stacks.pop(address, None)
        if self.observer is not None:
            self.observer.note_freed(address)
        self.allocator.free(address)

    def empty_cache(self) -> None:
        if self.observer is not None:
            self.observer.note_emptied()
        self.allocator.empty_cache()

    def describe_segments(self) -> list[dict[str, Any]]:
        """Segments and blocks as in `torch.cuda.memory_snapshot()`, live blocks with frames."""
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
        if self._used_bytes + size_bytes > self.total_bytes:
            return False
        self._used_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        self._used_bytes -= size_bytes

    def free_bytes(self) -> int:
        return self.total_bytes - self._used_bytes
