"""A card that one process has to itself."""

from __future__ import annotations


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
        """Return what is not taken."""
        return self.total_bytes - self._used_bytes
