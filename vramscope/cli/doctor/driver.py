"""The NVIDIA driver, its library, the Python module that loads it, and the devices."""

import os
from collections.abc import Iterator
from pathlib import Path

from vramscope.engine.errors import AccessDeniedError, DeviceError, SourceUnavailableError
from vramscope.engine.sources.nvml import NvmlSource
from vramscope.engine.sources.nvml.driver import NvmlLibrary, read_kernel_driver_version
from vramscope.engine.sources.source import DeviceReader
from vramscope.engine.units import format_bytes

from .check import Check

NVML_DISTRIBUTION = "nvidia-ml-py"


def examine_driver(proc: Path = Path("/proc")) -> Iterator[Check]:
    """Look at the kernel driver and at the library that talks to it."""
    kernel_version = read_kernel_driver_version(proc)
    if kernel_version is not None:
        yield Check("driver", "ok", f"NVIDIA kernel driver {kernel_version} is loaded")
    else:
        yield Check("driver", "note", f"no NVIDIA kernel driver is loaded ({proc}/driver/nvidia is absent)")
    library = NvmlLibrary(proc)
    try:
        library.open()
    except SourceUnavailableError as error:
        yield Check("library", "problem", *_split(str(error)), error.exit_code)
        return
    described = library.describe()
    library.close()
    yield Check(
        "library",
        "ok",
        f"{described.library_file or 'libnvidia-ml.so.1'}: NVML {described.nvml_version or '—'}, "
        f"driver {described.driver_version or '—'}, CUDA up to {described.cuda_version or '—'}",
    )


def examine_module() -> Iterator[Check]:
    """Look at which of the distributions that ship a module `pynvml` was imported."""
    from importlib.metadata import PackageNotFoundError, packages_distributions, version

    import pynvml

    rivals = sorted(set(packages_distributions().get("pynvml", [])) - {NVML_DISTRIBUTION})
    try:
        found = f"{pynvml.__file__} of {NVML_DISTRIBUTION} {version(NVML_DISTRIBUTION)}"
    except PackageNotFoundError:
        found = f"{pynvml.__file__}, {NVML_DISTRIBUTION} is not installed"
    if rivals:
        yield Check(
            "pynvml",
            "warning",
            f"{found}; a module of the same name also comes with {', '.join(rivals)}",
            f"pip uninstall {' '.join(rivals)}; pip install --force-reinstall {NVML_DISTRIBUTION}",
        )
    else:
        yield Check("pynvml", "ok", found)


def examine_device_files(dev: Path = Path("/dev")) -> Iterator[Check]:
    """Look at whether this user may open the driver's device files."""
    paths = sorted(path for path in dev.glob("nvidia*") if path.is_char_device())
    denied = [path for path in paths if not os.access(path, os.R_OK | os.W_OK)]
    if denied:
        yield Check(
            "device files",
            "problem",
            f"this user may not open {', '.join(map(str, denied))}",
            f"see `ls -l {dev}/nvidia*`; the files usually belong to the group video or render",
            AccessDeniedError.exit_code,
        )
    elif paths:
        yield Check("device files", "ok", f"{len(paths)} files {dev}/nvidia* are open to this user")
    else:
        yield Check("device files", "note", f"there is no {dev}/nvidia*")


def examine_devices() -> Iterator[Check]:
    """Look at every device: what it is and whether its memory can be read."""
    library = NvmlLibrary()
    try:
        library.open()
    except SourceUnavailableError:
        yield Check("devices", "note", "not looked at: the library did not start")
        return
    listed_count = library.read_number("nvmlDeviceGetCount_v2") or 0
    library.close()
    source = NvmlSource()
    try:
        readers = source.discover()
    except SourceUnavailableError as error:
        yield Check("devices", "problem", *_split(str(error)), error.exit_code)
        return
    yield from map(_examine_device, readers)
    missing_count = listed_count - sum(reader.identity.parent_uuid is None for reader in readers)
    if missing_count > 0:
        yield Check(
            "devices",
            "warning",
            f"{missing_count} of the devices that the driver lists did not answer",
            "see `dmesg | grep -i xid`; a lost device needs a reset or a reboot",
        )
    source.close()


def _examine_device(reader: DeviceReader) -> Check:
    identity = reader.identity
    label = f"{identity.index}" if identity.mig_index is None else f"{identity.index}:{identity.mig_index}"
    known = f"{identity.name or '—'}, {identity.kind}, {identity.uuid}"
    what = "not known which GPU" if identity.is_provisional else known
    try:
        memory = reader.read_memory()
    except DeviceError as error:
        return Check(f"device {label}", "warning", f"{what}: {error}")
    used = f"{format_bytes(memory.used_bytes)} of {format_bytes(memory.total_bytes)} used"
    return Check(f"device {label}", "ok", f"{what}, {used}")


def _split(sentence: str) -> tuple[str, str]:
    """Return an error's sentence as what was found and what to do."""
    found, _, advice = sentence.partition("; ")
    return found, advice
