"""What a GPU reports apart from memory: clocks, throughput, limits, errors, and the load of each process.

No call of these is worth delaying a memory reading or a training job. So each has its own pace: seldom where
the value seldom changes, slower still where the driver needs much CPU time for it, and hardly ever where the
driver does not support it.
"""

import ctypes
import struct
import time
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from ...model import ComputeMode, DeviceActivity, DeviceHardware, ThrottleReason
from ..source import HardwareReading
from .driver import GONE_CODES, Code, NvmlLibrary, make_lost_error

# Readings come every four seconds; one that comes a little early reads all the same.
QUICK_S = 3.5
LOADS_S = 3.5
# The driver watches its own counters for 20 ms in this call, and blocks meanwhile.
THROUGHPUT_S = 5.0
LIMITS_S = 10.0
HEALTH_S = 30.0
CONSTANTS_S = 600.0
# Between two tries of what the device or the driver does not support.
REFUSED_AGAIN_S = 600.0
# Most CPU time of a call, as a share of one core: a call that needs 1 ms is made every 5 s.
COST_SHARE = 0.0002
LONGEST_WAIT_S = 600.0

REFUSALS: Final = frozenset(
    {
        Code.INVALID_ARGUMENT,
        Code.NOT_SUPPORTED,
        Code.NO_PERMISSION,
        Code.FUNCTION_NOT_FOUND,
        Code.ARGUMENT_VERSION_MISMATCH,
    }
)

CLOCK_SM = 1
CLOCK_MEMORY = 2
PCIE_SENT = 0
PCIE_RECEIVED = 1
ECC_CORRECTED = 0
ECC_UNCORRECTED = 1
# Counted since the driver was loaded.
ECC_VOLATILE = 0
KIB = 1024
MOST_CLOCK_MHZ = 20_000
MOST_POWER_MW = 10_000_000
# Fans are driven beyond what counts as their maximum.
MOST_FAN_PERCENT = 200
LOWEST_PERFORMANCE = 15

# `nvmlClocksEventReasons`, in the order in which they matter to a person.
_REASONS: tuple[tuple[int, ThrottleReason], ...] = (
    (0x40, "hardware thermal slowdown"),
    (0x20, "thermal slowdown"),
    (0x80, "power brake"),
    (0x08, "hardware slowdown"),
    (0x04, "power cap"),
    (0x10, "sync boost"),
    (0x02, "clock setting"),
    (0x100, "display clock setting"),
    (0x01, "idle"),
)
# `nvmlComputeMode_t`.
_COMPUTE_MODES: dict[int, ComputeMode] = {
    0: "default",
    1: "exclusive thread",
    2: "prohibited",
    3: "exclusive process",
}


# `nvmlFieldValue_t`: field, scope, time and latency in µs, type, code, and a union of numbers.
_FIELD = struct.Struct("=IIqqiiQ")
# `nvmlValueType_t`: those whose value fills all eight bytes, and those of four.
_LONG_TYPES = frozenset({2, 3, 4})
_INT_TYPES = frozenset({1, 5})
_INT_MASK = 0xFFFFFFFF

RETIRED_CORRECTED = 29
RETIRED_UNCORRECTED = 30
RETIREMENT_PENDING = 31
NVLINK_SENT_KIB = 138
NVLINK_RECEIVED_KIB = 139
PCIE_SENT_BYTES = 197
PCIE_RECEIVED_BYTES = 198
# For fields of NVLink: all lanes together.
ALL_LANES = 0xFFFFFFFF


class _Pace:
    """When a call is due: after its interval, later where it costs much or is refused."""

    def __init__(self, interval_s: float) -> None:
        self.due_s = 0.0
        # It took so long that its CPU time must be measured, which costs as much as a quick call itself.
        self.is_doubtful = False
        self._interval_s = interval_s

    def note(self, now_s: float, took_s: float) -> None:
        """Note a call, by its CPU time if that was doubtful, else by the time that passed."""
        wait_s = took_s / COST_SHARE
        if not self.is_doubtful:
            self.is_doubtful = wait_s > self._interval_s
            wait_s = 0.0
        self.due_s = now_s + min(LONGEST_WAIT_S, max(self._interval_s, wait_s))

    def note_refusal(self, now_s: float) -> None:
        self.due_s = now_s + REFUSED_AGAIN_S


class _Asked(Protocol):
    pace: _Pace

    def ask(self, now_s: float) -> int:
        """Make the calls and return a code: one that condemns the handle if there is any."""
        ...


class _Question:
    """A call with numbers as its answer, and the newest of these; none where it failed."""

    def __init__(
        self,
        call: Callable[..., int] | None,
        *,
        of: type[ctypes.c_uint] | type[ctypes.c_ulonglong] = ctypes.c_uint,
        count: int = 1,
    ) -> None:
        self.answers: tuple[int, ...] | None = None
        self.numbers = [of() for _ in range(count)]
        self.call = None if call is None else partial(call, *map(ctypes.byref, self.numbers))

    def within(self, most: int) -> int | None:
        """Return the only answer, if it is possible."""
        value = None if self.answers is None else self.answers[0]
        return value if value is not None and value <= most else None


class _Group:
    """Questions that are asked together; one that is refused is left out for a long time."""

    def __init__(self, interval_s: float, *questions: _Question) -> None:
        self.pace = _Pace(interval_s)
        self._questions = questions
        self._asked: tuple[_Question, ...] = ()
        self._all_due_s = 0.0

    def ask(self, now_s: float) -> int:
        if now_s >= self._all_due_s:
            self._all_due_s = now_s + REFUSED_AGAIN_S
            self._asked = self._questions
        refused = []
        for question in self._asked:
            code = Code.FUNCTION_NOT_FOUND if question.call is None else question.call()
            if not code:
                question.answers = tuple([number.value for number in question.numbers])
                continue
            question.answers = None
            if code in GONE_CODES:
                return code
            if code in REFUSALS:
                refused.append(question)
        if refused:
            self._asked = tuple(question for question in self._asked if question not in refused)
        return Code.SUCCESS


class _Fields:
    """Values of fields by their numbers, of one call; what is refused is left out of the next ones."""

    def __init__(
        self, call: Callable[..., int] | None, interval_s: float, fields: Sequence[tuple[int, int]]
    ) -> None:
        self.pace = _Pace(interval_s)
        # Newest values, with their types.
        self.values: dict[int, tuple[int, int]] = {}
        self._function = call
        self._fields = tuple(fields)
        self._all_due_s = 0.0
        self._asked = _make_array(self._fields)

    def ask(self, now_s: float) -> int:
        self.values = {}
        if now_s >= self._all_due_s:
            self._all_due_s = now_s + REFUSED_AGAIN_S
            self._asked = _make_array(self._fields)
        count = len(self._asked) // _FIELD.size
        if self._function is None or not count:
            return Code.FUNCTION_NOT_FOUND
        code = self._function(ctypes.c_int(count), self._asked)
        if code:
            return code
        entries = list(_FIELD.iter_unpack(self._asked))
        self.values = {field: (value, kind) for field, _, _, _, kind, code, value in entries if not code}
        if len(self.values) < count:
            kept = [(field, scope) for field, scope, _, _, _, code, _ in entries if code not in REFUSALS]
            self._asked = _make_array(kept)
        return Code.SUCCESS

    def number(self, field: int) -> int | None:
        """Return the value of a field of either width."""
        value, kind = self.values.get(field, (0, 0))
        if kind in _LONG_TYPES:
            return value
        return value & _INT_MASK if kind in _INT_TYPES else None

    def counter(self, field: int) -> int | None:
        """Return the value of a field that counts; one of 32 bits would wrap within a second."""
        value, kind = self.values.get(field, (0, 0))
        return value if kind in _LONG_TYPES else None


def _make_array(fields: Sequence[tuple[int, int]]) -> "ctypes.Array[ctypes.c_char]":
    array = ctypes.create_string_buffer(len(fields) * _FIELD.size)
    for place, (field, scope) in enumerate(fields):
        _FIELD.pack_into(array, place * _FIELD.size, field, scope, 0, 0, 0, 0, 0)
    return array


class _Rate:
    """How fast a counter rises, between its two newest readings."""

    def __init__(self) -> None:
        self._count: int | None = None
        self._at_s = 0.0

    def add(self, count: int | None, now_s: float) -> float | None:
        """Return the rate per second; None at first, and where the counter began again."""
        before = self._count
        passed_s = now_s - self._at_s
        self._count = count
        self._at_s = now_s
        if count is None or before is None or count < before or passed_s <= 0:
            return None
        return (count - before) / passed_s


class ProcessLoad(NamedTuple):
    sm_percent: float
    memory_bandwidth_percent: float


# `nvmlProcessUtilizationSample_t`: pid, time in µs, and shares of SM, memory, encoder and decoder.
_LOAD = struct.Struct("=I4xQIIII")
_FIRST_ROOM = 128
_MOST_ROOM = 1 << 16
_MOST_PERCENT = 100


class ProcessLoads:
    """The share of a device's time that each process had since the reading before."""

    def __init__(self, call: Callable[..., int] | None, wall_s: Callable[[], float]) -> None:
        self.pace = _Pace(LOADS_S)
        # The processes that the driver last listed.
        self.pids: frozenset[int] = frozenset()
        # By pid, of those that were listed when it was read; None where the driver does not report it.
        self.loads: dict[int, ProcessLoad] | None = None
        self._function = call
        self._wall_s = wall_s
        self._newest_us = 0
        self._count = ctypes.c_uint()
        self._entries = ctypes.create_string_buffer(_FIRST_ROOM * _LOAD.size)

    def ask(self, now_s: float) -> int:
        # The driver lists processes that worked since the given time; the others were idle.
        code = self._call(self._newest_us or int((self._wall_s() - LOADS_S) * 1e6))
        if code not in (Code.SUCCESS, Code.NOT_FOUND):
            self.loads = None
            return code
        found: dict[int, ProcessLoad] = {}
        count = 0 if code else min(self._count.value, len(self._entries) // _LOAD.size)
        data = memoryview(self._entries)[: count * _LOAD.size]
        absurd: set[int] = set()
        for pid, time_us, sm, memory, _, _ in sorted(_LOAD.iter_unpack(data), key=itemgetter(1)):
            self._newest_us = max(self._newest_us, time_us)
            if sm <= _MOST_PERCENT and memory <= _MOST_PERCENT:
                found[pid] = ProcessLoad(float(sm), float(memory))
            else:
                absurd.add(pid)
        self.loads = {pid: found.get(pid, ProcessLoad(0.0, 0.0)) for pid in self.pids - absurd}
        return Code.SUCCESS

    def _call(self, since_us: int) -> int:
        if self._function is None:
            return Code.FUNCTION_NOT_FOUND
        for _ in range(2):
            room = len(self._entries) // _LOAD.size
            self._count.value = room
            code = self._function(self._entries, ctypes.byref(self._count), ctypes.c_ulonglong(since_us))
            needed = self._count.value
            if code != Code.INSUFFICIENT_SIZE or not room < needed <= _MOST_ROOM:
                return code
            self._entries = ctypes.create_string_buffer(2 * needed * _LOAD.size)
        return code


class HardwareQuestions:
    """Asks one device for everything here; what is not due is as it was read before.

    Args:
        is_usable: Whether the handle may still be passed to the driver.
        clock_s: For when a call is due.
        elapsed_s: For how long a call takes.
        cpu_s: CPU time of the calling thread.
    """

    def __init__(
        self,
        library: NvmlLibrary,
        handle: ctypes.c_void_p,
        *,
        is_usable: Callable[[], bool],
        clock_s: Callable[[], float] = time.monotonic,
        elapsed_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.thread_time,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._library = library
        self._is_usable = is_usable
        self._clock_s = clock_s
        self._elapsed_s = elapsed_s
        self._cpu_s = cpu_s
        self._driver_version: str | None = None
        self._cuda_version: str | None = None
        self._has_versions = False

        def call(
            *names: str, first: int | None = None, second: int | None = None
        ) -> Callable[..., int] | None:
            """Return a call of the first of these functions that the driver has."""
            found = next((it for it in map(library.find, names) if it is not None), None)
            given = [ctypes.c_int(value) for value in (first, second) if value is not None]
            return None if found is None else partial(found, handle, *given)

        long = ctypes.c_ulonglong
        self._sm_clock = _Question(call("nvmlDeviceGetClockInfo", first=CLOCK_SM))
        self._memory_clock = _Question(call("nvmlDeviceGetClockInfo", first=CLOCK_MEMORY))
        self._performance = _Question(call("nvmlDeviceGetPerformanceState"))
        reasons = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        self._reasons = _Question(call(*reasons), of=long)
        self._sm_clock_max = _Question(call("nvmlDeviceGetMaxClockInfo", first=CLOCK_SM))
        self._memory_clock_max = _Question(call("nvmlDeviceGetMaxClockInfo", first=CLOCK_MEMORY))
        self._power_limit = _Question(call("nvmlDeviceGetEnforcedPowerLimit"))
        self._fan = _Question(call("nvmlDeviceGetFanSpeed"))
        self._compute_mode = _Question(call("nvmlDeviceGetComputeMode"))
        self._generation = _Question(call("nvmlDeviceGetCurrPcieLinkGeneration"))
        self._lanes = _Question(call("nvmlDeviceGetCurrPcieLinkWidth"))
        self._ecc = _Question(call("nvmlDeviceGetEccMode"), count=2)
        ecc = partial(call, "nvmlDeviceGetTotalEccErrors", second=ECC_VOLATILE)
        self._corrected = _Question(ecc(first=ECC_CORRECTED), of=long)
        self._uncorrected = _Question(ecc(first=ECC_UNCORRECTED), of=long)
        self._remapped = _Question(call("nvmlDeviceGetRemappedRows"), count=4)
        pcie = partial(call, "nvmlDeviceGetPcieThroughput")
        self._pcie_sent = _Question(pcie(first=PCIE_SENT))
        self._pcie_received = _Question(pcie(first=PCIE_RECEIVED))
        values = call("nvmlDeviceGetFieldValues")
        self._counters = _Fields(
            values,
            QUICK_S,
            [
                (PCIE_SENT_BYTES, 0),
                (PCIE_RECEIVED_BYTES, 0),
                (NVLINK_SENT_KIB, ALL_LANES),
                (NVLINK_RECEIVED_KIB, ALL_LANES),
            ],
        )
        self._retired = _Fields(
            values, HEALTH_S, [(RETIRED_CORRECTED, 0), (RETIRED_UNCORRECTED, 0), (RETIREMENT_PENDING, 0)]
        )
        self._throughput = _Group(THROUGHPUT_S, self._pcie_sent, self._pcie_received)
        self._slow: tuple[_Asked, ...] = (
            _Group(LIMITS_S, self._power_limit, self._fan, self._compute_mode, self._generation, self._lanes),
            _Group(CONSTANTS_S, self._sm_clock_max, self._memory_clock_max),
            _Group(HEALTH_S, self._ecc, self._corrected, self._uncorrected, self._remapped),
            self._retired,
        )
        self._quick = _Group(QUICK_S, self._sm_clock, self._memory_clock, self._performance, self._reasons)
        self._hardware: DeviceHardware | None = None
        self._rates = {field: _Rate() for field in (PCIE_SENT_BYTES, PCIE_RECEIVED_BYTES)}
        self._rates |= {field: _Rate() for field in (NVLINK_SENT_KIB, NVLINK_RECEIVED_KIB)}
        self._per_s: dict[int, float | None] = {}
        self._loads = ProcessLoads(call("nvmlDeviceGetProcessUtilization"), wall_s)

    @property
    def process_loads(self) -> dict[int, ProcessLoad] | None:
        """Loads by pid; None where the driver does not report them. Any thread may read it."""
        return self._loads.loads

    def read(self, memory_bandwidth_percent: float | None, pids: frozenset[int]) -> HardwareReading:
        """Ask what is due and return what is known.

        Args:
            memory_bandwidth_percent: As it was read elsewhere.
            pids: The processes that the driver last listed.

        Raises:
            DeviceLostError: The handle is dead.
        """
        now_s = self._clock_s()
        self._ask(self._quick, now_s)
        if self._ask(self._counters, now_s):
            for field, rate in self._rates.items():
                self._per_s[field] = rate.add(self._counters.counter(field), now_s)
        if self._counters.counter(PCIE_SENT_BYTES) is None:
            self._ask(self._throughput, now_s)
        self._loads.pids = pids
        if pids:
            self._ask(self._loads, now_s)
        if not self._has_versions:
            self._driver_version, self._cuda_version = self._library.read_versions()
            self._has_versions = True
        asked = [self._ask(group, now_s) for group in self._slow]
        if any(asked):
            self._hardware = self._describe_hardware()
        return HardwareReading(self._describe_activity(memory_bandwidth_percent), self._hardware)

    def _ask(self, question: _Asked, now_s: float) -> bool:
        """Ask if that is due, and return whether it was; raise if the handle is, or turns out to be, dead."""
        pace = question.pace
        if pace.due_s > now_s:
            return False
        meter_s = self._cpu_s if pace.is_doubtful else self._elapsed_s
        began_s = meter_s()
        code = question.ask(now_s) if self._is_usable() else Code.GPU_IS_LOST
        if code in GONE_CODES:
            raise make_lost_error(code)
        if code in REFUSALS:
            pace.note_refusal(now_s)
        else:
            pace.note(now_s, meter_s() - began_s)
        return True

    def _describe_activity(self, memory_bandwidth_percent: float | None) -> DeviceActivity:
        has_counters = self._counters.counter(PCIE_SENT_BYTES) is not None
        return DeviceActivity(
            memory_bandwidth_percent=memory_bandwidth_percent,
            sm_clock_mhz=self._sm_clock.within(MOST_CLOCK_MHZ),
            memory_clock_mhz=self._memory_clock.within(MOST_CLOCK_MHZ),
            performance_state=self._performance.within(LOWEST_PERFORMANCE),
            throttle_reasons=_name_reasons(self._reasons.answers),
            pcie_sent_bytes_per_s=self._round(PCIE_SENT_BYTES, self._pcie_sent, has_counters),
            pcie_received_bytes_per_s=self._round(PCIE_RECEIVED_BYTES, self._pcie_received, has_counters),
            nvlink_sent_bytes_per_s=_scale(self._per_s.get(NVLINK_SENT_KIB), KIB),
            nvlink_received_bytes_per_s=_scale(self._per_s.get(NVLINK_RECEIVED_KIB), KIB),
        )

    def _round(self, field: int, measured: _Question, has_counters: bool) -> float | None:
        """Return a throughput of PCI Express: of the counters, else as the driver measured it, in KB/s."""
        if has_counters:
            return _scale(self._per_s.get(field), 1)
        return _scale(None if measured.answers is None else measured.answers[0], 1000)

    def _describe_hardware(self) -> DeviceHardware:
        power_mw = self._power_limit.within(MOST_POWER_MW)
        fan = self._fan.within(MOST_FAN_PERCENT)
        mode = self._compute_mode.within(max(_COMPUTE_MODES))
        remapped = self._remapped.answers
        retired = [self._retired.number(field) for field in (RETIRED_CORRECTED, RETIRED_UNCORRECTED)]
        pending = self._retired.number(RETIREMENT_PENDING)
        if remapped is not None:
            pending = remapped[2]
        return DeviceHardware(
            driver_version=self._driver_version,
            cuda_version=self._cuda_version,
            power_limit_w=None if power_mw is None else power_mw / 1000.0,
            sm_clock_max_mhz=self._sm_clock_max.within(MOST_CLOCK_MHZ),
            memory_clock_max_mhz=self._memory_clock_max.within(MOST_CLOCK_MHZ),
            fan_percent=None if fan is None else float(fan),
            compute_mode=None if mode is None else _COMPUTE_MODES.get(mode),
            pcie_generation=self._generation.within(16),
            pcie_lanes=self._lanes.within(64),
            is_ecc_on=None if self._ecc.answers is None else bool(self._ecc.answers[0]),
            ecc_corrected=self._corrected.within(_MOST_COUNT),
            ecc_uncorrected=self._uncorrected.within(_MOST_COUNT),
            retired_pages=None if None in retired else sum(count or 0 for count in retired),
            remapped_rows=None if remapped is None else remapped[0] + remapped[1],
            is_repair_pending=None if pending is None else bool(pending),
        )


_MOST_COUNT = 2**53


def _scale(rate: float | None, factor: int) -> float | None:
    """Return a rate in bytes per second, to three digits: it is one of many moments, and is recorded."""
    return None if rate is None else float(f"{rate * factor:.3g}")


def _name_reasons(answers: tuple[int, ...] | None) -> tuple[ThrottleReason, ...] | None:
    return None if answers is None else tuple(name for bit, name in _REASONS if answers[0] & bit)
