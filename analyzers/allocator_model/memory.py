"""The card under the allocator: its capacity, and the addresses that it gives out."""

from __future__ import annotations

import heapq
import time
from collections import deque
from typing import Any, Callable, Optional, Protocol


class DeviceMemory(Protocol):
    """The memory of one card, perhaps shared with other processes."""

    total_bytes: int

    def reserve(self, size_bytes: int) -> bool:
        """Reserve memory of the card, as cudaMalloc does; return False when it has no room."""

    def release(self, size_bytes: int) -> None:
        """Free what was reserved."""

    def free_bytes(self) -> int: ...


class PrivateDeviceMemory:
    """A card that one process has to itself."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._used_bytes = 0

    def reserve(self, size_bytes: int) -> bool:
        used = self._used_bytes + size_bytes
        if used > self.total_bytes:
            return False
        self._used_bytes = used
        return True

    def release(self, size_bytes: int) -> None:
        self._used_bytes -= size_bytes

    def free_bytes(self) -> int:
        return self.total_bytes - self._used_bytes


class AddressSpace:
    """Gives out address ranges; a returned range goes to the next request of its size."""

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
        """Return the first address of a range that was never given out."""
        address = self._next
        self._next = address + -(-size_bytes // self._ALIGNMENT) * self._ALIGNMENT
        return address

    def give_back(self, address: int, size_bytes: int) -> None:
        heapq.heappush(self._returned.setdefault(size_bytes, []), address)


# The trace of what the allocator did, in a ring that forgets the oldest entries.

Frames = Optional[list[dict[str, Any]]]
Entry = tuple[str, int, int, int, int, tuple[int, int], Frames]


def read_clock_us() -> int:
    """Return the time of day in microseconds, as PyTorch stamps its entries."""
    return time.time_ns() // 1000


class History:
    """A bounded ring of what happened, while recording is on."""

    def __init__(self, clock_us: Callable[[], int] = read_clock_us) -> None:
        self._clock_us = clock_us
        self._ring: deque[Entry] = deque(maxlen=0)
        self.is_recording = False
        # Returns the stack of the caller of malloc.
        self.frames: Callable[[], list[dict[str, Any]]] | None = None
        # The stack of the present call.
        self.frames_at_hand: Frames = None

    def start(self, max_entries: int, frames: Callable[[], list[dict[str, Any]]] | None) -> None:
        """Record from here on; the newest earlier entries stay."""
        self._ring = deque(self._ring, maxlen=max(1, max_entries))
        self.frames = frames
        self.is_recording = True

    def stop(self) -> None:
        """Stop recording, and forget what was recorded."""
        self._ring = deque(maxlen=0)
        self.is_recording = False
        self.frames = self.frames_at_hand = None

    def add(
        self,
        action: str,
        address: int,
        size: int,
        stream: int,
        pool_id: tuple[int, int] = (0, 0),
        frames: Frames = None,
    ) -> None:
        """Record an event; for `oom` the address is what the device had free."""
        if self.is_recording:
            self._ring.append((action, address, size, stream, self._clock_us(), pool_id, frames))

    def as_dicts(self) -> list[dict[str, Any]]:
        return [_as_dict(entry) for entry in list(self._ring)]


def _as_dict(entry: Entry) -> dict[str, Any]:
    action, address, size, stream, time_us, pool_id, frames = entry
    described: dict[str, Any] = {"action": action}
    described["device_free" if action == "oom" else "addr"] = address
    described.update(size=size, stream=stream, time_us=time_us, pool_id=pool_id)
    if frames is not None:
        described["frames"] = frames
    return described
