"""The state file of the pretend driver: the structs of nvml.c, for Python."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import ClassVar

MAX_DEVICES = 128
MAX_INSTANCES = 7
MAX_PROCESSES = 32
MAX_LANES = 18
MAX_XIDS = 8
MAGIC = 0x4C4D564E
NOT_AVAILABLE = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE: what NVML writes as used memory where it cannot tell."""


class FunctionClass(IntEnum):
    """Groups of functions that can be made to fail together."""

    MEMORY = 0
    UTILIZATION = 1
    TEMPERATURE = 2
    POWER = 3
    COMPUTE_PROCESSES = 4
    GRAPHICS_PROCESSES = 5
    MPS_PROCESSES = 6
    NAME = 7
    UUID = 8
    PCI = 9
    FAN = 10
    CLOCK = 11
    PERFORMANCE_STATE = 12
    ECC = 13
    ADDRESSING_MODE = 14
    MIG = 15
    VIRTUALIZATION = 16
    BAR1 = 17
    ENCODER = 18
    PROCESS_UTILIZATION = 19
    OTHER = 20
    NVLINK = 21
    TOPOLOGY = 22
    THROTTLING = 23
    THROUGHPUT = 24
    FIELDS = 25
    REMAPPED = 26
    COMPUTE_MODE = 27
    POWER_LIMIT = 28


class Memory(ctypes.Structure):
    """Memory of a device as a function of the monotonic clock, so that no writer has to run."""

    total: int
    reserved: int
    base: int
    ramp_bytes_per_s: float
    sawtooth_bytes: float
    sawtooth_period_s: float
    spike_bytes: float
    spike_period_s: float
    spike_length_s: float
    start_s: float
    _fields_: ClassVar = [
        ("total", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64),
        ("base", ctypes.c_uint64),
        ("ramp_bytes_per_s", ctypes.c_double),
        ("sawtooth_bytes", ctypes.c_double),
        ("sawtooth_period_s", ctypes.c_double),
        ("spike_bytes", ctypes.c_double),
        ("spike_period_s", ctypes.c_double),
        ("spike_length_s", ctypes.c_double),
        ("start_s", ctypes.c_double),
    ]


class Process(ctypes.Structure):
    """One process on a device; kind 0 is compute, 1 graphics, 2 MPS."""

    pid: int
    kind: int
    used: int
    sm_percent: int
    memory_percent: int
    _fields_: ClassVar = [
        *(("pid", ctypes.c_uint32), ("kind", ctypes.c_uint32), ("used", ctypes.c_uint64)),
        *(("sm_percent", ctypes.c_uint32), ("memory_percent", ctypes.c_uint32)),
    ]


class Processes(ctypes.Structure):
    """The processes of a device."""

    count: int
    reserved: int
    entries: ctypes.Array[Process]
    _fields_: ClassVar = [
        ("count", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("entries", Process * MAX_PROCESSES),
    ]


class Instance(ctypes.Structure):
    """One MIG instance."""

    present: int
    gpu_instance: int
    compute_instance: int
    slices: int
    uuid: bytes
    name: bytes
    memory: Memory
    processes: Processes
    _fields_: ClassVar = [
        ("present", ctypes.c_uint32),
        ("gpu_instance", ctypes.c_uint32),
        ("compute_instance", ctypes.c_uint32),
        ("slices", ctypes.c_uint32),
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        ("memory", Memory),
        ("processes", Processes),
    ]


class Device(ctypes.Structure):
    """One GPU."""

    present: int
    lost: int
    hang: int
    waiting: int
    delay_us: int
    generation: int
    crash_on_dead_handle: int
    dead_handle_calls: int
    uuid: bytes
    name: bytes
    bus_id: bytes
    memory: Memory
    errors: ctypes.Array[ctypes.c_int32]
    calls: ctypes.Array[ctypes.c_uint64]
    gpu_percent: int
    memory_percent: int
    temperature_c: int
    power_mw: int
    power_limit_mw: int
    fan_percent: int
    virtualization_mode: int
    addressing_mode: int
    mig_supported: int
    mig_enabled: int
    nvlink_version: int
    numa_node: int
    nvlink_remotes: ctypes.Array[ctypes.c_uint32]
    sm_clock_mhz: int
    memory_clock_mhz: int
    sm_clock_max_mhz: int
    memory_clock_max_mhz: int
    performance_state: int
    throttle_reasons: int
    compute_mode: int
    pcie_generation: int
    pcie_lanes: int
    has_pcie_counters: int
    ecc_mode: int
    remapped_rows: int
    is_repair_pending: int
    retired_pages: int
    has_retired_pages: int
    throughput_delay_us: int
    xid_count: int
    xids: ctypes.Array[ctypes.c_uint32]
    ecc_corrected: int
    ecc_uncorrected: int
    pcie_sent_bytes_per_s: float
    pcie_received_bytes_per_s: float
    nvlink_sent_bytes_per_s: float
    nvlink_received_bytes_per_s: float
    processes: Processes
    instances: ctypes.Array[Instance]
    _fields_: ClassVar = [
        *((name, ctypes.c_uint32) for name in ("present", "lost", "hang", "waiting", "delay_us")),
        *((name, ctypes.c_uint32) for name in ("generation", "crash_on_dead_handle", "dead_handle_calls")),
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        ("bus_id", ctypes.c_char * 32),
        ("memory", Memory),
        ("errors", ctypes.c_int32 * 32),
        ("calls", ctypes.c_uint64 * 32),
        *((name, ctypes.c_uint32) for name in ("gpu_percent", "memory_percent", "temperature_c")),
        *((name, ctypes.c_uint32) for name in ("power_mw", "power_limit_mw", "fan_percent")),
        *((name, ctypes.c_uint32) for name in ("virtualization_mode", "addressing_mode")),
        *((name, ctypes.c_uint32) for name in ("mig_supported", "mig_enabled")),
        *((name, ctypes.c_uint32) for name in ("nvlink_version", "numa_node")),
        ("nvlink_remotes", ctypes.c_uint32 * MAX_LANES),
        *((name, ctypes.c_uint32) for name in ("sm_clock_mhz", "memory_clock_mhz")),
        *((name, ctypes.c_uint32) for name in ("sm_clock_max_mhz", "memory_clock_max_mhz")),
        *((name, ctypes.c_uint32) for name in ("performance_state", "throttle_reasons", "compute_mode")),
        *((name, ctypes.c_uint32) for name in ("pcie_generation", "pcie_lanes", "has_pcie_counters")),
        *((name, ctypes.c_uint32) for name in ("ecc_mode", "remapped_rows", "is_repair_pending")),
        *((name, ctypes.c_uint32) for name in ("retired_pages", "has_retired_pages", "throughput_delay_us")),
        ("xid_count", ctypes.c_uint32),
        ("xids", ctypes.c_uint32 * MAX_XIDS),
        *((name, ctypes.c_uint64) for name in ("ecc_corrected", "ecc_uncorrected")),
        *((f"pcie_{way}_bytes_per_s", ctypes.c_double) for way in ("sent", "received")),
        *((f"nvlink_{way}_bytes_per_s", ctypes.c_double) for way in ("sent", "received")),
        ("processes", Processes),
        ("instances", Instance * MAX_INSTANCES),
    ]


class State(ctypes.Structure):
    """The whole driver."""

    magic: int
    size: int
    init_error: int
    driver_error: int
    init_hang: int
    init_waiting: int
    device_count: int
    has_memory_v2: int
    newest_process_version: int
    churned_process_versions: int
    driver_version: bytes
    nvml_version: bytes
    cuda_version: int
    inits: int
    shutdowns: int
    padding: int
    devices: ctypes.Array[Device]
    _fields_: ClassVar = [
        ("magic", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("init_error", ctypes.c_int32),
        ("driver_error", ctypes.c_int32),
        *((name, ctypes.c_uint32) for name in ("init_hang", "init_waiting", "device_count", "has_memory_v2")),
        *((name, ctypes.c_uint32) for name in ("newest_process_version", "churned_process_versions")),
        ("driver_version", ctypes.c_char * 80),
        ("nvml_version", ctypes.c_char * 80),
        ("cuda_version", ctypes.c_int32),
        *((name, ctypes.c_uint32) for name in ("inits", "shutdowns", "padding")),
        ("devices", Device * MAX_DEVICES),
    ]
