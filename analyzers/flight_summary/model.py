"""What a flight record comes to, as it is printed and as JSON."""

from typing import Literal

import msgspec

from ...engine.model.flight_record import FlightDevice, FlightProcess, FlightTruncation
from ..snapshot_summary import StackGroup


class DeviceShares(msgspec.Struct, frozen=True):
    """Who held the device at the failure; what is measured adds up to the total."""

    total_bytes: int | None = None
    allocated_bytes: int | None = None
    """Live tensors of this process."""
    awaiting_bytes: int | None = None
    """Freed, and another stream may still use it."""
    stranded_bytes: int | None = None
    """Reserved and free, but in segments that something live holds."""
    cached_bytes: int | None = None
    """Reserved, free and not stranded."""
    unallocated_bytes: int | None = None
    """Reserved and not allocated, where it is not told what of it is awaiting, stranded or cached."""
    other_bytes: int | None = None
    """Used on the device beyond what is reserved: context and libraries, other processes."""
    free_bytes: int | None = None
    """What the driver had free."""
    reserved_bytes: int | None = None
    """Allocated, awaiting, stranded and cached together."""


class FloorTrend(msgspec.Struct, frozen=True):
    """How the least allocated bytes of a step went over the steps of the record."""

    steps: int
    first_bytes: int
    """Least of the oldest sixth."""
    last_bytes: int
    """Least of the newest sixth."""
    growth_bytes_per_step: float
    is_rising: bool
    """No sixth is lower than the one before it, at least three are higher, and the growth does not slow."""


class KeptMemory(msgspec.Struct, frozen=True):
    """What is kept from step to step, where the floors of the steps grow steadily."""

    size_bytes: int
    growth_bytes_per_step: float
    holder: StackGroup | None = None
    """The line that holds most of it; None where no stack of live blocks tells."""


class FlightSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A whole flight record."""

    schema: Literal["vramscope.flight_summary/1"] = "vramscope.flight_summary/1"
    file: str
    written_s: float | None
    process: FlightProcess
    device: FlightDevice
    size_bytes: int | None
    """What was asked for."""
    message: str
    request: StackGroup
    """Where it was asked for."""
    shares: DeviceShares
    stacks: tuple[StackGroup, ...]
    """Live blocks by stack, the largest first; shares are of the allocated bytes."""
    trend: FloorTrend | None
    kept: KeptMemory | None
    """What is kept from step to step; None where the floors do not grow steadily."""
    sentences: tuple[str, ...]
    """What happened, the most important first."""
    advice: tuple[str, ...]
    """What follows from the figures, the most promising first."""
    truncated: FlightTruncation
    notes: tuple[str, ...]
