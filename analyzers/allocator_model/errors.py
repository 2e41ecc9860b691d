"""What can go wrong in the allocator model."""

from __future__ import annotations

from .rules import format_bytes


class AllocatorModelError(Exception):
    """The root of the errors of this package."""


class AllocatorSettingsError(AllocatorModelError):
    """An allocator configuration that PyTorch would refuse; the text names the key and what it expects."""


class UnknownAddressError(AllocatorModelError):
    """An address that is not that of a live block: freed twice, or never handed out."""


class PoolError(AllocatorModelError):
    """A private pool that is begun twice, or ended or released without having begun."""


class AllocatorOutOfMemoryError(AllocatorModelError):
    """The modelled card has no room, even after everything cached was given back.

    Attributes:
        requested_bytes: What was asked for.
        rounded_bytes: The block that it needed.
        segment_bytes: What was asked of the device for it; PyTorch's message names this.
        device_free_bytes: Free on the card, whoever holds the rest.
        device_total_bytes: Capacity of the card.
        allocated_bytes: In live blocks of this process.
        reserved_bytes: Held from the card by this process.
        limit_bytes: What the memory fraction allows this process; None without one.
    """

    def __init__(
        self,
        requested_bytes: int,
        rounded_bytes: int,
        segment_bytes: int,
        *,
        device_free_bytes: int,
        device_total_bytes: int,
        allocated_bytes: int,
        reserved_bytes: int,
        limit_bytes: int | None,
    ) -> None:
        self.requested_bytes = requested_bytes
        self.rounded_bytes = rounded_bytes
        self.segment_bytes = segment_bytes
        self.device_free_bytes = device_free_bytes
        self.device_total_bytes = device_total_bytes
        self.allocated_bytes = allocated_bytes
        self.reserved_bytes = reserved_bytes
        self.limit_bytes = limit_bytes
        super().__init__(self._say())

    def _say(self) -> str:
        allowed = "" if self.limit_bytes is None else f" {format_bytes(self.limit_bytes)} allowed;"
        cached = self.reserved_bytes - self.allocated_bytes
        return (
            f"no room for {format_bytes(self.segment_bytes)}: the card has"
            f" {format_bytes(self.device_total_bytes)}, {format_bytes(self.device_free_bytes)} free;{allowed}"
            f" {format_bytes(self.allocated_bytes)} allocated,"
            f" {format_bytes(cached)} reserved but unallocated"
        )
