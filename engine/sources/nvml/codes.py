"""NVML's error codes, and the sentence and the error of ours that each becomes."""

from enum import IntEnum
from pathlib import Path

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
"""Codes after which a handle is dead, whichever function returned them."""

DEAD_HANDLE_CODES = GONE_CODES | {Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.UNKNOWN}
"""Codes that mean the same where the memory of a device could be read before and now cannot."""

_LOST_SENTENCES = {
    Code.GPU_IS_LOST: "the GPU fell off the bus (NVML error 15); see `dmesg | grep -i xid`, reset or reboot",
    Code.RESET_REQUIRED: "the GPU needs a reset (NVML error 16): `nvidia-smi --gpu-reset`, or reboot",
    Code.UNINITIALIZED: "NVML was shut down under this device (NVML error 1); it is looked for again",
    Code.DRIVER_NOT_LOADED: "the NVIDIA driver was unloaded (NVML error 9): `sudo modprobe nvidia`",
    Code.LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was replaced while running (NVML error 18); reboot",
    Code.NOT_FOUND: "the device was removed (NVML error 6); it is looked for again",
    Code.INVALID_ARGUMENT: "the device was removed (NVML error 2); it is looked for again",
    Code.GPU_NOT_FOUND: "the device was removed (NVML error 28); it is looked for again",
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
    """Return the error of ours for a memory call on one device that failed.

    Args:
        code: What NVML returned.
        text: NVML's own words for it.
        was_good: Whether the same handle answered before.
    """
    if code in GONE_CODES or (was_good and code in DEAD_HANDLE_CODES):
        return make_lost_error(code)
    if code in (Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND):
        return NotSupportedError(f"the driver does not tell the memory of this device (NVML error {code})")
    if code == Code.NO_PERMISSION:
        return DeviceDeniedError(
            "the driver refused this user the memory of this device (NVML error 4); "
            "in MIG mode look at its instances, or run as root"
        )
    return DeviceError(f"the memory call failed: {text} (NVML error {code})")


def make_lost_error(code: int) -> DeviceLostError:
    """Return the error for a code of `DEAD_HANDLE_CODES`."""
    return DeviceLostError(_LOST_SENTENCES[Code(code)])


def make_start_error(code: int, text: str, nvml_version: str | None, proc: Path) -> SourceUnavailableError:
    """Return the error of ours for NVML that could not be started: one sentence with what to do.

    Args:
        code: What `nvmlInit` returned.
        text: NVML's own words for it.
        nvml_version: Version of the library, where it could be asked.
        proc: Where the proc file system is mounted.
    """
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
    """Return the driver's version within NVML's, which leads with CUDA's: 13.580.95 is of 580.95."""
    parts = nvml_version.split(".")
    return ".".join(parts[1:]) if len(parts) > 2 else nvml_version


def read_kernel_driver_version(proc: Path) -> str | None:
    """Return the version of the loaded kernel driver, from /proc/driver/nvidia/version."""
    try:
        first_line = (
            (proc / "driver/nvidia/version").read_text(encoding="utf-8", errors="replace").partition("\n")[0]
        )
    except OSError:
        return None
    _, _, tail = first_line.partition("Kernel Module")
    words = [word for word in tail.split() if word[:1].isdigit()]
    return words[0] if words else None
