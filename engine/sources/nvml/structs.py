"""The structs of NVML's public interface that are read here, in the versions that are asked for.

They are declared here and not taken from `pynvml`, whose own have changed between its releases while the
installed driver decides which layout is written.
"""

import ctypes
import struct
from typing import ClassVar

MEMORY_V2 = 2 << 24 | 40
TEMPERATURE_V1 = 1 << 24 | 12
ADDRESSING_MODE_V1 = 1 << 24 | 8
"""Versions of versioned structs: the number in the top byte, the size below (`NVML_STRUCT_VERSION`)."""


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


MEMORY_LAYOUTS = {MemoryV1: struct.Struct("=QQQ"), MemoryV2: struct.Struct("=8xQ8xQQ")}
"""Total, free and used bytes of each."""


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


class AddressingModeV1(ctypes.Structure):
    """`nvmlDeviceAddressingMode_v1_t`."""

    version: int
    value: int
    _fields_: ClassVar = [("version", ctypes.c_uint32), ("value", ctypes.c_uint32)]
