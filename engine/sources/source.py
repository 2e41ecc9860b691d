"""The protocol of a source of devices; plug-ins in the group `vramscope.sources` implement it."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from time import monotonic
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec

from ..model import (
    DeviceActivity,
    DeviceEvent,
    DeviceHardware,
    DeviceKind,
    MemoryReading,
    ProcessReading,
)

Result = TypeVar("Result")


class AbandonableCall(Generic[Result]):
    """One call on another thread; its result is there once it has returned."""

    def __init__(self, function: Callable[[], Result]) -> None:
        self.started_s = monotonic()
        self._function = function
        self._has_returned = threading.Event()
        self._result: Result | None = None
        self._error: Exception | None = None

    @property
    def has_returned(self) -> bool:
        """Whether `result` may be asked for."""
        return self._has_returned.is_set()

    def run(self) -> None:
        """Make the call, on the thread that may be left behind in it."""
        self.started_s = monotonic()
        try:
            self._result = self._function()
        except Exception as error:  # noqa: BLE001 - raised again where the result is asked for
            self._error = error
        self._has_returned.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until the call has returned; return whether it has."""
        return self._has_returned.wait(max(0.0, timeout_s))

    def result(self) -> Result:
        """Return what the call returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # None only where the function returned None


class CallsInTurn(Generic[Result]):
    """Calls that one thread makes one after another, without waiting for another thread in between."""

    def __init__(self, calls: Iterable[AbandonableCall[Result]]) -> None:
        self._left = deque(calls)

    def run(self) -> None:
        """Make the remaining calls; if one hangs, those after it are not begun."""
        while (call := self._pop_call()) is not None:
            call.run()

    def stop(self) -> "list[AbandonableCall[Result]]":
        """Begin no more calls, and return those that were not begun."""
        return list(iter(self._pop_call, None))

    def _pop_call(self) -> "AbandonableCall[Result] | None":
        try:
            return self._left.popleft()
        except IndexError:
            return None


class AbandonableThread:
    """Makes calls one after another on one thread; after a call that hangs, a fresh thread goes on.

    The thread that was left behind ends as soon as its call returns. It holds no lock of ours.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[Callable[[], None] | None] | None = None

    def call(self, function: Callable[[], Result], deadline_s: float) -> AbandonableCall[Result]:
        """Make a call; it has returned, or its thread was left behind after `deadline_s`."""
        if self._queue is None:
            self._queue = SimpleQueue()
            threading.Thread(target=_work, args=(self._queue,), name=self._name, daemon=True).start()
        made = AbandonableCall(function)
        self._queue.put(made.run)
        if not made.wait(deadline_s):
            self.close()
        return made

    def close(self) -> None:
        """End the thread when it has nothing left to do."""
        if self._queue is not None:
            self._queue.put(None)
            self._queue = None


def _work(queue: "SimpleQueue[Callable[[], None] | None]") -> None:
    while (run := queue.get()) is not None:
        run()


class DeviceIdentity(msgspec.Struct, frozen=True, gc=False):
    """What does not change about a device."""

    uuid: str
    """Unique and the same after a restart; samples, history and findings are keyed by it."""
    index: int
    """Number shown to people; it may change when devices come or go."""
    name: str | None = None
    """Product name."""
    kind: DeviceKind = "gpu"
    parent_uuid: str | None = None
    """The UUID of the GPU, if this is a MIG instance."""
    mig_index: int | None = None
    gpu_instance_id: int | None = None
    """The driver's number of the GPU instance, if this is a MIG instance."""
    pci_address: str | None = None
    """Address on the PCI bus, as the kernel spells it: `0000:41:00.0`; of a MIG instance, its GPU's."""
    is_provisional: bool = False
    """The device has not answered yet and is looked for again soon; its UUID may be a stand-in until then."""


class DeviceDetails(msgspec.Struct, frozen=True, gc=False):
    """Fields that are read once per tick or slower; None is unsupported or unmeasured."""

    utilization_percent: float | None = None
    """Share of time in which a kernel ran, 0 to 100."""
    temperature_c: float | None = None
    """Degrees Celsius."""
    power_w: float | None = None
    """Watts."""
    processes: tuple[ProcessReading, ...] | None = None
    """Processes with memory on it; None if the device does not report them, empty if there are none."""


# Room for what a prepared call writes.
PREPARED_BYTES = 64


class PreparedMemory(NamedTuple):
    """A call that reads the memory of one device into a buffer, all its arguments made beforehand.

    Memory that is read ten times a second and used once is stored as bytes, of all devices together, and
    parsed when it is used: the processor has forgotten all of it in between, so that what a reading touches
    costs more than what it does.
    """

    # Fill the buffer; 0 if that succeeded. It may block in the driver.
    call: Callable[[], int]
    # Return total, free and used bytes from the buffer, which begins at an offset; all 0 for nonsense.
    parse: Callable[[bytes, int], tuple[int, int, int]]
    # Called with any other code than 0: return the memory by other means, or raise as `read_memory` does.
    conclude: Callable[[int], MemoryReading]


def make_reading(total_bytes: int, free_bytes: int, used_bytes: int) -> MemoryReading:
    """Make a reading of a driver's values; those that contradict each other become None."""
    if not total_bytes:  # nobody has a device without memory
        return MemoryReading()
    if used_bytes > total_bytes or free_bytes > total_bytes:
        return MemoryReading(total_bytes)
    return MemoryReading(total_bytes, used_bytes, free_bytes)


@runtime_checkable
class PreparingReader(Protocol):
    """A reader that can prepare the call of `read_memory`."""

    def prepare_memory(self, buffer: memoryview) -> PreparedMemory | None:
        """Return the call, good until `discover` is called again; None if `read_memory` must be called.

        Args:
            buffer: What the call fills: `PREPARED_BYTES`, all zero.
        """
        ...


@runtime_checkable
class ProcessKnowingReader(Protocol):
    """A reader that knows without the driver whether a process still runs."""

    def drop_ended(self, processes: tuple[ProcessReading, ...]) -> tuple[ProcessReading, ...]:
        """Return the processes of an older list that have not ended since; never blocks in the driver."""
        ...


class HardwareReading(NamedTuple):
    """Clocks and throughput, and limits and errors; None where a device measures nothing of it."""

    activity: DeviceActivity | None = None
    hardware: DeviceHardware | None = None


@runtime_checkable
class HardwareReader(Protocol):
    """A reader that also knows clocks, throughput, limits and errors.

    It is called every few seconds, on another thread than the others, so that a call that takes long
    delays no memory reading; `Source.discover` is not called meanwhile.
    """

    def read_hardware(self) -> HardwareReading:
        """Return what is known; may block in the driver, and decides itself how often it asks for what.

        Raises:
            DeviceLostError: The device is gone.
        """
        ...


class DeviceReader(Protocol):
    """Reads one device. Every call may block in the driver; the sampler can abandon it."""

    identity: DeviceIdentity

    def read_memory(self) -> MemoryReading:
        """Return total, used and free bytes; called ten times a second by default, so it must be cheap.

        Raises:
            NotSupportedError: The device does not report its memory.
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
    """Finds devices, for plug-ins in the group `vramscope.sources`."""

    name: str
    """Name of the source, as in its entry point; notes and errors begin with it."""

    def discover(self) -> Sequence[DeviceReader]:
        """Open the source and return its devices, in index order.

        May be called again later: after a failure, and to find devices that came or went.

        Raises:
            SourceUnavailableError: There is nothing to measure; the text says why and what to do.
        """
        ...

    def close(self) -> None:
        """Release what `discover` opened."""
        ...


@runtime_checkable
class ReportingSource(Protocol):
    """A source whose driver reports errors when they happen."""

    def take_events(self) -> list[DeviceEvent]:
        """Return what was reported since the last call; asks nobody."""
        ...


Meeting = Literal["board", "switch", "host bridge", "NUMA node", "sockets"]


class TopologyDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device; None if the driver does not report it."""

    name: str
    total_bytes: int
    # Active lanes of NVLink; 0 if it has none.
    lanes: int
    # NVML's number: 1, 2, 4, 6 and 7 are NVLink 1 to 5.
    nvlink_version: int | None
    pcie_generation: int | None
    pcie_lanes: int | None


class TopologyPair(msgspec.Struct, frozen=True, kw_only=True):
    """Two devices, by their positions, the smaller first."""

    first: int
    second: int
    # Lanes of NVLink from one to the other, through switches too; 0 if there are none.
    lanes: int
    # Where their paths over PCI Express meet.
    meeting: Meeting | None


class NodeTopology(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of a node in index order, and every two of them."""

    devices: tuple[TopologyDevice, ...]
    pairs: tuple[TopologyPair, ...]
