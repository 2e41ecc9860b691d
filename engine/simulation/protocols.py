"""What the simulated device needs of an allocator model, which is handed in: no analyzer is imported here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .host_memory import Stack


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
