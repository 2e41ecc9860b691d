"""A pretend NVIDIA driver: compiles `nvml.c` and scripts what it answers, live, through a shared file."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import mmap
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from .layout import (
    MAGIC,
    MAX_DEVICES,
    MAX_INSTANCES,
    MAX_PROCESSES,
    MAX_XIDS,
    NOT_AVAILABLE,
    Device,
    FunctionClass,
    Instance,
    Memory,
    Process,
    Processes,
    State,
)

SOURCE = Path(__file__).with_name("nvml.c")
LIBRARY_NAME = "libnvidia-ml.so.1"
GIB = 1 << 30
KINDS = ("compute", "graphics", "mps")


def build_library(folder: Path) -> Path:
    """Compile the pretend library into a folder, unless it is there already, and return its path.

    Safe to call from several processes at once.

    Args:
        folder: Where to put it; each version of the source gets a folder of its own within.

    Raises:
        FileNotFoundError: No C compiler is installed.
        RuntimeError: The compiler refused the source; the text holds what it said.
    """
    library = folder / hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16] / LIBRARY_NAME
    library.parent.mkdir(parents=True, exist_ok=True)
    with library.with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _compile(library)
    return library


def default_folder() -> Path:
    """Return the folder within the checkout in which the compiled library is kept between runs.

    A folder that others may write to, such as /tmp, is no place to load a library from.
    """
    return Path(__file__).resolve().parents[2] / "build" / "pretend-nvml"


def _compile(library: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("no C compiler (cc or gcc) to build the pretend NVML library with")
    fresh = library.with_name(f"{LIBRARY_NAME}.{os.getpid()}")
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"]
    link = ["-shared", "-fPIC", f"-Wl,-soname,{LIBRARY_NAME}", "-pthread"]
    command = [compiler, *flags, *link, "-o", str(fresh), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{compiler} could not build {SOURCE}:\n{done.stderr}")
    fresh.rename(library)


def script_memory(
    memory: Memory,
    *,
    used_bytes: int,
    ramp_bytes_per_s: float = 0.0,
    sawtooth_bytes: float = 0.0,
    sawtooth_period_s: float = 0.0,
    spike_bytes: float = 0.0,
    spike_period_s: float = 0.0,
    spike_length_s: float = 0.0,
) -> None:
    """Set memory in use from now on; the parts add up, within zero and the total less the reserved.

    Args:
        memory: The memory of a device or an instance.
        used_bytes: What is always there.
        ramp_bytes_per_s: Growth.
        sawtooth_bytes: Rise within each period, falling back at its end.
        sawtooth_period_s: Length of that period; 0 for none.
        spike_bytes: Added for `spike_length_s` at the beginning of each spike period.
        spike_period_s: Length of that period; 0 for none.
        spike_length_s: Length of a spike.
    """
    memory.base = used_bytes
    memory.ramp_bytes_per_s = ramp_bytes_per_s
    memory.sawtooth_bytes, memory.sawtooth_period_s = sawtooth_bytes, sawtooth_period_s
    memory.spike_bytes, memory.spike_period_s = spike_bytes, spike_period_s
    memory.spike_length_s = spike_length_s
    memory.start_s = time.monotonic()


def write_processes(target: Processes, processes: Sequence[tuple[int, int | None, str]]) -> None:
    """Replace a process list by (pid, used bytes or None where unknown, "compute" | "graphics" | "mps")."""
    if len(processes) > MAX_PROCESSES:
        raise ValueError(f"at most {MAX_PROCESSES} processes a device, not {len(processes)}")
    for slot, (pid, used_bytes, kind) in enumerate(processes):
        used = NOT_AVAILABLE if used_bytes is None else used_bytes
        target.entries[slot] = Process(pid=pid, kind=KINDS.index(kind), used=used)
    target.count = len(processes)


class PretendDevice:
    """One pretend GPU; `raw` is its struct, every change is seen by the next call."""

    def __init__(self, raw: Device) -> None:
        self.raw = raw

    @property
    def uuid(self) -> str:
        """UUID of the device."""
        return self.raw.uuid.decode()

    @property
    def waiting(self) -> int:
        """How many calls hang in this device at this moment."""
        return self.raw.waiting

    def set_memory(self, used_bytes: int, total_bytes: int | None = None, **script: float) -> None:
        """Set memory in use, and how it moves; see `script_memory`."""
        if total_bytes is not None:
            self.raw.memory.total = total_bytes
        script_memory(self.raw.memory, used_bytes=used_bytes, **script)

    def set_processes(self, processes: Sequence[tuple[int, int | None, str]]) -> None:
        """Replace the process list; see `write_processes`."""
        write_processes(self.raw.processes, processes)

    def set_load(self, pid: int, sm_percent: int, memory_percent: int = 0) -> None:
        """Let a process of its list be at work; processes are idle at first.

        Raises:
            ValueError: No process of the list has this pid.
        """
        listed = self.raw.processes.entries[: self.raw.processes.count]
        found = [process for process in listed if process.pid == pid]
        if not found:
            raise ValueError(f"no process {pid} is on this device")
        for process in found:
            process.sm_percent, process.memory_percent = sm_percent, memory_percent

    def fail(self, function_class: FunctionClass, code: int) -> None:
        """Make a group of functions return an NVML error code; 0 heals it."""
        self.raw.errors[function_class] = code

    def calls(self, function_class: FunctionClass | None = None) -> int:
        """Return how often this device was called, in one group of functions or in all."""
        if function_class is not None:
            return self.raw.calls[function_class]
        return sum(self.raw.calls)

    def hang(self, *, is_unreachable: bool = False) -> None:
        """Let every call on this device block from now on, until `release`.

        Args:
            is_unreachable: Block the call that gives out its handle, too.
        """
        self.raw.hang = 2 if is_unreachable else 1

    def release(self) -> None:
        """Let the calls that hang go on."""
        self.raw.hang = 0

    def lose(self) -> None:
        """Let the device fall off the bus: all handles given out so far are dead for good."""
        self.raw.lost = 1

    def report_xid(self, code: int) -> None:
        """Report an XID to whoever has registered for it."""
        self.raw.xids[self.raw.xid_count % MAX_XIDS] = code
        self.raw.xid_count += 1

    def recover(self) -> None:
        """Bring the device back, reachable by fresh handles only."""
        self.raw.generation += 1
        self.raw.lost = 0

    def detach(self) -> None:
        """Take the device out of the enumeration; the indices of later devices shift."""
        self.raw.present = 0

    def attach(self) -> None:
        """Put a detached device back, reachable by fresh handles only."""
        self.raw.generation += 1
        self.raw.present = 1

    def link(self, version: int, remotes: Sequence[int | None]) -> None:
        """Give it lanes of NVLink.

        Args:
            version: As NVML numbers it; 6 is NVLink 4.
            remotes: For each lane the number of the device at its other end; None for a switch.
        """
        self.raw.nvlink_version = version
        for lane, remote in enumerate(remotes):
            self.raw.nvlink_remotes[lane] = 1 if remote is None else 2 + remote

    def add_instance(self, used_bytes: int, total_bytes: int = 10 * GIB, slices: int = 1) -> Instance:
        """Switch MIG mode on and add an instance to it.

        Args:
            used_bytes: Memory in use on the instance.
            total_bytes: Capacity of the instance.
            slices: Compute slices, as in `1g.10gb`.

        Raises:
            ValueError: There are seven instances already.
        """
        self.raw.mig_supported = self.raw.mig_enabled = 1
        taken = sum(instance.present for instance in self.raw.instances)
        if taken == MAX_INSTANCES:
            raise ValueError(f"a GPU holds at most {MAX_INSTANCES} MIG instances")
        instance: Instance = self.raw.instances[taken]
        instance.gpu_instance, instance.compute_instance, instance.slices = 7 + taken, 0, slices
        instance.uuid = f"MIG-{self.uuid.removeprefix('GPU-')[:-1]}{taken}".encode()
        instance.name = f"{self.raw.name.decode()} MIG {slices}g.{total_bytes // GIB}gb".encode()
        instance.memory.total = total_bytes
        script_memory(instance.memory, used_bytes=used_bytes)
        instance.present = 1
        return instance


class PretendDriver:
    """The driver as a whole, in a state file that any number of processes map.

    Args:
        state_file: Created where it is absent; otherwise the state in it goes on.
    """

    def __init__(self, state_file: Path) -> None:
        self.state_file = state_file
        is_new = not state_file.exists()
        if is_new:
            self._create()
        with state_file.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), ctypes.sizeof(State))
        self.raw = State.from_buffer(self._map)
        if self.raw.magic != MAGIC or self.raw.size != ctypes.sizeof(State):
            raise ValueError(f"{state_file} is not a state file of this pretend driver")

    def _create(self) -> None:
        state = State(magic=MAGIC, size=ctypes.sizeof(State), has_memory_v2=1, newest_process_version=3)
        state.driver_version, state.nvml_version = b"580.95.05", b"13.580.95.05"
        state.cuda_version = 13000
        fresh = self.state_file.with_name(f"{self.state_file.name}.{os.getpid()}")
        fresh.write_bytes(bytes(state))
        fresh.rename(self.state_file)

    @property
    def devices(self) -> list[PretendDevice]:
        """Every device that was added, attached or not."""
        return [PretendDevice(self.raw.devices[i]) for i in range(self.raw.device_count)]

    def add_device(
        self,
        *,
        name: str = "Pretend GPU 80GB",
        used_bytes: int = 1 * GIB,
        total_bytes: int = 80 * GIB,
        reserved_bytes: int = 0,
    ) -> PretendDevice:
        """Add a GPU behind the others.

        Args:
            name: As the driver tells it.
            used_bytes: Memory in use.
            total_bytes: Capacity.
            reserved_bytes: What the driver keeps to itself; version 1 of the memory call counts it as used.

        Raises:
            ValueError: The driver is full.
        """
        number = self.raw.device_count
        if number >= MAX_DEVICES:
            raise ValueError(f"a pretend driver holds at most {MAX_DEVICES} devices")
        raw = self.raw.devices[number]
        raw.uuid = f"GPU-00000000-0000-4000-8000-{number:011x}0".encode()
        raw.name, raw.bus_id = name.encode(), f"{number // 32:08X}:{number % 32 + 1:02X}:00.0".encode()
        raw.memory.total, raw.memory.reserved = total_bytes, reserved_bytes
        raw.gpu_percent, raw.memory_percent, raw.temperature_c = 50, 25, 55
        raw.power_mw, raw.power_limit_mw, raw.fan_percent = 350_000, 700_000, 40
        raw.sm_clock_mhz, raw.memory_clock_mhz = 1755, 2619
        raw.sm_clock_max_mhz, raw.memory_clock_max_mhz = 1980, 2619
        raw.pcie_generation, raw.pcie_lanes, raw.has_pcie_counters = 5, 16, 64
        raw.pcie_sent_bytes_per_s, raw.pcie_received_bytes_per_s = 12e6, 34e6
        raw.ecc_mode = 1
        device = PretendDevice(raw)
        device.set_memory(used_bytes)
        raw.present = 1
        self.raw.device_count = number + 1
        return device

    def environment(self, library: Path) -> dict[str, str]:
        """Return the variables with which a child process finds this driver.

        Args:
            library: What `build_library` returned.
        """
        folders = [str(library.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        return {"LD_LIBRARY_PATH": ":".join(folders), "PRETEND_NVML_STATE": str(self.state_file)}
