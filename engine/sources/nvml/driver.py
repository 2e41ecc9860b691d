"""The library of the NVIDIA driver: what it returns, its structures, loading it."""

import ctypes
import struct
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from ...errors import (
    AccessDeniedError,
    DeviceDeniedError,
    DeviceError,
    DeviceLostError,
    DriverMismatchError,
    DriverNotLoadedError,
    LibraryMissingError,
    NotSupportedError,
    SourceUnavailableError,
)
from ..pci import spell_address

LIBRARY_NAME = "libnvidia-ml.so.1"


class Code(IntEnum):
    """Return values of NVML functions (`nvmlReturn_t`)."""

    SUCCESS = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    IRQ_ISSUE = 11
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    LIB_RM_VERSION_MISMATCH = 18
    ARGUMENT_VERSION_MISMATCH = 25
    GPU_NOT_FOUND = 28
    UNKNOWN = 999


# A handle is dead after these, whichever function returned them.
GONE_CODES = frozenset(
    {
        Code.UNINITIALIZED,
        Code.DRIVER_NOT_LOADED,
        Code.GPU_IS_LOST,
        Code.RESET_REQUIRED,
        Code.LIB_RM_VERSION_MISMATCH,
        Code.GPU_NOT_FOUND,
    }
)

# These mean the same if the memory of a device could be read before and now cannot.
DEAD_HANDLE_CODES = GONE_CODES | {Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.UNKNOWN}

_LOST_SENTENCES = {
    Code.GPU_IS_LOST: "the GPU fell off the bus (NVML error 15); see `dmesg | grep -i xid`, reset or reboot",
    Code.RESET_REQUIRED: "the GPU needs a reset (NVML error 16): `nvidia-smi --gpu-reset`, or reboot",
    Code.UNINITIALIZED: "NVML was shut down under this device (NVML error 1); looking for it again",
    Code.DRIVER_NOT_LOADED: "the NVIDIA driver was unloaded (NVML error 9): `sudo modprobe nvidia`",
    Code.LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was replaced while running (NVML error 18); reboot",
    Code.NOT_FOUND: "the device was removed (NVML error 6); looking for it again",
    Code.INVALID_ARGUMENT: "the device was removed (NVML error 2); looking for it again",
    Code.GPU_NOT_FOUND: "the device was removed (NVML error 28); looking for it again",
    Code.UNKNOWN: (
        "the driver stopped answering for this device (NVML error 999); inside a container "
        "restart the container, on the host see `dmesg | grep -i -e nvrm -e xid`"
    ),
}


_START_ERRORS: dict[Code, tuple[type[SourceUnavailableError], str]] = {
    Code.LIBRARY_NOT_FOUND: (
        LibraryMissingError,
        f"No NVIDIA driver library: {LIBRARY_NAME} was not found by the loader (LD_LIBRARY_PATH, "
        "ld.so.cache); install the NVIDIA driver, or start the container with its GPUs "
        "(docker run --gpus all).",
    ),
    Code.DRIVER_NOT_LOADED: (
        DriverNotLoadedError,
        f"NVIDIA driver not loaded: {LIBRARY_NAME} is installed, but the kernel driver does not run "
        "(NVML error 9); load it with `sudo modprobe nvidia` and see `dmesg | grep -i nvrm`.",
    ),
    Code.NO_PERMISSION: (
        AccessDeniedError,
        "The NVIDIA driver refused this user (NVML error 4): /dev/nvidiactl and /dev/nvidia0, … must be "
        "readable and writable to you; see `ls -l /dev/nvidia*` (often the group video or render).",
    ),
    Code.FUNCTION_NOT_FOUND: (
        SourceUnavailableError,
        f"The {LIBRARY_NAME} that was found is too old or not NVIDIA's: a function is missing (NVML error "
        "13); update the NVIDIA driver to 450 or newer.",
    ),
    Code.UNKNOWN: (
        SourceUnavailableError,
        "NVML could not be started: unknown error (NVML error 999); inside a container that lost its GPUs "
        "restart the container, on the host see `dmesg | grep -i -e nvrm -e xid`.",
    ),
}


def make_device_error(code: int, text: str, *, was_good: bool) -> DeviceError:
    """Convert the failure of a memory call on one device. `was_good`: the same handle answered before."""
    if code in GONE_CODES or (was_good and code in DEAD_HANDLE_CODES):
        return make_lost_error(code)
    if code in (Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND):
        return NotSupportedError(f"the driver does not report the memory of this device (NVML error {code})")
    if code == Code.NO_PERMISSION:
        return DeviceDeniedError(
            "this user may not read the memory of this device (NVML error 4); in MIG mode look at its "
            "instances, or run as root"
        )
    return DeviceError(f"the memory call failed: {text} (NVML error {code})")


def make_lost_error(code: int) -> DeviceLostError:
    """For a code of `DEAD_HANDLE_CODES`."""
    return DeviceLostError(_LOST_SENTENCES[Code(code)])


def make_start_error(code: int, text: str, nvml_version: str | None, proc: Path) -> SourceUnavailableError:
    """Explain why NVML could not be started, in one sentence with what to do."""
    if code == Code.LIB_RM_VERSION_MISMATCH:
        return DriverMismatchError(_describe_mismatch(nvml_version, read_kernel_driver_version(proc)))
    if code in _START_ERRORS:
        kind, sentence = _START_ERRORS[Code(code)]
        return kind(sentence)
    return SourceUnavailableError(
        f"NVML could not be started: {text} (NVML error {code}); see what `nvidia-smi` says, and "
        "`dmesg | grep -i nvrm`."
    )


def _describe_mismatch(nvml_version: str | None, kernel_version: str | None) -> str:
    library = f"the library {LIBRARY_NAME} is {driver_part(nvml_version)}" if nvml_version else ""
    kernel = f"the loaded kernel driver is {kernel_version}" if kernel_version else ""
    versions = (
        ", ".join(filter(None, [library, kernel])) or "library and kernel driver are of different versions"
    )
    return (
        f"NVIDIA driver/library version mismatch (NVML error 18): {versions}; reboot, or reload the driver "
        "(`sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`), and restart "
        "the container if you are in one."
    )


def driver_part(nvml_version: str) -> str:
    """Return the driver's version within NVML's, which begins with CUDA's: 13.580.95 is of 580.95."""
    parts = nvml_version.split(".")
    return ".".join(parts[1:]) if len(parts) > 2 else nvml_version


def read_kernel_driver_version(proc: Path) -> str | None:
    try:
        first_line = (
            (proc / "driver/nvidia/version").read_text(encoding="utf-8", errors="replace").partition("\n")[0]
        )
    except OSError:
        return None
    _, _, tail = first_line.partition("Kernel Module")
    words = [word for word in tail.split() if word[:1].isdigit()]
    return words[0] if words else None


# `pynvml` finds and loads the library; the calls that are made ten times a second go to its function
# pointers directly, because its wrappers make a new struct and an exception object on every call.

# A function of the library; returns a `Code`.
NvmlFunction = Callable[..., int]

TEXT_BYTES = 96


class LibraryDescription(msgspec.Struct, frozen=True):
    """What was loaded, for people who ask why nothing is found."""

    # File of the Python module `pynvml`; several distributions ship one of that name.
    module_file: str | None = None
    # File that the loader found for libnvidia-ml.so.1.
    library_file: str | None = None
    nvml_version: str | None = None
    driver_version: str | None = None
    # Newest CUDA version that the driver serves.
    cuda_version: str | None = None


class NvmlLibrary:
    def __init__(self, proc: Path = Path("/proc")) -> None:
        self.is_open = False
        # Counts how often NVML was started; a handle is valid for the session that gave it out.
        self.session = 0
        self._proc = proc
        self._functions: dict[str, NvmlFunction | None] = {}

    def open(self) -> None:
        """Load the library and start it.

        Raises:
            SourceUnavailableError: It could not; the text says why and what to do.
        """
        if self.is_open:
            return
        pynvml = _import_pynvml()
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            code = int(error.value)
            raise make_start_error(code, str(error), self._nvml_version(), self._proc) from error
        self.is_open = True
        self.session += 1

    def close(self) -> None:
        """Stop the library; its handles are dead then."""
        if not self.is_open:
            return
        self.is_open = False
        pynvml = _import_pynvml()
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return  # a driver that was unloaded under us has nothing left to give back

    def find(self, name: str) -> NvmlFunction | None:
        if name not in self._functions:
            pynvml = _import_pynvml()
            try:
                self._functions[name] = pynvml._nvmlGetFunctionPointer(name)
            except pynvml.NVMLError as error:
                if error.value == Code.UNINITIALIZED:  # no library is loaded; one may be later
                    return None
                self._functions[name] = None
        return self._functions[name]

    def call(self, name: str, *arguments: object) -> int:
        """Call a function and return its code; FUNCTION_NOT_FOUND if the driver lacks it."""
        function = self.find(name)
        return Code.FUNCTION_NOT_FOUND if function is None else function(*arguments)

    def read_text(self, name: str, *arguments: object) -> str | None:
        """Call a function that fills a text buffer; None if it failed."""
        buffer = ctypes.create_string_buffer(TEXT_BYTES)
        if self.call(name, *arguments, buffer, ctypes.c_uint(TEXT_BYTES)) != Code.SUCCESS:
            return None
        return buffer.value.decode("utf-8", errors="replace")

    def read_number(self, name: str, *arguments: object) -> int | None:
        """Call a function that writes an unsigned number; None if it failed."""
        number = ctypes.c_uint()
        return number.value if self.call(name, *arguments, ctypes.byref(number)) == Code.SUCCESS else None

    def read_bus(self, name: str, *arguments: object) -> str | None:
        """Call a function that fills a `nvmlPciInfo_t`, and return the address in it; None if it failed."""
        info = PciInfo()
        if self.call(name, *arguments, ctypes.byref(info)) != Code.SUCCESS:
            return None
        address = info.busId.decode("ascii", errors="replace")
        return spell_address(address) if address else None

    def read_address(self, handle: ctypes.c_void_p) -> str | None:
        """Return the address of a device on the PCI bus."""
        return self.read_bus("nvmlDeviceGetPciInfo_v3", handle)

    def explain(self, code: int) -> str:
        return str(_import_pynvml().NVMLError(code))

    def describe(self) -> LibraryDescription:
        """Describe what was loaded, as far as possible without starting it."""
        try:
            module_file: str | None = _import_pynvml().__file__
        except SourceUnavailableError:
            return LibraryDescription()
        driver_version, cuda_version = self.read_versions()
        return LibraryDescription(
            module_file=module_file,
            library_file=self._find_library_file(),
            nvml_version=self._nvml_version(),
            driver_version=driver_version,
            cuda_version=cuda_version,
        )

    def read_versions(self) -> tuple[str | None, str | None]:
        """Return the version of the driver, and the newest of CUDA that it serves."""
        cuda = self.read_number("nvmlSystemGetCudaDriverVersion_v2")
        return (
            self.read_text("nvmlSystemGetDriverVersion") if self.is_open else None,
            None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        )

    def _nvml_version(self) -> str | None:
        return self.read_text("nvmlSystemGetNVMLVersion")

    def _find_library_file(self) -> str | None:
        """Return the mapped file; only the loader knows which of several copies it loaded."""
        try:
            maps = (self._proc / "self/maps").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        paths = (line.split(maxsplit=5)[-1] for line in maps.splitlines() if "libnvidia-ml.so" in line)
        return next(paths, None)


def _import_pynvml() -> Any:  # noqa: ANN401 - the module carries no types
    """`pynvml` of nvidia-ml-py; importing it costs 17 ms and 4 MiB, so it is deferred."""
    try:
        import pynvml
    except ImportError as error:
        raise SourceUnavailableError(
            "The Python module pynvml is not installed; install it with `pip install nvidia-ml-py`."
        ) from error
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        raise SourceUnavailableError(
            f"Another package than nvidia-ml-py provides the module pynvml ({pynvml.__file__}); "
            "run `pip uninstall pynvml py3nvml; pip install --force-reinstall nvidia-ml-py`."
        )
    return pynvml


# They are declared here and not taken from `pynvml`, whose own have changed between its releases while the
# installed driver decides which layout is written.

MEMORY_V2 = 2 << 24 | 40
TEMPERATURE_V1 = 1 << 24 | 12
# Versions of versioned structs: the number in the top byte, the size below (`NVML_STRUCT_VERSION`).
ADDRESSING_MODE_V1 = 1 << 24 | 8


class MemoryV1(ctypes.Structure):
    """`nvmlMemory_t`: used includes what the driver reserved for itself."""

    total: int
    free: int
    used: int
    _fields_: ClassVar = [("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64)]


class MemoryV2(ctypes.Structure):
    """`nvmlMemory_v2_t`: used excludes what the driver reserved for itself."""

    version: int
    total: int
    reserved: int
    free: int
    used: int
    _fields_: ClassVar = [
        ("version", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64),
        ("free", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
    ]


# Total, free and used bytes of each.
MEMORY_LAYOUTS = {MemoryV1: struct.Struct("=QQQ"), MemoryV2: struct.Struct("=8xQ8xQQ")}


class Utilization(ctypes.Structure):
    """`nvmlUtilization_t`, in percent."""

    gpu: int
    memory: int
    _fields_: ClassVar = [("gpu", ctypes.c_uint32), ("memory", ctypes.c_uint32)]


class TemperatureV1(ctypes.Structure):
    """`nvmlTemperature_v1_t`; sensor 0 is the GPU die."""

    version: int
    sensor: int
    temperature: int
    _fields_: ClassVar = [
        ("version", ctypes.c_uint32),
        ("sensor", ctypes.c_uint32),
        ("temperature", ctypes.c_int32),
    ]


class PciInfo(ctypes.Structure):
    """`nvmlPciInfo_t`."""

    busId: bytes  # noqa: N815 - NVML's own name
    _fields_: ClassVar = [
        ("busIdLegacy", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "pciDeviceId", "pciSubSystemId")),
        ("busId", ctypes.c_char * 32),
    ]


class AddressingModeV1(ctypes.Structure):
    """`nvmlDeviceAddressingMode_v1_t`."""

    version: int
    value: int
    _fields_: ClassVar = [("version", ctypes.c_uint32), ("value", ctypes.c_uint32)]
