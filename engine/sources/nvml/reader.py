"""One NVIDIA device: its memory ten times a second, its other fields now and then."""

import ctypes
import re
import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple, NoReturn

from msgspec.structs import replace

from ...errors import DeviceLostError, NotSupportedError
from ...model import MemoryReading, MpsRole, ProcessKind, ProcessReading
from ..host import read_host_memory
from ..processes import ProcessTable
from ..source import DeviceDetails, DeviceIdentity, HardwareReading, PreparedMemory, make_reading
from .driver import (
    ADDRESSING_MODE_V1,
    GONE_CODES,
    MEMORY_LAYOUTS,
    MEMORY_V2,
    TEMPERATURE_V1,
    AddressingModeV1,
    Code,
    MemoryV1,
    MemoryV2,
    NvmlLibrary,
    TemperatureV1,
    Utilization,
    make_device_error,
    make_lost_error,
)
from .events import XidEvents
from .hardware import HardwareQuestions, ProcessLoad

# NVML has three versions of each list. The struct of version 3 was longer in some drivers of the 535 series
# (`usedGpuCcProtectedMemory`) than before and after; read with the wrong length it yields garbage pids. So
# a list is accepted only if every entry is possible, and otherwise read in the next layout.

# Clients of MPS; its server is in the first list below.
MPS_LIST = "nvmlDeviceGetMPSComputeRunningProcesses"
LISTS: dict[str, ProcessKind] = {
    "nvmlDeviceGetComputeRunningProcesses": "compute",
    "nvmlDeviceGetGraphicsRunningProcesses": "graphics",
    MPS_LIST: "compute",
}
# Largest pid that Linux gives (PID_MAX_LIMIT).
MOST_PIDS = 1 << 22
# NVML_VALUE_NOT_AVAILABLE: the driver does not report the memory of this process.
NOT_AVAILABLE = 2**64 - 1
LONGEST_ENTRY_BYTES = 32
# Entries in a new buffer; it grows as needed.
FIRST_ROOM = 32


class _Layout(NamedTuple):
    suffix: str
    entry: struct.Struct


_WITH_INSTANCE = struct.Struct("=I4xQII")
_WITH_PROTECTED = struct.Struct("=I4xQII8x")
_LAYOUTS = (
    _Layout("_v3", _WITH_INSTANCE),
    _Layout("_v3", _WITH_PROTECTED),
    _Layout("_v2", _WITH_INSTANCE),
    _Layout("_v2", _WITH_PROTECTED),
    _Layout("", struct.Struct("=I4xQ")),
)
_FUNCTIONS = {name: tuple(name + layout.suffix for layout in _LAYOUTS) for name in LISTS}


class RunningProcess(NamedTuple):
    pid: int
    used_bytes: int | None
    # GPU instance and compute instance; all ones outside MIG, empty in version 1.
    instances: tuple[int, ...]


class ListedProcess(NamedTuple):
    """A process of a device, over all lists and MIG instances."""

    used_bytes: int | None
    kind: ProcessKind
    is_mps_client: bool = False


class ListRefusedError(Exception):
    """A process list could not be read; `code` is from NVML."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class ListBuffer:
    """Buffer for the lists of one device; kept, because making it costs more than the call."""

    def __init__(self) -> None:
        # By name, what the newest answer was parsed from: the layout's number and the bytes; and the entries.
        self.parsed: dict[str, tuple[int, bytes, list[RunningProcess]]] = {}
        # The newest entries of all lists, and what they say together.
        self.lists: list[list[RunningProcess] | None] = []
        self.processes: dict[int, ListedProcess] = {}
        self.count = ctypes.c_uint()
        self.count_reference = ctypes.byref(self.count)
        self.entries = ctypes.create_string_buffer(0)
        self.room = 0
        self.grow(FIRST_ROOM)

    def grow(self, room: int) -> None:
        """Make room for so many entries of the longest layout that any driver writes."""
        self.room = room
        self.entries = ctypes.create_string_buffer(room * LONGEST_ENTRY_BYTES)


class ProcessLists:
    """Reads the process lists of the devices of one library; remembers which layout made sense."""

    def __init__(self, library: NvmlLibrary) -> None:
        self._library = library
        # First layout of `_LAYOUTS` that is worth trying.
        self._proven = 0

    def read(
        self, handle: ctypes.c_void_p, total_bytes: int | None, buffer: ListBuffer
    ) -> dict[int, ListedProcess] | None:
        """Return compute, graphics and MPS processes by pid, as the same object while nothing changes.

        None if no list is supported.

        A process that is in several lists counts once; one that runs in several MIG instances counts in each.
        A list that the device does not support is left out.

        Args:
            total_bytes: Capacity of the device, beyond which an entry is garbage; None if unknown.
            buffer: The device's own; no other call may write it.
        """
        lists = [self._read_list(name, handle, total_bytes, buffer) for name in LISTS]
        if all(processes is None for processes in lists):
            return None
        if len(buffer.lists) != len(lists) or any(
            new is not old for new, old in zip(lists, buffer.lists, strict=True)
        ):
            buffer.processes = _merge_lists(lists)
            buffer.lists = lists
        return buffer.processes

    def _read_list(
        self, name: str, handle: ctypes.c_void_p, total_bytes: int | None, buffer: ListBuffer
    ) -> list[RunningProcess] | None:
        """Return the entries of one list; None if no version of it is supported."""
        best: list[RunningProcess] | None = None
        for number in range(self._proven, len(_LAYOUTS)):
            layout = _LAYOUTS[number]
            count = self._call(_FUNCTIONS[name][number], handle, buffer)
            if count == 0:
                return _NOBODY
            if count is None:
                continue
            entry = layout.entry
            data = memoryview(buffer.entries)[: min(count, buffer.room) * entry.size].tobytes()
            before = buffer.parsed.get(name)
            if before is not None and before[0] == number and before[1] == data:
                return before[2]
            processes = [
                RunningProcess(pid, None if used == NOT_AVAILABLE else used, tuple(instances))
                for pid, used, *instances in entry.iter_unpack(data)
            ]
            sane = [process for process in processes if _is_possible(process, total_bytes)]
            if len(sane) == len(processes):
                if count > 1:  # a single entry reads the same in a longer layout
                    self._proven = number
                buffer.parsed[name] = number, data, sane
                return sane
            best = max(best or [], sane, key=len)
        return best

    def _call(self, function_name: str, handle: ctypes.c_void_p, buffer: ListBuffer) -> int | None:
        """Return the number of entries that were written; None if this version does not answer."""
        function = self._library.find(function_name)
        if function is None:
            return None
        for _ in range(3):
            buffer.count.value = buffer.room
            code = function(handle, buffer.count_reference, buffer.entries)
            if code == Code.SUCCESS:
                return buffer.count.value
            if code != Code.INSUFFICIENT_SIZE:
                break
            buffer.grow(2 * max(buffer.room, buffer.count.value))
        if code in GONE_CODES:
            raise ListRefusedError(code)
        return None


# What every empty list is, so that one that stays empty is the same as before.
_NOBODY: list[RunningProcess] = []


def _merge_lists(lists: Sequence[Sequence[RunningProcess] | None]) -> dict[int, ListedProcess]:
    held: dict[tuple[int, ...], int | None] = {}
    kinds: dict[int, ProcessKind] = {}
    clients: set[int] = set()
    for (name, kind), processes in zip(LISTS.items(), lists, strict=True):
        if name == MPS_LIST and processes:
            clients.update(process.pid for process in processes)
        for process in processes or ():
            key = (process.pid, *process.instances)
            known = held.get(key)
            held[key] = process.used_bytes if known is None else max(known, process.used_bytes or 0)
            is_both = kinds.get(process.pid, kind) != kind
            kinds[process.pid] = "compute+graphics" if is_both else kind
    return {pid: ListedProcess(used, kinds[pid], pid in clients) for pid, used in _sum_by_pid(held).items()}


def _is_possible(process: RunningProcess, total_bytes: int | None) -> bool:
    if not 0 < process.pid <= MOST_PIDS:
        return False
    return process.used_bytes is None or total_bytes is None or process.used_bytes <= total_bytes


def _sum_by_pid(held: dict[tuple[int, ...], int | None]) -> dict[int, int | None]:
    by_pid: dict[int, int | None] = {}
    for (pid, *_), used_bytes in held.items():
        known = by_pid.get(pid)
        by_pid[pid] = used_bytes if known is None else known + (used_bytes or 0)
    return by_pid


# Process lists change seldom, and cost more than all other fields together.
PROCESS_INTERVAL_S = 2.0
# Processes of an unchanged list are described again after so long: what they use of the host changes.
DESCRIPTION_INTERVAL_S = 4.0
# A tick that comes this much early reads them all the same.
TICK_SLACK_S = 0.5
MOST_POWER_W = 10_000.0
COOLEST_C = -50
# Values beyond these are a driver's mistake, and are not shown.
HOTTEST_C = 200


class NvmlReader:
    """Reads one GPU or MIG instance through its handle.

    A handle whose device was lost is never passed to the driver again: some drivers crash on it.
    """

    def __init__(
        self,
        library: NvmlLibrary,
        handle: ctypes.c_void_p,
        identity: DeviceIdentity,
        *,
        lists: ProcessLists,
        table: ProcessTable,
        events: XidEvents | None = None,
        proc: Path = Path("/proc"),
        clock_s: Callable[[], float] = monotonic,
    ) -> None:
        self.identity = identity
        self._library = library
        self._handle = handle
        self._lists = lists
        self._table = table
        self._events = events
        self._proc = proc
        self._clock_s = clock_s
        self._list_buffer = ListBuffer()
        self._processes: tuple[ProcessReading, ...] | None = None
        self._processes_due_s = clock_s()
        # From which list and loads the processes were described, and until when that will do.
        self._listed: dict[int, ListedProcess] | None = None
        self._loads: dict[int, ProcessLoad] | None = None
        self._described_until_s = 0.0
        self._session = library.session
        self._lost: DeviceLostError | None = None
        self._was_good = False
        self._total_bytes: int | None = None
        self._utilization = Utilization()
        self._memory_bandwidth_percent: float | None = None
        self._temperature = TemperatureV1(version=TEMPERATURE_V1)
        self._number = ctypes.c_uint()
        self._memory: MemoryV1 | MemoryV2 = MemoryV2(version=MEMORY_V2)
        number = ctypes.byref(self._number)
        self._call_memory = self._prepare("nvmlDeviceGetMemoryInfo_v2", ctypes.byref(self._memory))
        self._call_utilization = self._prepare(
            "nvmlDeviceGetUtilizationRates", ctypes.byref(self._utilization)
        )
        self._call_temperature = self._prepare("nvmlDeviceGetTemperatureV", ctypes.byref(self._temperature))
        self._call_older_temperature = self._prepare("nvmlDeviceGetTemperature", ctypes.c_uint(0), number)
        self._call_power = self._prepare("nvmlDeviceGetPowerUsage", number)
        self._hardware = HardwareQuestions(library, handle, is_usable=self._is_usable, clock_s=clock_s)
        self._pids: frozenset[int] = frozenset()

    def is_of(self, handle: ctypes.c_void_p, identity: DeviceIdentity) -> bool:
        """Return whether this is a reader of the device of a current handle, and still works."""
        is_good = self._lost is None and self._session == self._library.session
        return is_good and self._handle.value == handle.value and self.identity == identity

    def read_memory(self) -> MemoryReading:
        """Return total, used and free bytes as `nvidia-smi` shows them.

        Used is that of NVML's version 2, which leaves out what the driver reserved for itself, so used and
        free add up to total less that reserve. Drivers before 510 have version 1 only, whose used includes
        it. Values that contradict each other (used above total) are not shown.
        """
        library = self._library
        if self._lost is not None or self._session != library.session or not library.is_open:
            self._check_handle()
        return self._conclude_memory(self._call_memory())

    def prepare_memory(self, buffer: memoryview) -> PreparedMemory | None:
        """The call of `read_memory`, for a device whose memory could be read before."""
        if not self._was_good or self._lost is not None:
            return None
        parse: Callable[[bytes, int], tuple[int, int, int]] = MEMORY_LAYOUTS[type(self._memory)].unpack_from
        if isinstance(self._memory, MemoryV2):
            memory: MemoryV1 | MemoryV2 = MemoryV2.from_buffer(buffer)
            memory.version = MEMORY_V2
            call = self._prepare("nvmlDeviceGetMemoryInfo_v2", ctypes.byref(memory))
        else:
            memory = MemoryV1.from_buffer(buffer)
            call = self._prepare("nvmlDeviceGetMemoryInfo", ctypes.byref(memory))
        return PreparedMemory(call, parse, self._conclude_memory)

    def _conclude_memory(self, code: int) -> MemoryReading:
        """Return the result of a memory call, or of another call if it returned an error."""
        if code:
            code = self._call_older_memory(code)
        memory = self._memory
        total = memory.total
        used = memory.used
        free = memory.free
        if code or not total:
            return self._read_instead(code or Code.NOT_SUPPORTED)
        self._was_good = True
        self._total_bytes = total
        return make_reading(total, free, used)

    def read_details(self) -> DeviceDetails:
        """Return utilisation, temperature, power and processes; what is not supported is None."""
        self._check_handle()
        return DeviceDetails(
            utilization_percent=self._read_utilization(),
            temperature_c=self._read_temperature(),
            power_w=self._read_power(),
            processes=self._read_processes(),
        )

    def read_hardware(self) -> HardwareReading:
        """Return clocks, throughput, limits and errors; each has its own pace."""
        self._check_handle()
        if self._events is not None:
            self._events.watch(self._handle, self.identity)
            self._events.ask()
        return self._hardware.read(self._memory_bandwidth_percent, self._pids)

    def _is_usable(self) -> bool:
        library = self._library
        return self._lost is None and self._session == library.session and library.is_open

    def drop_ended(self, processes: tuple[ProcessReading, ...]) -> tuple[ProcessReading, ...]:
        """Asks the kernel only."""
        return self._table.drop_ended(processes)

    def _check_handle(self) -> None:
        if self._lost is not None:
            raise DeviceLostError(str(self._lost))
        if self._session != self._library.session or not self._library.is_open:
            self._condemn(Code.UNINITIALIZED)

    def _call_older_memory(self, code: int) -> int:
        """Call version 1 of the memory function if the driver lacks the other; return the code."""
        is_lacking = code in (Code.FUNCTION_NOT_FOUND, Code.ARGUMENT_VERSION_MISMATCH)
        if not is_lacking or isinstance(self._memory, MemoryV1):
            return code
        self._memory = MemoryV1()
        self._call_memory = self._prepare("nvmlDeviceGetMemoryInfo", ctypes.byref(self._memory))
        return self._call_memory()

    def _prepare(self, name: str, *arguments: object) -> Callable[[], int]:
        """Return a call of a function on this device without arguments, so that no call creates any."""
        function = self._library.find(name)
        return _find_nothing if function is None else partial(function, self._handle, *arguments)

    def _read_instead(self, code: int) -> MemoryReading:
        """Read the host's memory if the device shares it, else raise what the code means."""
        error = make_device_error(code, self._library.explain(code), was_good=self._was_good)
        if isinstance(error, NotSupportedError) and (
            self.identity.kind == "unified" or is_unified(self._library, self._handle, self.identity.name)
        ):
            if self.identity.kind != "unified":
                self.identity = replace(self.identity, kind="unified")
            return read_host_memory(self._proc)
        if isinstance(error, DeviceLostError):
            self._lost = error
        raise error

    def _has_answered(self, code: int) -> bool:
        """Return whether a function answered, for a field that a device may lack.

        Only codes that condemn the handle are errors: a broken sensor does not make a device lost.
        """
        if code in GONE_CODES:
            self._condemn(code)
        return not code

    def _condemn(self, code: int) -> NoReturn:
        self._lost = make_lost_error(code)
        raise self._lost

    def _read_utilization(self) -> float | None:
        self._memory_bandwidth_percent = None
        if not self._has_answered(self._call_utilization()):
            return None
        self._memory_bandwidth_percent = _within(float(self._utilization.memory), 0.0, 100.0)
        return _within(float(self._utilization.gpu), 0.0, 100.0)

    def _read_temperature(self) -> float | None:
        if self._has_answered(self._call_temperature()):
            return _within(float(self._temperature.temperature), COOLEST_C, HOTTEST_C)
        if self._has_answered(self._call_older_temperature()):
            return _within(float(self._number.value), COOLEST_C, HOTTEST_C)
        return None

    def _read_power(self) -> float | None:
        if not self._has_answered(self._call_power()):
            return None
        return _within(self._number.value / 1000.0, 0.0, MOST_POWER_W)

    def _read_processes(self) -> tuple[ProcessReading, ...] | None:
        now_s = self._clock_s()
        if now_s >= self._processes_due_s:
            self._processes_due_s = now_s + PROCESS_INTERVAL_S - TICK_SLACK_S
            try:
                listed = self._lists.read(self._handle, self._total_bytes, self._list_buffer)
            except ListRefusedError as refusal:
                self._condemn(refusal.code)
            loads = self._hardware.process_loads
            before = self._processes
            if listed is None:
                self._processes = None
            elif (
                before is None
                or listed is not self._listed
                or loads is not self._loads
                or now_s >= self._described_until_s
                or self._table.drop_ended(before) is not before
            ):
                self._described_until_s = now_s + DESCRIPTION_INTERVAL_S - TICK_SLACK_S
                self._loads = loads
                self._processes = self._describe(listed)
            self._listed = listed
            self._pids = frozenset(listed or ())
        return self._processes

    def _describe(self, listed: dict[int, ListedProcess]) -> tuple[ProcessReading, ...]:
        loads = self._hardware.process_loads or {}
        found = []
        for pid, (used_bytes, kind, is_mps_client) in listed.items():
            load = loads.get(pid)
            sm = None if load is None else load.sm_percent
            memory = None if load is None else load.memory_bandwidth_percent
            reading = self._table.read(pid, used_bytes, kind, sm_percent=sm, memory_bandwidth_percent=memory)
            found.append(replace(reading, mps=MpsRole("client")) if is_mps_client else reading)
        return tuple(found)


def _find_nothing() -> int:
    return Code.FUNCTION_NOT_FOUND


def _within(value: float, least: float, most: float) -> float | None:
    return value if least <= value <= most else None


# Names of systems on a chip whose GPU has no memory of its own.
UNIFIED_NAMES = re.compile(r"\b(GB10|DGX Spark|N1X|Orin|Xavier|Thor|Tegra|Jetson)\b", re.IGNORECASE)
# The GPU translates addresses through the processor's page tables (`NVML_DEVICE_ADDRESSING_MODE_ATS`).
ADDRESSING_MODE_ATS = 2


def is_unified(library: NvmlLibrary, handle: ctypes.c_void_p, name: str | None) -> bool:
    """Return whether a device whose memory call is refused shares the host's memory.

    An ordinary card may refuse the call too, with an old driver or without permission; the host's memory
    would be a false answer then. So the name or the addressing mode must say it.
    """
    if name is not None and UNIFIED_NAMES.search(name):
        return True
    mode = AddressingModeV1(version=ADDRESSING_MODE_V1)
    code = library.call("nvmlDeviceGetAddressingMode", handle, ctypes.byref(mode))
    return code == Code.SUCCESS and mode.value == ADDRESSING_MODE_ATS
