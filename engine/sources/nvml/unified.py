"""GPUs without memory of their own: they share the host's, and NVML refuses to tell any."""

import ctypes
import re
from pathlib import Path

from ...model import MemoryReading
from ..meminfo import read_meminfo
from .codes import Code
from .library import NvmlLibrary
from .structs import ADDRESSING_MODE_V1, AddressingModeV1

UNIFIED_NAMES = re.compile(r"\b(GB10|DGX Spark|N1X|Orin|Xavier|Thor|Tegra|Jetson)\b", re.IGNORECASE)
"""Names of systems on a chip whose GPU has no memory of its own."""
ADDRESSING_MODE_ATS = 2
"""The GPU translates addresses through the processor's page tables (`NVML_DEVICE_ADDRESSING_MODE_ATS`)."""


def is_unified(library: NvmlLibrary, handle: ctypes.c_void_p, name: str | None) -> bool:
    """Tell whether a device whose memory call is refused shares the host's memory.

    An ordinary card may refuse the call too, with an old driver or without permission; the host's memory
    would be a false answer then. So the name or the addressing mode must say it.
    """
    if name is not None and UNIFIED_NAMES.search(name):
        return True
    mode = AddressingModeV1(version=ADDRESSING_MODE_V1)
    code = library.call("nvmlDeviceGetAddressingMode", handle, ctypes.byref(mode))
    return code == Code.SUCCESS and mode.value == ADDRESSING_MODE_ATS


def read_host_memory(proc: Path) -> MemoryReading:
    """Return the host's memory as that of a device which shares it: used is MemTotal − MemAvailable."""
    meminfo = read_meminfo(proc)
    total, available = meminfo.total_bytes, meminfo.available_bytes
    used = None if total is None or available is None else total - available
    return MemoryReading(total_bytes=total, used_bytes=used, free_bytes=available, source="host")
