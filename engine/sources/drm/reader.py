"""One GPU of any DRM driver: what the kernel says of each, whichever vendor made it."""

import os
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, NoReturn

from msgspec.structs import replace

from ...errors import DeviceDeniedError, DeviceError, DeviceLostError, NotSupportedError
from ...model import DeviceHardware, MemoryReading, ProcessReading
from ..host import read_host_memory
from ..kernel_files import KeptFile, NumberFile, list_names, read_text
from ..processes import ProcessTable
from ..source import DeviceDetails, DeviceIdentity, HardwareReading, make_reading
from .cards import Card
from .dmem import DmemGroup, is_own_region
from .fdinfo import ClientScan
from .kfd import KfdProcesses
from .smi import AmdSmi

# Between two looks at whether a GPU sleeps.
SLEEP_CHECK_S = 1.0
# Process lists change seldom; a tick that comes a little early reads them all the same. A GPU with many
# processes has them read less often, so that what they cost has a bound.
PROCESS_INTERVAL_S = 1.5
PER_PROCESS_S = 0.4
MOST_PROCESS_INTERVAL_S = 9.5
HARDWARE_INTERVAL_S = 3.5
# Values of `power/runtime_status`, a file that wakes nothing.
_ASLEEP = (b"suspended", b"suspending")
_MOST_C = 200.0
_MOST_W = 10_000.0
# Names of sensors by label, best first: of the whole chip. Battlemage and later begin at temp2.
_TEMPERATURES = ("edge", "pkg", "junction")
_LABELS = {*_TEMPERATURES, "mem", "vram"}


class Shared(NamedTuple):
    """What all GPUs of a node read together."""

    # Stands for `/`.
    root: Path
    # Finds the processes that use a GPU through its device file.
    clients: ClientScan
    # Compute processes of AMD's GPUs.
    kfd: KfdProcesses
    dmem: DmemGroup
    # Describes processes.
    table: ProcessTable
    clock_s: Callable[[], float]
    # AMD's own library, where it is installed.
    smi: AmdSmi


class DrmReader:
    """Reads memory, sensors and processes of one GPU; drivers that say more have a class of their own.

    Memory is that of control groups (`dmem`) where the kernel has it. Else it is the sum of what the
    processes that this user may see hold there: a lower bound, and labelled as one.
    """

    def __init__(self, card: Card, identity: DeviceIdentity, shared: Shared) -> None:
        self.identity = identity
        self._found = identity
        self._card = card
        self._folder = card.folder
        self._shared = shared
        self._clock_s = clock_s = shared.clock_s
        self._is_asleep = False
        self._sleep_file = KeptFile(f"{card.folder}/power/runtime_status", 64)
        self._sleep_due_s = clock_s()
        self._processes: tuple[ProcessReading, ...] | None = None
        self._processes_due_s = clock_s()
        self._hardware_due_s = clock_s()
        self._reading = HardwareReading()
        self._sensors: dict[str, NumberFile] | None = None
        # Those that exist of some names, by the names.
        self._chosen: dict[tuple[str, ...], tuple[NumberFile, ...]] = {}
        # Energy and time of the reading before, where the GPU counts energy instead of power.
        self._energy: tuple[int, float] | None = None
        if card.is_built_in:
            self.identity = replace(identity, kind="unified")

    @property
    def driver(self) -> str:
        return self._card.driver

    def is_of(self, card: Card, identity: DeviceIdentity) -> bool:
        return self._card == card and self._found == identity

    def read_memory(self) -> MemoryReading:
        """Return total, used and free bytes; of a GPU without memory of its own the host's."""
        self._check_awake()
        if self._card.is_built_in:
            return read_host_memory(self._shared.root / "proc")
        regions = self._shared.dmem.read(self._card.address)
        total = regions.total_bytes or self.find_total()
        if total is not None and regions.used_bytes is not None:
            return make_reading(total, max(0, total - regions.used_bytes), regions.used_bytes)
        if not self._shared.clients.has_scanned:
            self._shared.clients.scan_if_due()
        usages = self._shared.clients.held.get(self._card.address, {}).values()
        sizes = [size for it in usages for region, size in it.regions.items() if is_own_region(region)]
        used = sum(sizes) if sizes else None
        if total is None and used is None:
            self._explain_missing()
        if total is not None and used is not None and used > total:
            used = None
        return MemoryReading(total_bytes=total, used_bytes=used, is_lower_bound=used is not None)

    def find_total(self) -> int | None:
        """Return the size of its memory where the driver has a way of its own to say it."""
        return None

    def read_details(self) -> DeviceDetails:
        """Return utilisation, temperature, power and processes; what is not supported is None."""
        self._check_awake()
        return DeviceDetails(
            utilization_percent=self._shared.clients.find_load(self._card.address),
            temperature_c=self.read_temperature_c(),
            power_w=self.read_power_w(),
            processes=self._read_processes(),
        )

    def read_hardware(self) -> HardwareReading:
        """Return clocks, limits and errors; each has its own pace."""
        self._check_awake()
        self._shared.clients.scan_if_due()
        now_s = self._clock_s()
        if now_s >= self._hardware_due_s:
            self._hardware_due_s = now_s + HARDWARE_INTERVAL_S
            self._reading = self.read_hardware_now()
        return self._reading

    def read_hardware_now(self) -> HardwareReading:
        return HardwareReading(
            None,
            DeviceHardware(
                driver_version=self.driver_version,
                power_limit_w=self.read_power_limit_w(),
                fan_percent=self.read_fan_percent(),
            ),
        )

    @cached_property
    def driver_version(self) -> str | None:
        return read_text(self._folder / "driver/module/version")

    def list_processes(self) -> Iterator[ProcessReading]:
        """Yield the processes that use it through its device file."""
        usages = self._shared.clients.held.get(self._card.address, {})
        for pid, usage in sorted(usages.items()):
            sizes = [size for region, size in usage.regions.items() if is_own_region(region)]
            if self._card.is_built_in:
                sizes = list(usage.regions.values())
            size = sum(sizes) if sizes else None
            yield self._shared.table.read(pid, size, "graphics", sm_percent=usage.busy_percent)

    def drop_ended(self, processes: tuple[ProcessReading, ...]) -> tuple[ProcessReading, ...]:
        """Asks the kernel only."""
        return self._shared.table.drop_ended(processes)

    def read_temperature_c(self) -> float | None:
        return scale(self.read_sensor(*_TEMPERATURES, "temperature"), 1e-3, _MOST_C)

    def read_power_w(self) -> float | None:
        """Return what it draws: as measured, or by the energy since the reading before."""
        power = scale(self.read_sensor("power"), 1e-6, _MOST_W)
        energy = self.read_sensor("energy") if power is None else None
        if energy is None:
            return power
        before = self._energy
        self._energy = energy, self._clock_s()
        passed_s = 0.0 if before is None else self._energy[1] - before[1]
        # The counter may begin again with the driver.
        if before is None or passed_s <= 0.0 or energy < before[0]:
            return None
        watts = round((energy - before[0]) * 1e-6 / passed_s, 1)
        return watts if watts <= _MOST_W else None

    def read_power_limit_w(self) -> float | None:
        # 0 is no limit.
        return scale(self.read_sensor("power_cap"), 1e-6, _MOST_W) or None

    def read_fan_percent(self) -> float | None:
        fan, fan_most = self.read_sensor("fan"), self.read_sensor("fan_most")
        return round(100.0 * fan / fan_most, 1) if fan is not None and fan_most else None

    def read_sensor(self, *names: str) -> int | None:
        """Return the value of the first of some sensors that has one."""
        chosen = self._chosen.get(names)
        if chosen is None:
            if self._sensors is None:  # found once while the GPU is awake
                self._sensors = find_sensors(self._folder)
            sensors = self._sensors
            chosen = self._chosen[names] = tuple([sensors[name] for name in names if name in sensors])
        for sensor in chosen:
            value = sensor.read()
            if value is not None:
                return value
        return None

    def _check_awake(self) -> None:
        """Raise if the GPU sleeps: many of its files would wake it."""
        now_s = self._clock_s()
        if now_s >= self._sleep_due_s:
            self._sleep_due_s = now_s + SLEEP_CHECK_S
            self._is_asleep = (self._sleep_file.read() or b"").strip() in _ASLEEP
        if self._is_asleep:
            raise NotSupportedError(
                "the GPU sleeps to save power, and reading it would wake it; its memory is read again once a "
                "program uses it"
            )

    def explain(self, path: Path) -> NoReturn:
        """Raise why a file has no number."""
        self._check_there()
        if not path.exists():
            raise NotSupportedError(f"the driver {self.driver} has no file {path.name} for this GPU")
        if not os.access(path, os.R_OK):
            raise DeviceDeniedError(f"this user may not read {path}")
        raise DeviceError(f"{path} holds no number; see `dmesg | grep -i {self.driver}`")

    def _explain_missing(self) -> NoReturn:
        """Raise why nothing is known about its memory."""
        self._check_there()
        raise NotSupportedError(
            f"the driver {self.driver} says neither how much memory this GPU has, nor that a process of this "
            "user holds any; Linux 6.14 and later say it for more drivers, and root sees all processes"
        )

    def _check_there(self) -> None:
        if not os.path.exists(self._folder):  # noqa: PTH110 - as fast as it gets
            raise DeviceLostError(
                f"the GPU at {self._card.address} was removed; see `dmesg | grep -i {self.driver}`, reboot"
            )

    def _read_processes(self) -> tuple[ProcessReading, ...] | None:
        now_s = self._clock_s()
        if now_s >= self._processes_due_s:
            self._processes = tuple(self.list_processes())
            wait_s = max(PROCESS_INTERVAL_S, PER_PROCESS_S * len(self._processes))
            self._processes_due_s = now_s + min(wait_s, MOST_PROCESS_INTERVAL_S)
        return self._processes


# Files of a monitor by what they measure; of several the last one that exists counts.
_SENSOR_FILES = (
    ("temperature", "temp1_input"),
    # Of the chip, then of the whole card.
    ("energy", "energy2_input"),
    ("energy", "energy1_input"),
    ("power", "power1_input"),
    # Cards of the Instinct series have only the one before.
    ("power", "power1_average"),
    # What AMD calls a cap is what Intel calls a maximum; its own file of that name is for milliseconds.
    ("power_cap", "power1_cap"),
    ("power_cap", "power2_max"),
    ("power_cap", "power1_max"),
    ("fan", "pwm1"),
    ("fan_most", "pwm1_max"),
)


def find_sensors(folder: Path) -> dict[str, NumberFile]:
    found: dict[str, NumberFile] = {}
    for name in sorted(list_names(folder / "hwmon")):
        monitor = folder / "hwmon" / name
        # A part of the GPU, which i915 lists too.
        if "_gt" in (read_text(monitor / "name") or ""):
            continue
        for number in (1, 2, 3):
            label = read_text(monitor / f"temp{number}_label")
            if label in _LABELS:
                found[label] = NumberFile(monitor / f"temp{number}_input")
        for key, file in _SENSOR_FILES:
            if (monitor / file).exists():
                found[key] = NumberFile(monitor / file)
    return found


def scale(value: int | None, factor: float, most: float) -> float | None:
    scaled = None if value is None else round(value * factor, 1)
    return None if scaled is None or scaled > most else scaled
