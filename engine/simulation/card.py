"""One modelled card as this process sees it: an allocator, and who holds which of its blocks."""

from __future__ import annotations

from typing import Any

from .config import SimulationConfig
from .out_of_memory import raise_out_of_memory
from .protocols import Allocator, AllocatorModule, BlockObserver, DeviceMemory
from .stacks import Stack, capture_stack


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
