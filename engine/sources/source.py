"""What a source of devices is; plug-ins in the group `vramscope.sources` implement it."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ..model import DeviceKind, MemoryReading, ProcessReading


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
