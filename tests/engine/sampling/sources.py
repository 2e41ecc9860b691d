"""A source whose calls a test can hold, fail and count."""

import threading
from collections.abc import Callable, Sequence

from vramscope.engine.errors import DeviceError, SourceUnavailableError
from vramscope.engine.model import MemoryReading
from vramscope.engine.sources.source import DeviceDetails, DeviceIdentity, DeviceReader

GIB = 1024**3


class HandReader:
    """One device that answers what a test has set."""

    def __init__(self, index: int) -> None:
        self.identity = DeviceIdentity(uuid=f"GPU-{index}", index=index, name="Pretend GPU")
        self.used_bytes = index * GIB
        self.error: Exception | None = None
        self.details_error: Exception | None = None
        self.may_return = threading.Event()
        self.may_return.set()
        self.calls = 0
        self.at_call: Callable[[HandReader], None] = lambda _: None

    def read_memory(self) -> MemoryReading:
        self.calls += 1
        self.at_call(self)
        self.may_return.wait()
        if self.error is not None:
            raise self.error
        return MemoryReading(80 * GIB, self.used_bytes, 80 * GIB - self.used_bytes)

    def read_details(self) -> DeviceDetails:
        self.at_call(self)
        if self.details_error is not None:
            raise self.details_error
        return DeviceDetails(utilization_percent=50.0, temperature_c=40.0)


class HandSource:
    """Devices that a test adds, takes away and holds."""

    name = "hand"

    def __init__(self, count: int = 2) -> None:
        self.readers = [HandReader(index) for index in range(count)]
        self.error: SourceUnavailableError | DeviceError | None = None
        self.may_discover = threading.Event()
        self.may_discover.set()
        self.is_closed = False

    def discover(self) -> Sequence[DeviceReader]:
        self.may_discover.wait()
        if self.error is not None:
            raise self.error
        return list(self.readers)

    def close(self) -> None:
        self.is_closed = True
