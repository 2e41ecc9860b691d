"""What a source of devices is; plug-ins in the group `vramscope.sources` implement it."""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import msgspec

from ..model import DeviceKind, MemoryReading, ProcessReading

if TYPE_CHECKING:
    import ctypes


class DeviceIdentity(msgspec.Struct, frozen=True, gc=False):
    """What does not change about a device."""

    uuid: str
    index: int
    name: str | None = None
    kind: DeviceKind = "gpu"
    parent_uuid: str | None = None
    mig_index: int | None = None
    is_provisional: bool = False
    """The device has not answered yet and is looked for again soon; its UUID may be a stand-in until then."""


class DeviceDetails(msgspec.Struct, frozen=True, gc=False):
    """Fields that are read once per tick or slower; each may be unsupported on its own."""

    utilization_percent: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    processes: tuple[ProcessReading, ...] | None = None
    """None where the device does not tell; empty where there are none."""


class PreparedMemory(NamedTuple):
    """A call that reads the memory of one device into a buffer, all its arguments made beforehand.

    What is read ten times a second and looked at once is taken as bytes, and parsed when it is looked at: the
    processor has forgotten all of it in between, so that what a reading touches costs more than what it does.
    """

    call: Callable[[], int]
    """Fill the buffer; 0 where that succeeded. It may block in the driver."""
    buffer: "ctypes.Structure"
    layout: Struct
    """Of the buffer: total, free and used bytes."""
    conclude: Callable[[int], MemoryReading]
    """Take any other code than 0: return the memory by other means, or raise as `read_memory` does."""


def make_reading(total_bytes: int, free_bytes: int, used_bytes: int) -> MemoryReading:
    """Return a reading of figures that a driver told; those that contradict each other are not shown."""
    if not total_bytes:  # nobody has a device without memory
        return MemoryReading()
    if used_bytes > total_bytes or free_bytes > total_bytes:
        return MemoryReading(total_bytes)
    return MemoryReading(total_bytes, used_bytes, free_bytes)


@runtime_checkable
class PreparingReader(Protocol):
    """A reader that can prepare the call of `read_memory`."""

    def prepare_memory(self) -> PreparedMemory | None:
        """Return the call, good until `discover` is called again; None where `read_memory` must be called."""
        ...


@runtime_checkable
class ProcessKnowingReader(Protocol):
    """A reader that knows without the driver whether a process still runs."""

    def drop_ended(self, processes: tuple[ProcessReading, ...]) -> tuple[ProcessReading, ...]:
        """Return the processes of an older list that have not ended since; never blocks in the driver."""
        ...


class DeviceReader(Protocol):
    """One device. Every call may block in the driver; the sampler can abandon it."""

    identity: DeviceIdentity

    def read_memory(self) -> MemoryReading:
        """Return total, used and free bytes; cheap enough for ten times a second.

        Raises:
            NotSupportedError: The device does not tell its memory.
            DeviceLostError: The device is gone.
            DeviceError: Any other failure, in one sentence.
        """
        ...

    def read_details(self) -> DeviceDetails:
        """Return the slower fields; a field that is not supported is None.

        Raises:
            DeviceLostError: The device is gone.
        """
        ...


class Source(Protocol):
    """A library or service that knows devices."""

    name: str

    def discover(self) -> Sequence[DeviceReader]:
        """Open the source and return its devices, in index order.

        May be called again later: after a failure, and to find devices that came or went.

        Raises:
            SourceUnavailableError: There is nothing to measure; the text says why and what to do.
        """
        ...

    def close(self) -> None:
        """Give back what `discover` opened."""
        ...
