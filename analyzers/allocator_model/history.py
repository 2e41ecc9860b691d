"""The trace of what the allocator did, in a ring that forgets the oldest entries."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Callable, Optional

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
        self.frames: Callable[[], list[dict[str, Any]]] | None = None
        """Asked for the stack of whoever calls malloc."""
        self.frames_at_hand: Frames = None
        """The stack of the call under way."""

    def start(self, max_entries: int, frames: Callable[[], list[dict[str, Any]]] | None) -> None:
        """Record from here on; of what was recorded before, the newest entries stay."""
        self._ring = deque(self._ring, maxlen=max(1, max_entries))
        self.frames = frames
        self.is_recording = True

    def stop(self) -> None:
        """Record nothing, and forget what was recorded."""
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
        """Record that something happened; for `oom` the address is what the device had free."""
        if self.is_recording:
            self._ring.append((action, address, size, stream, self._clock_us(), pool_id, frames))

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return the entries, oldest first, in PyTorch's schema."""
        return [_as_dict(entry) for entry in list(self._ring)]


def _as_dict(entry: Entry) -> dict[str, Any]:
    action, address, size, stream, time_us, pool_id, frames = entry
    described: dict[str, Any] = {"action": action}
    described["device_free" if action == "oom" else "addr"] = address
    described.update(size=size, stream=stream, time_us=time_us, pool_id=pool_id)
    if frames is not None:
        described["frames"] = frames
    return described
