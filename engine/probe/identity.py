"""Who reports: the process, its device as the driver knows it, and the device it trains on."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any, Callable

from .backends import NOTHING, Backend, HostBackend, Reading, find_backend, find_used
from .base.coordinates import find_meshes
from .base.foreign import Foreign, Module, Optimizer, Properties


def identify(descriptor: int) -> tuple[int, int] | None:
    """Return device and inode of a file descriptor, or None if it is closed."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_still(descriptor: int, identity: tuple[int, int] | None) -> bool:
    """Return whether a descriptor is still the file that `identify` saw.

    A program that closes every descriptor it does not know, as daemons do, gets the same numbers for the
    files that it opens next: ours by number, and its own.
    """
    return identity is not None and identify(descriptor) == identity


def read_started_s() -> float | None:
    """Return when this process started, in seconds since the epoch.

    The boot time of /proc/stat and the start of proc(5) in ticks after it, as psutil adds them up.
    """
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - the probe stays light
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/stat", "rb") as file:  # noqa: PTH123
            booted_s = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
        return booted_s + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def read_command() -> list[str]:
    try:
        with open("/proc/self/cmdline", "rb") as file:  # noqa: PTH123
            words = file.read().rstrip(b"\0").split(b"\0")
        return [os.fsdecode(word) for word in words]
    except OSError:
        return [sys.executable, *sys.argv]


class ResidentMemory:
    """Reads the resident memory of this process (`statm` of proc(5)) from a file that stays open."""

    def __init__(self) -> None:
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        try:
            self._file: int | None = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = None
        self._identity = None if self._file is None else identify(self._file)

    def read_bytes(self) -> int | None:
        if self._file is None:
            return None
        if not is_still(self._file, self._identity):
            # The program has closed it, and may have opened a file of its own in its place.
            self._file = None
            return None
        try:
            return int(os.pread(self._file, 128, 0).split()[1]) * self._page_bytes
        except (OSError, ValueError, IndexError):
            return None

    def close(self) -> None:
        """Close the file, if it still is ours."""
        file = self._file
        self._file = None
        if file is not None and is_still(file, self._identity):
            os.close(file)


def identify_device(backend: Backend, index: int | None) -> dict[str, Any] | None:
    """Return the fields of a `ProbedDevice`, or None for a process without one.

    Only once the program has initialised the device.
    """
    if index is None or backend.module is None:
        return None
    simulated = find_simulation(backend.module)
    if simulated is not None:
        return {
            "index": index,
            "uuid": f"sim-{simulated.get('job')}-{simulated.get('index', index)}",
            "name": _text(simulated.get("name")) or "simulated device",
            "total_bytes": simulated.get("total_bytes"),
        }
    ask = getattr(backend.module, "get_device_properties", None)
    properties = ask(index) if ask is not None else None
    return {
        "index": index,
        "uuid": _find_uuid(properties, index) if backend.device_type == "cuda" else None,
        "name": _text(getattr(properties, "name", None)),
        "total_bytes": getattr(properties, "total_memory", None),
        "pci_bus_id": _spell_bus(properties),
    }


def find_simulation(module: Module) -> dict[str, Any] | None:
    """Return the description of a simulated device, or None if the device is real."""
    found = getattr(module, "_vramscope_simulated", None)
    return found if isinstance(found, dict) else None


def find_capacity(backend: Backend, index: int | None, total_bytes: int | None) -> int | None:
    """Return the bytes that the allocator may reserve, if it was limited below the device's total."""
    limit = backend.read_limit(index)
    if limit is not None:
        return limit
    ask = getattr(backend.module, "get_per_process_memory_fraction", None)
    if ask is None or index is None or not total_bytes:
        return None
    try:
        fraction = float(ask(index))
    except RuntimeError:
        # An allocator that is plugged in keeps no such limit.
        return None
    return int(fraction * total_bytes) if 0 < fraction < 1 else None


def _find_uuid(properties: Properties, index: int) -> str | None:
    """Return the UUID in NVML's form; a UUID in CUDA_VISIBLE_DEVICES is used as it is."""
    entries = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    named = entries[index].strip() if index < len(entries) else ""
    if named.startswith("MIG-"):
        return named
    uuid = _text(getattr(properties, "uuid", None))
    if uuid:
        return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    return named if named.startswith("GPU-") and len(named) == len("GPU-") + 36 else None


def _spell_bus(properties: Properties) -> str | None:
    bus = getattr(properties, "pci_bus_id", None)
    device = getattr(properties, "pci_device_id", None)
    if not isinstance(bus, int) or not isinstance(device, int):
        return None
    domain = getattr(properties, "pci_domain_id", 0)
    return f"{domain:08X}:{bus:02X}:{device:02X}.0"


def _text(value: object) -> str | None:
    return None if value is None else str(value)


class TrainingDevice:
    """Knows backend and ordinal, and the device of the parameters.

    CUDA's current device belongs to a thread and is never asked for: ours would always see the first.
    """

    def __init__(self, torch: Module) -> None:
        self.torch = torch
        self.backend: Backend | None = None
        self.index: int | None = None
        # The device meshes that the parameters are laid out on.
        self.meshes: tuple[Any, ...] = ()
        self.read: Callable[[], Reading] = _read_nothing
        self._device: Any = None

    @property
    def module(self) -> Foreign:
        """The part of torch that answers for the device, or None."""
        return self.backend.module if self.backend is not None else None

    def note_optimizer(self, optimizer: Optimizer) -> None:
        """Note the device of an optimizer's first parameter; called by the thread that trains."""
        parameter = next((it for group in optimizer.param_groups for it in group["params"]), None)
        if parameter is None or parameter.device == self._device:
            return
        self._device = parameter.device
        self.meshes = find_meshes(it for group in optimizer.param_groups for it in group["params"])
        self.look()

    def look(self) -> bool:
        """Find the backend and return whether memory is in use there."""
        type_ = None if self._device is None else str(self._device.type)
        backend = find_backend(self.torch, type_)
        if backend is not None:
            named = self._device.index if type_ == backend.device_type else None
            self.index = backend.find_device() if named is None else named
            self.backend = backend
            self.read = partial(backend.read, self.index)
        return backend is not None

    def look_back(self) -> bool:
        """Find the device that had most bytes, and return whether any had some."""
        found = find_used(self.torch)
        if found is not None:
            self.backend, self.index = found
        return found is not None

    def look_again(self) -> None:
        """Check whether a process that seemed to train on the host has turned to a device."""
        if self.backend is None or isinstance(self.backend, HostBackend) or self.index is None:
            self.look()

    def describe_others(self) -> str | None:
        """Name the devices with bytes of this process that are not followed, in one sentence, or None."""
        held = self.backend.find_held() if self.backend is not None and self.index is not None else {}
        others = [
            f"{_format(bytes_)} on GPU {index}" for index, bytes_ in held.items() if index != self.index
        ]
        if not others:
            return None
        verb = "is" if len(others) == 1 else "are"
        return f"also uses {', '.join(others)}, which {verb} not monitored"


def _read_nothing() -> Reading:
    return NOTHING


def _format(bytes_: int) -> str:
    return f"{bytes_ / 2**30:.1f} GiB" if bytes_ >= 2**30 else f"{bytes_ / 2**20:.1f} MiB"


def is_loader_worker() -> bool:
    """Return whether this process only loads data for another (`torch.utils.data.get_worker_info`)."""
    data = sys.modules.get("torch.utils.data")
    ask = getattr(data, "get_worker_info", None)
    return ask is not None and ask() is not None
