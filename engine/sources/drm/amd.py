"""AMD GPUs through the files of the kernel driver amdgpu: no library, no root, no call that wakes a GPU."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import NamedTuple, NoReturn

from msgspec.structs import replace

from ...errors import (
    DeviceDeniedError,
    DeviceError,
    DeviceLostError,
    NotSupportedError,
    SourceUnavailableError,
)
from ...model import DeviceActivity, DeviceHardware, MemoryReading, ProcessKind, ProcessReading
from ...text import make_printable
from ..kernel_files import NumberFile, list_names, parse_number, read_bytes, read_text
from ..processes import ProcessTable
from ..source import DeviceDetails, DeviceIdentity, HardwareReading, make_reading
from .cards import Card, list_cards
from .fdinfo import ClientScan
from .metrics import MOST_BYTES, GpuMetrics, parse_metrics

_MOST_NODES = 1024
_MOST_PROCESSES = 4096
# Between two readings, and between two of the files that were 0.
_INTERVAL_S = 1.5
_ALL_INTERVAL_S = 9.5


class _Held(NamedTuple):
    """Bytes of one process by compute node, and when all nodes are due to be read again."""

    sizes: dict[str, int | None]
    all_due_s: float


class KfdProcesses:
    """Device memory of compute processes by PCI address; one reading serves all GPUs.

    In a partition mode (DPX, CPX …) one GPU is several nodes here, with one bus and device number: the sum
    of them is the GPU's. The kernel has a file for each pair of a process and a node, most of them 0 for
    good, so those are read less often.
    """

    def __init__(self, root: Path, clock_s: Callable[[], float]) -> None:
        self._folder = root / "sys/class/kfd/kfd"
        self._clock_s = clock_s
        # Address of each compute node, by the id of the node.
        self._addresses: dict[str, str] = {}
        self._held: dict[str, _Held] = {}
        self._by_address: dict[str, dict[int, int]] = {}
        self._due_s = clock_s()

    def find_nodes(self) -> None:
        """Read which GPUs there are; call again where devices came or went."""
        nodes = self._folder / "topology/nodes"
        addresses = {}
        for name in list_names(nodes)[:_MOST_NODES]:
            gpu_id = parse_number((read_text(nodes / name / "gpu_id") or "").encode())
            # Processors are nodes too, with the id 0; GPUs of others refuse to be read.
            address = _find_address(read_text(nodes / name / "properties") or "") if gpu_id else None
            if address is not None:
                addresses[str(gpu_id)] = address
        if addresses != self._addresses:
            self._addresses = addresses
            self._held = {}

    def read(self, pci_address: str) -> dict[int, int] | None:
        """Return bytes by host pid of the processes that compute on a GPU; None if it does not compute."""
        address = pci_address.partition(".")[0]
        if address not in self._addresses.values():
            return None
        now_s = self._clock_s()
        if now_s >= self._due_s:
            self._due_s = now_s + _INTERVAL_S
            self._read_all(now_s)
        return self._by_address.get(address, {})

    def _read_all(self, now_s: float) -> None:
        names = [name for name in list_names(self._folder / "proc")[:_MOST_PROCESSES] if name.isdigit()]
        self._held = {name: self._read_process(name, now_s) for name in names}
        self._by_address = {}
        for name, held in self._held.items():
            for gpu_id, size in held.sizes.items():
                if size:
                    sizes = self._by_address.setdefault(self._addresses[gpu_id], {})
                    sizes[int(name)] = sizes.get(int(name), 0) + size

    def _read_process(self, name: str, now_s: float) -> _Held:
        before = self._held.get(name)
        if before is None or now_s >= before.all_due_s:
            sizes = {gpu_id: self._read_size(name, gpu_id) for gpu_id in self._addresses}
            return _Held(sizes, now_s + _ALL_INTERVAL_S)
        sizes = {id_: self._read_size(name, id_) if size else size for id_, size in before.sizes.items()}
        return _Held(sizes, before.all_due_s)

    def _read_size(self, pid: str, gpu_id: str) -> int | None:
        # None if it ended, or does not use this GPU.
        return parse_number(read_bytes(f"{self._folder}/proc/{pid}/vram_{gpu_id}", 64))


def _find_address(properties: str) -> str | None:
    """Return `domain:bus:device` of a node; the function is the number of the partition in some kernels."""
    fields = dict(line.split(" ", 1) for line in properties.splitlines() if " " in line)
    domain, location = (parse_number(fields.get(name, "").encode()) for name in ("domain", "location_id"))
    if location is None:
        return None
    return f"{domain or 0:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"


DRIVER = "amdgpu"
# Between two looks at whether a GPU sleeps.
SLEEP_CHECK_S = 1.0
# Process lists change seldom; a tick that comes a little early reads them all the same.
PROCESS_INTERVAL_S = 1.5
HARDWARE_INTERVAL_S = 3.5
# Errors are counted by the firmware; asking for them costs more than a sensor does.
HEALTH_INTERVAL_S = 30.0
# The largest carve-out that a BIOS makes by itself for a GPU without memory of its own.
LARGEST_CARVE_OUT_BYTES = 512 << 20
# Where distributions put the names of libdrm: device id, revision, name.
NAMES_FILE = "usr/share/libdrm/amdgpu.ids"
_MOST_NAMES_BYTES = 1 << 20
_MOST_PAGES_BYTES = 1 << 16
_UNIQUE_ID = re.compile(r"[0-9a-f]{1,16}")
_MOST_NAME_CHARS = 96
_ERRORS = re.compile(r"^(ue|ce):\s*(\d{1,18})\s*$", re.MULTILINE)
_BAD_PAGE = re.compile(r"^0x[0-9a-f]+ : 0x[0-9a-f]+ : ([RPF])\s*$", re.MULTILINE)


class _Errors(NamedTuple):
    corrected: int | None = None
    uncorrected: int | None = None
    retired_pages: int | None = None
    is_repair_pending: bool | None = None


class AmdReader:
    """Reads one GPU.

    Args:
        kfd: Compute processes, shared by all GPUs of a node.
        clients: Graphics processes, likewise.
        table: Describes processes.
    """

    def __init__(
        self,
        card: Card,
        identity: DeviceIdentity,
        *,
        kfd: KfdProcesses,
        clients: ClientScan,
        table: ProcessTable,
        clock_s: Callable[[], float] = monotonic,
    ) -> None:
        self.identity = identity
        self._found = identity
        self._folder = card.folder
        self._kfd = kfd
        self._clients = clients
        self._table = table
        self._clock_s = clock_s
        self._is_asleep = False
        self._sleep_due_s = clock_s()
        self._processes: tuple[ProcessReading, ...] | None = None
        self._processes_due_s = clock_s()
        self._hardware_due_s = clock_s()
        self._health_due_s = clock_s()
        self._errors = _Errors()
        self._metrics: GpuMetrics | None = None
        self._reading = HardwareReading()
        self._total_bytes: dict[str, int | None] = {}
        self._used = {name: NumberFile(self._folder / f"mem_info_{name}_used") for name in ("vram", "gtt")}
        self._busy = NumberFile(self._folder / "gpu_busy_percent")
        self._memory_busy = NumberFile(self._folder / "mem_busy_percent")
        self._sensors: dict[str, NumberFile] | None = None
        self._is_apu: bool | None = None

    def is_of(self, card: Card, identity: DeviceIdentity) -> bool:
        return self._folder == card.folder and self._found == identity

    @property
    def _region(self) -> str:
        """Memory to show: where the kernel puts a program's data, which is the larger one on an APU."""
        vram, gtt = (self._total_bytes.get(name) or 0 for name in ("vram", "gtt"))
        return "gtt" if self._is_apu and gtt > vram else "vram"

    def read_memory(self) -> MemoryReading:
        """Return total, used and free bytes; on an APU of the host's memory that it may map (GTT)."""
        self._check_awake()
        if self._is_apu is None:
            self._describe_memory()
        region = self._region
        total = self._total_bytes.get(region)
        used = self._used[region].read()
        if total is None or used is None:
            self._explain(self._used[region].path)
        return make_reading(total, max(0, total - used), used)

    def read_details(self) -> DeviceDetails:
        """Return utilisation, temperature, power and processes; what is not supported is None."""
        self._check_awake()
        metrics = self._metrics
        sensors = self._find_sensors()
        busy: float | None = self._busy.read()
        temperature = _scale(_read(sensors, "edge", "junction"), 1e-3, 200.0)
        power = _scale(_read(sensors, "power"), 1e-6, 10_000.0)
        if metrics is not None:
            busy = metrics.busy_percent if busy is None else busy
            power = metrics.power_w if power is None else power
            if temperature is None:
                temperature = metrics.junction_c if metrics.edge_c is None else metrics.edge_c
        return DeviceDetails(
            utilization_percent=None if busy is None or busy > 100 else float(busy),
            temperature_c=temperature,
            power_w=power,
            processes=self._read_processes(),
        )

    def read_hardware(self) -> HardwareReading:
        """Return clocks, limits and errors; each has its own pace."""
        self._check_awake()
        self._clients.scan_if_due()
        now_s = self._clock_s()
        if now_s < self._hardware_due_s:
            return self._reading
        self._hardware_due_s = now_s + HARDWARE_INTERVAL_S
        self._metrics = metrics = self._read_metrics()
        if now_s >= self._health_due_s:
            self._health_due_s = now_s + HEALTH_INTERVAL_S
            self._errors = self._read_errors()
        found = metrics or GpuMetrics(revision="")
        memory_busy = self._memory_busy.read()
        sensors = self._find_sensors()
        fan, fan_most = _read(sensors, "fan"), _read(sensors, "fan_most")
        errors = self._errors
        self._reading = HardwareReading(
            DeviceActivity(
                memory_bandwidth_percent=found.memory_busy_percent if memory_busy is None else memory_busy,
                sm_clock_mhz=found.clock_mhz,
                memory_clock_mhz=found.memory_clock_mhz,
                throttle_reasons=found.throttle_reasons,
            ),
            DeviceHardware(
                driver_version=read_text(self._folder / "driver/module/version"),
                power_limit_w=_scale(_read(sensors, "power_cap"), 1e-6, 10_000.0),
                fan_percent=round(100.0 * fan / fan_most, 1) if fan is not None and fan_most else None,
                pcie_generation=found.pcie_generation,
                pcie_lanes=found.pcie_lanes,
                is_ecc_on=True if errors.uncorrected is not None else None,
                ecc_corrected=errors.corrected,
                ecc_uncorrected=errors.uncorrected,
                retired_pages=errors.retired_pages,
                is_repair_pending=errors.is_repair_pending,
            ),
        )
        return self._reading

    def drop_ended(self, processes: tuple[ProcessReading, ...]) -> tuple[ProcessReading, ...]:
        """Asks the kernel only."""
        return self._table.drop_ended(processes)

    def _check_awake(self) -> None:
        """Raise if the GPU sleeps: many of its files would wake it."""
        now_s = self._clock_s()
        if now_s >= self._sleep_due_s:
            self._sleep_due_s = now_s + SLEEP_CHECK_S
            self._is_asleep = is_asleep(self._folder)
        if self._is_asleep:
            raise NotSupportedError(
                "the GPU sleeps to save power, and reading it would wake it; its memory is read again once a "
                "program uses it"
            )

    def _describe_memory(self) -> None:
        """Read what stays the same: the size of its memories, and whether it has any of its own."""
        for name in ("vram", "gtt"):
            self._total_bytes[name] = NumberFile(self._folder / f"mem_info_{name}_total").read()
        vram = self._total_bytes["vram"]
        if vram is None:
            self._explain(self._folder / "mem_info_vram_total")
        metrics = self._metrics = self._read_metrics()
        self._is_apu = vram <= LARGEST_CARVE_OUT_BYTES if metrics is None else metrics.is_apu
        if self._is_apu:
            self.identity = replace(self.identity, kind="unified")

    def _explain(self, path: Path) -> NoReturn:
        """Raise why a file has no number."""
        if not os.path.exists(self._folder):  # noqa: PTH110 - as fast as it gets
            raise DeviceLostError(
                f"the GPU at {self.identity.pci_address} was removed; see `dmesg | grep -i amdgpu`, reboot"
            )
        if not path.exists():
            raise NotSupportedError(f"the driver amdgpu has no file {path.name} for this GPU")
        if not os.access(path, os.R_OK):
            raise DeviceDeniedError(f"this user may not read {path}")
        raise DeviceError(f"{path} holds no number; see `dmesg | grep -i amdgpu`")

    def _read_metrics(self) -> GpuMetrics | None:
        try:
            with (self._folder / "gpu_metrics").open("rb", buffering=0) as file:
                return parse_metrics(file.read(MOST_BYTES))
        except OSError:
            return None

    def _read_errors(self) -> _Errors:
        counts = {
            kind: int(count)
            for kind, count in _ERRORS.findall(read_text(self._folder / "ras/umc_err_count") or "")
        }
        pages = read_text(self._folder / "ras/gpu_vram_bad_pages", _MOST_PAGES_BYTES)
        states = _BAD_PAGE.findall(pages or "")
        has_pages = pages is not None or (self._folder / "ras/gpu_vram_bad_pages").exists()
        return _Errors(
            counts.get("ce"),
            counts.get("ue"),
            states.count("R") if has_pages else None,
            "P" in states if has_pages else None,
        )

    def _find_sensors(self) -> dict[str, NumberFile]:
        """Return the files of its sensors by what they measure, found once while the GPU is awake."""
        if self._sensors is None:
            self._sensors = find_sensors(self._folder)
        return self._sensors

    def _read_processes(self) -> tuple[ProcessReading, ...] | None:
        now_s = self._clock_s()
        if now_s < self._processes_due_s:
            return self._processes
        self._processes_due_s = now_s + PROCESS_INTERVAL_S
        address = self.identity.pci_address or ""
        computing = self._kfd.read(address) or {}
        drawing = {
            pid: regions.get(self._region) for pid, regions in self._clients.held.get(address, {}).items()
        }
        readings = []
        for pid in sorted(computing.keys() | drawing.keys()):
            sizes = [size for size in (computing.get(pid), drawing.get(pid)) if size is not None]
            kind: ProcessKind = "compute" if pid in computing else "graphics"
            # Both count the buffers of a process that computes, so they are not added.
            readings.append(self._table.read(pid, max(sizes, default=None), kind))
        self._processes = tuple(readings)
        return self._processes


def is_asleep(folder: Path) -> bool:
    """Return whether a device is suspended while it is not in use; this file does not wake it."""
    return read_text(folder / "power/runtime_status") in ("suspended", "suspending")


def find_sensors(folder: Path) -> dict[str, NumberFile]:
    try:
        monitors = sorted((folder / "hwmon").iterdir())
    except OSError:
        return {}
    found: dict[str, NumberFile] = {}
    for monitor in monitors:
        for number in (1, 2, 3):
            label = read_text(monitor / f"temp{number}_label")
            if label in ("edge", "junction", "mem"):
                found[label] = NumberFile(monitor / f"temp{number}_input")
        # Cards of the Instinct series have the second one.
        for name in ("power1_input", "power1_average"):
            if (monitor / name).exists():
                found["power"] = NumberFile(monitor / name)
        for key, name in (("power_cap", "power1_cap"), ("fan", "pwm1"), ("fan_most", "pwm1_max")):
            if (monitor / name).exists():
                found[key] = NumberFile(monitor / name)
    return found


def _read(sensors: dict[str, NumberFile], *names: str) -> int | None:
    """Return the value of the first of some sensors that has one."""
    values = (sensors[name].read() for name in names if name in sensors)
    return next((value for value in values if value is not None), None)


def _scale(value: int | None, factor: float, most: float) -> float | None:
    scaled = None if value is None else round(value * factor, 1)
    return None if scaled is None or scaled > most else scaled


class AmdSource:
    """GPUs of the kernel driver amdgpu, in the order of their PCI addresses.

    A GPU in a partition mode (DPX, CPX …) is one device, whose name has the mode: memory and sensors are the
    whole GPU's.
    """

    name = "amdgpu"

    def __init__(self, root: Path = Path("/"), clock_s: Callable[[], float] = monotonic) -> None:
        self._root = root
        self._clock_s = clock_s
        self._kfd = KfdProcesses(root, clock_s)
        self._clients = ClientScan(root, clock_s, time.thread_time)
        self._table = ProcessTable(
            root, clock_s, device_files=("/dev/kfd", "/dev/dri/"), control_file="dev/kfd"
        )
        self._readers: dict[str, AmdReader] = {}
        self._names: dict[tuple[str, str], str] | None = None

    def discover(self) -> list[AmdReader]:
        """Return the GPUs; one that sleeps is found and not woken.

        Raises:
            SourceUnavailableError: There is none any more.
        """
        cards = list_cards(self._root, DRIVER)
        if not cards:
            raise SourceUnavailableError(
                "The driver amdgpu runs no GPU any more; see `lspci -k` and `dmesg | grep -i amdgpu`."
            )
        self._kfd.find_nodes()
        readers = {}
        for index, card in enumerate(cards):
            identity = self._identify(card, index)
            reader = self._readers.get(identity.uuid)
            if reader is None or not reader.is_of(card, identity):
                reader = AmdReader(
                    card,
                    identity,
                    kfd=self._kfd,
                    clients=self._clients,
                    table=self._table,
                    clock_s=self._clock_s,
                )
            readers[identity.uuid] = reader
        self._readers = readers
        return list(readers.values())

    def close(self) -> None:
        """Nothing is held open but files, which close by themselves."""
        self._readers = {}

    def _identify(self, card: Card, index: int) -> DeviceIdentity:
        """Name a GPU by files that the driver answers from its own memory, as they wake no GPU."""
        unique_id = (read_text(card.folder / "unique_id") or "").lower()
        is_unique = _UNIQUE_ID.fullmatch(unique_id) is not None and int(unique_id, 16) != 0
        name = read_text(card.folder / "product_name") or self._find_name(card)
        modes = [read_text(card.folder / f"current_{kind}_partition") for kind in ("compute", "memory")]
        if modes[0] not in (None, "SPX") or modes[1] not in (None, "NPS1"):
            name = f"{name} ({'/'.join(filter(None, modes))})"
        return DeviceIdentity(
            # As ROCm spells it, in ROCR_VISIBLE_DEVICES too.
            uuid=f"GPU-{unique_id}" if is_unique else f"amdgpu-{card.pci_address}",
            index=index,
            name=make_printable(name, _MOST_NAME_CHARS),
            pci_address=card.pci_address,
        )

    def _find_name(self, card: Card) -> str:
        device, revision = (
            (read_text(card.folder / name) or "").lower().removeprefix("0x")
            for name in ("device", "revision")
        )
        if self._names is None:
            self._names = read_names(self._root / NAMES_FILE)
        return self._names.get((device, revision)) or f"AMD GPU {device}".strip()


def read_names(path: Path) -> dict[tuple[str, str], str]:
    """Return product names by device id and revision, as libdrm lists them: `744C,\tC8,\tAMD Radeon …`."""
    names = {}
    for line in (read_text(path, _MOST_NAMES_BYTES) or "").splitlines():
        parts = [part.strip() for part in line.split(",", 2)]
        if len(parts) == 3 and not line.startswith("#"):
            names[parts[0].lower(), parts[1].lower().rjust(2, "0")] = parts[2]
    return names
