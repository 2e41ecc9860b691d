"""AMD GPUs through the files of the kernel driver amdgpu: no library, no root, no call that wakes a GPU."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from ...errors import NotSupportedError
from ...model import DeviceActivity, DeviceHardware, MemoryReading, ProcessKind, ProcessReading
from ...text import make_printable
from ..kernel_files import KeptFile, NumberFile, parse_number, read_text
from ..source import DeviceDetails, DeviceIdentity, HardwareReading, PreparedMemory, make_reading
from .cards import Card
from .gpu_metrics import MOST_BYTES, GpuMetrics, parse_metrics
from .reader import DrmReader, Shared
from .smi import SmiReading
from .xgmi import XgmiMeter

# The name of a GPU that is known only by its device id.
UNNAMED = "AMD GPU"
MOST_NAME_CHARS = 96
# Errors are counted by the firmware; asking for them costs more than a sensor does.
HEALTH_INTERVAL_S = 30.0
# The largest carve-out that a BIOS makes by itself for a GPU without memory of its own.
LARGEST_CARVE_OUT_BYTES = 512 << 20
# Where distributions put the names of libdrm: device id, revision, name.
NAMES_FILE = "usr/share/libdrm/amdgpu.ids"
_MOST_NAMES_BYTES = 1 << 20
_MOST_PAGES_BYTES = 1 << 16
_UNIQUE_ID = re.compile(r"[0-9a-f]{1,16}")
_ERRORS = re.compile(r"^(ue|ce):\s*(\d{1,18})\s*$", re.MULTILINE)
_BAD_PAGE = re.compile(r"^0x[0-9a-f]+ : 0x[0-9a-f]+ : ([RPF])\s*$", re.MULTILINE)


class _Errors(NamedTuple):
    corrected: int | None = None
    uncorrected: int | None = None
    retired_pages: int | None = None
    is_repair_pending: bool | None = None


class AmdReader(DrmReader):
    """Reads one GPU.

    A GPU in a partition mode (DPX, CPX …) is one device, whose name has the mode: memory and sensors are the
    whole GPU's.
    """

    def __init__(self, card: Card, identity: DeviceIdentity, shared: Shared) -> None:
        super().__init__(card, identity, shared)
        self._health_due_s = self._clock_s()
        self._errors = _Errors()
        self._smi = SmiReading()
        self._metrics: GpuMetrics | None = None
        self._metrics_file = KeptFile(f"{card.folder}/gpu_metrics", MOST_BYTES)
        # What they were parsed from.
        self._metrics_data: bytes | None = None
        self._xgmi = XgmiMeter()
        self._total_bytes: dict[str, int | None] = {}
        self._used = {name: NumberFile(self._folder / f"mem_info_{name}_used") for name in ("vram", "gtt")}
        self._busy = NumberFile(self._folder / "gpu_busy_percent")
        self._memory_busy = NumberFile(self._folder / "mem_busy_percent")
        # Known once its memory was described.
        self._is_apu: bool | None = None
        self._region = "vram"
        self._shown_file = self._used["vram"]
        self._shown_bytes: int | None = None

    def read_memory(self) -> MemoryReading:
        """Return total, used and free bytes; on an APU of the host's memory that it may map (GTT)."""
        self._check_awake()
        if self._is_apu is None:
            self._describe_memory()
        total = self._shown_bytes
        used = self._shown_file.read()
        if total is None or used is None:
            self.explain(self._shown_file.path)
        return make_reading(total, max(0, total - used), used)

    def prepare_memory(self, buffer: memoryview) -> PreparedMemory | None:
        """The call of `read_memory`; details look whether the GPU sleeps, and end it then."""
        total = self._shown_bytes
        if total is None:
            return None
        call = self._shown_file.prepare_read(buffer)
        return PreparedMemory(call, partial(_parse_used, total), lambda _code: self.read_memory())

    def read_details(self) -> DeviceDetails:
        """Return utilisation, temperature, power and processes; what is not supported is None."""
        try:
            self._check_awake()
        except NotSupportedError:
            self._shown_file.close()
            raise
        metrics = self._metrics
        busy: float | None = self._busy.read()
        temperature = self.read_temperature_c()
        power = self.read_power_w()
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

    def read_hardware_now(self) -> HardwareReading:
        now_s = self._clock_s()
        before = None if self._metrics is None else self._metrics.throttling
        metrics = self._read_metrics()
        xgmi = self._xgmi.add(self._metrics_data, now_s)
        if now_s >= self._health_due_s:
            self._health_due_s = now_s + HEALTH_INTERVAL_S
            self._errors = self._read_errors()
            self._smi = self._ask_library()
        found = metrics or GpuMetrics(revision="")
        reasons = found.throttle_reasons
        if before is not None and found.throttling is not None:
            reasons = found.throttling.find_reasons(before)
        memory_busy = self._memory_busy.read()
        errors = self._errors
        return HardwareReading(
            DeviceActivity(
                memory_bandwidth_percent=found.memory_busy_percent if memory_busy is None else memory_busy,
                sm_clock_mhz=found.clock_mhz,
                memory_clock_mhz=found.memory_clock_mhz,
                throttle_reasons=reasons,
                xgmi_sent_bytes_per_s=xgmi.sent_bytes_per_s,
                xgmi_received_bytes_per_s=xgmi.received_bytes_per_s,
            ),
            DeviceHardware(
                driver_version=self.driver_version,
                power_limit_w=self.read_power_limit_w(),
                fan_percent=self.read_fan_percent(),
                pcie_generation=found.pcie_generation,
                pcie_lanes=found.pcie_lanes,
                is_ecc_on=True if errors.uncorrected is not None else None,
                sm_clock_max_mhz=self._smi.clock_max_mhz,
                memory_clock_max_mhz=self._smi.memory_clock_max_mhz,
                ecc_corrected=errors.corrected,
                ecc_uncorrected=errors.uncorrected,
                retired_pages=errors.retired_pages,
                is_repair_pending=errors.is_repair_pending,
            ),
        )

    def list_processes(self) -> Iterator[ProcessReading]:
        address = self._card.address
        computing = self._shared.kfd.read(address) or {}
        drawing = self._shared.clients.held.get(address, {})
        for pid in sorted(computing.keys() | drawing.keys()):
            mapped = drawing[pid].regions.get(self._region) if pid in drawing else None
            sizes = [size for size in (computing.get(pid), mapped) if size is not None]
            kind: ProcessKind = "compute" if pid in computing else "graphics"
            # Both count the buffers of a process that computes, so they are not added. Its kernels do not run
            # through the device file, so that file knows no load of it.
            yield self._shared.table.read(pid, max(sizes, default=None), kind)

    def _describe_memory(self) -> None:
        """Read what stays the same: the size of its memories, and whether it has any of its own."""
        for name in ("vram", "gtt"):
            self._total_bytes[name] = NumberFile(self._folder / f"mem_info_{name}_total").read()
        vram = self._total_bytes["vram"]
        if vram is None:
            self.explain(self._folder / "mem_info_vram_total")
        metrics = self._read_metrics()
        self._is_apu = vram <= LARGEST_CARVE_OUT_BYTES if metrics is None else metrics.is_apu
        # Memory to show: where the kernel puts a program's data, which is the larger one on an APU.
        is_mapped = self._is_apu and (self._total_bytes["gtt"] or 0) > vram
        self._region = "gtt" if is_mapped else "vram"
        self._shown_file = self._used[self._region]
        self._shown_bytes = self._total_bytes[self._region]
        if self._is_apu:
            self.identity = replace(self.identity, kind="unified")

    def _read_metrics(self) -> GpuMetrics | None:
        data = self._metrics_file.read()
        if data != self._metrics_data:
            self._metrics_data = data
            self._metrics = None if data is None else parse_metrics(data)
        return self._metrics

    def _ask_library(self) -> SmiReading:
        """Ask AMD's library, if it is there, and name the GPU if nothing else has a name for it."""
        smi = self._shared.smi.read(self._card.address)
        unnamed, _, mode = (self.identity.name or "").partition(" (")
        if smi.name is not None and unnamed.startswith(UNNAMED):
            name = make_printable(f"{smi.name} ({mode}" if mode else smi.name, MOST_NAME_CHARS)
            self.identity = replace(self.identity, name=name)
        return smi

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


def _parse_used(total: int, data: bytes, offset: int) -> tuple[int, int, int]:
    used = parse_number(data[offset : data.index(b"\n", offset)])
    return (0, 0, 0) if used is None else (total, max(0, total - used), used)


def identify_amd(card: Card, index: int, root: Path, names: dict[tuple[str, str], str]) -> DeviceIdentity:
    """Name a GPU by files that the driver answers from its own memory, as they wake no GPU.

    Args:
        names: Product names by device id and revision; read from libdrm's list when it is first needed.
    """
    unique_id = (read_text(f"{card.folder}/unique_id") or "").lower()
    is_unique = _UNIQUE_ID.fullmatch(unique_id) is not None and int(unique_id, 16) != 0
    name = read_text(f"{card.folder}/product_name")
    if name is None:
        device, revision = (
            (read_text(f"{card.folder}/{file}") or "").lower().removeprefix("0x")
            for file in ("device", "revision")
        )
        if not names:
            names.update(read_names(root / NAMES_FILE))
        name = names.get((device, revision)) or f"{UNNAMED} {device}".strip()
    modes = [read_text(f"{card.folder}/current_{kind}_partition") for kind in ("compute", "memory")]
    if modes[0] not in (None, "SPX") or modes[1] not in (None, "NPS1"):
        name = f"{name} ({'/'.join(filter(None, modes))})"
    return DeviceIdentity(
        # As ROCm spells it, in ROCR_VISIBLE_DEVICES too.
        uuid=f"GPU-{unique_id}" if is_unique else f"amdgpu-{card.address}",
        index=index,
        name=name,
        pci_address=card.pci_address,
    )


def read_names(path: Path) -> dict[tuple[str, str], str]:
    """Return product names by device id and revision, as libdrm lists them: `744C,\tC8,\tAMD Radeon …`."""
    names = {}
    for line in (read_text(path, _MOST_NAMES_BYTES) or "").splitlines():
        parts = [part.strip() for part in line.split(",", 2)]
        if len(parts) == 3 and not line.startswith("#"):
            names[parts[0].lower(), parts[1].lower().rjust(2, "0")] = parts[2]
    return names
