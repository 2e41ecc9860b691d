"""The card under the allocator: what it has, and the addresses it gives."""

from __future__ import annotations

import heapq
from typing import Protocol


class DeviceMemory(Protocol):
    """The memory of one card, perhaps shared with other processes."""

    total_bytes: int

    def reserve(self, size_bytes: int) -> bool:
        """Take memory from the card, as cudaMalloc does; return False when it has no room."""

    def release(self, size_bytes: int) -> None:
        """Give back what was reserved."""

    def free_bytes(self) -> int:
        """Return what nobody holds at present."""


class PrivateDeviceMemory:
    """A card that one process has to itself."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._used_bytes = 0

    def reserve(self, size_bytes: int) -> bool:
        """Take memory from the card; return False when it has no room."""
        used = self._used_bytes + size_bytes
        if used > self.total_bytes:
            return False
        self._used_bytes = used
        return True

    def release(self, size_bytes: int) -> None:
        """Give back what was reserved."""
        self._used_bytes -= size_bytes

    def free_bytes(self) -> int:
        """Return what is not reserved."""
        return self.total_bytes - self._used_bytes


class AddressSpace:
    """Hands out address ranges; one that came back is handed out again to the next request of its size."""

    FIRST_ADDRESS = 0x7F00_0000_0000
    _ALIGNMENT = 2 * 1024 * 1024

    def __init__(self) -> None:
        self._next = self.FIRST_ADDRESS
        self._returned: dict[int, list[int]] = {}

    def take(self, size_bytes: int) -> int:
        """Return the first address of a range: the lowest that came back of this size, else a new one."""
        returned = self._returned.get(size_bytes)
        if returned:
            return heapq.heappop(returned)
        return self.take_new(size_bytes)

    def take_new(self, size_bytes: int) -> int:
        """Return the first address of a range that was never handed out."""
        address = self._next
        self._next = address + -(-size_bytes // self._ALIGNMENT) * self._ALIGNMENT
        return address

    def give_back(self, address: int, size_bytes: int) -> None:
        """Take a range back."""
        heapq.heappush(self._returned.setdefault(size_bytes, []), address)
