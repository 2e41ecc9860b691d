"""The same values under the names, units and labels of dcgm-exporter, for dashboards and rules made for it.

Names and units are those of `etc/default-counters.csv`, labels those of
`internal/pkg/rendermetrics/render_metrics.go` and `internal/pkg/transformation/const.go` of dcgm-exporter
4.5.3-4.8.2. Only what means the same is here.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...analyzers.health.health import find_last_xid
from ...engine.model import REAL_KINDS, DeviceActivity, DeviceHardware, DeviceSample, MemoryReading
from ...engine.units import MIB
from .families import Metric, Picture, Row, label_text, make_rows

DCGM_LABELS = (
    *("gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "Hostname"),
    *("pod", "namespace", "container", "pod_uid", "hpc_job"),
)
DRIVER_LABEL = "DCGM_FI_DRIVER_VERSION"


class _Field(NamedTuple):
    name: str
    help: str
    read: Callable[[DeviceSample], float | None]


def _mib(read: Callable[[MemoryReading], int | None]) -> Callable[[DeviceSample], float | None]:
    def read_mib(device: DeviceSample) -> float | None:
        # What only visible processes hold would read as the whole here.
        value = None if device.memory.is_lower_bound else read(device.memory)
        return None if value is None else value // MIB

    return read_mib


def _find_reserved(memory: MemoryReading) -> int | None:
    if memory.total_bytes is None or memory.used_bytes is None or memory.free_bytes is None:
        return None
    # Where used and free are all, one was made of the other, and nobody reported a reserve.
    return max(0, memory.total_bytes - memory.used_bytes - memory.free_bytes) or None


def _of_activity(read: Callable[[DeviceActivity], float | None]) -> Callable[[DeviceSample], float | None]:
    return lambda it: None if it.activity is None else read(it.activity)


def _of_hardware(read: Callable[[DeviceHardware], float | None]) -> Callable[[DeviceSample], float | None]:
    return lambda it: None if it.hardware is None else read(it.hardware)


FIELDS = (
    _Field("DEV_SM_CLOCK", "SM clock frequency (in MHz).", _of_activity(lambda it: it.sm_clock_mhz)),
    _Field("DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", _of_activity(lambda it: it.memory_clock_mhz)),
    _Field("DEV_GPU_TEMP", "GPU temperature (in C).", lambda it: it.temperature_c),
    _Field("DEV_POWER_USAGE", "Power draw (in W).", lambda it: it.power_w),
    _Field("DEV_GPU_UTIL", "GPU utilization (in %).", lambda it: it.utilization_percent),
    _Field(
        "DEV_MEM_COPY_UTIL",
        "Memory utilization (in %).",
        _of_activity(lambda it: it.memory_bandwidth_percent),
    ),
    _Field("DEV_FB_FREE", "Framebuffer memory free (in MiB).", _mib(lambda it: it.free_bytes)),
    _Field("DEV_FB_USED", "Framebuffer memory used (in MiB).", _mib(lambda it: it.used_bytes)),
    _Field("DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", _mib(_find_reserved)),
    _Field(
        "DEV_ECC_SBE_VOL_TOTAL",
        "Total number of single-bit volatile ECC errors.",
        _of_hardware(lambda it: it.ecc_corrected),
    ),
    _Field(
        "DEV_ECC_DBE_VOL_TOTAL",
        "Total number of double-bit volatile ECC errors.",
        _of_hardware(lambda it: it.ecc_uncorrected),
    ),
)


def collect_dcgm(picture: Picture) -> Iterator[Metric]:
    """Yield the families that have a series; of a GPU with MIG instances only these, as DCGM does."""
    if not picture.is_fresh:
        return
    # A modelled card has no driver, and a dashboard of DCGM could not say that it is modelled.
    parents = {it.parent_uuid for it in picture.devices if it.parent_uuid is not None}
    answering = [
        (_label(picture, it), it)
        for it in picture.devices
        if it.state in ("ok", "unsupported") and it.kind in REAL_KINDS and it.uuid not in parents
    ]
    for field in FIELDS:
        rows: list[Row] = [(labels, field.read(it)) for labels, it in answering]
        name = f"DCGM_FI_{field.name}"
        yield from make_rows(name, "untyped", "", field.help, (*DCGM_LABELS, DRIVER_LABEL), rows)
    # Its device may be lost: then this says why.
    listed = {it.uuid: it for it in picture.devices if it.kind in REAL_KINDS}
    xids: list[Row] = [
        (_label(picture, listed[uuid]), float(code))
        for uuid, code in find_last_xid(picture.findings()).items()
        if uuid in listed
    ]
    text = "Value of the last XID error encountered."
    yield from make_rows("DCGM_FI_DEV_XID_ERRORS", "untyped", "", text, (*DCGM_LABELS, DRIVER_LABEL), xids)


def _label(picture: Picture, device: DeviceSample) -> tuple[str, ...]:
    # DCGM writes the eight digits of NVML's domain.
    address = (device.pci_address or "").upper()
    domain, colon, rest = address.partition(":")
    pods = {it.pod for it in device.processes or ()}
    names = {
        (it.owner.pod_name, it.owner.namespace, it.owner.container_name) if it.owner else (None, None, None)
        for it in device.processes or ()
    }
    if device.allocations:
        names = {(it.pod_name, it.namespace, it.container_name) for it in device.allocations}
    # Of a device that several share, or that a process outside of pods uses, no single pod has the memory.
    pod, namespace, container = names.pop() if len(names) == 1 else (None, None, None)
    uid = pods.pop() if len(pods) == 1 else None
    jobs = {it.slurm_job for it in device.processes or ()}
    values = (
        device.index,
        device.uuid,
        f"{domain:0>8}{colon}{rest}" if address else "",
        f"nvidia{device.index}",
        (device.name or "").partition(" MIG ")[0],
        (device.name or "").partition(" MIG ")[2],
        device.gpu_instance_id,
        picture.node,
        pod,
        namespace,
        container,
        uid,
        jobs.pop() if len(jobs) == 1 else None,
        None if device.hardware is None else device.hardware.driver_version,
    )
    return tuple(map(label_text, values))
