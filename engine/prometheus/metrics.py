"""What exporters of devices call their figures, and what those are here.

Of one device several exporters may tell: then agents of vramscope are heard before dcgm-exporter, and that
before nvidia_gpu_exporter. Names of dcgm-exporter are those of its `default-counters.csv`, of
nvidia_gpu_exporter the fields of `nvidia-smi --query-gpu`.
"""

from typing import Literal, NamedTuple

MIB = 1 << 20
Exporter = Literal["vramscope", "dcgm-exporter", "nvidia_gpu_exporter"]
Subjects = Literal["device", "rank", "host", "risk", "finding"]
EXPORTERS: tuple[Exporter, ...] = ("vramscope", "dcgm-exporter", "nvidia_gpu_exporter")
"""Those whose figures are known, the better one first."""


class Meaning(NamedTuple):
    """What a metric is here."""

    exporter: Exporter
    of: Subjects
    field: str
    factor: float = 1.0


def _list_all(
    exporter: Exporter, of: Subjects, pattern: str, **fields: str | tuple[str, float]
) -> dict[str, Meaning]:
    """Return metrics by name; `fields` says of each ending of a name which field it is, and its factor."""
    found = {}
    for ending, field in fields.items():
        name, factor = (field, 1.0) if isinstance(field, str) else field
        found[pattern.format(ending)] = Meaning(exporter, of, name, factor)
    return found


METRICS: dict[str, Meaning] = {
    **_list_all(
        "vramscope",
        "device",
        "vramscope_device_{}",
        used_bytes="used",
        used_min_bytes="used_min",
        used_max_bytes="used_max",
        free_bytes="free",
        capacity_bytes="total",
        utilization_ratio=("utilization", 100.0),
        temperature_celsius="temperature",
        power_watts="power",
        up="up",
        info="info",
    ),
    **_list_all(
        "vramscope",
        "device",
        "vramscope_allocator_{}",
        allocated_bytes="allocated",
        allocated_max_bytes="allocated_max",
        reserved_bytes="reserved",
        retries_total="retries",
        ooms_total="ooms",
    ),
    **_list_all("vramscope", "device", "vramscope_training_{}", steps_total="step"),
    **_list_all(
        "vramscope",
        "host",
        "vramscope_host_memory_{}",
        capacity_bytes="total",
        used_bytes="used",
    ),
    **_list_all(
        "vramscope",
        "rank",
        "vramscope_rank_{}",
        allocated_bytes="allocated",
        allocated_max_bytes="allocated_max",
        reserved_bytes="reserved",
        requested_bytes="requested",
        active_bytes="active",
        inactive_split_bytes="inactive_split",
        capacity_bytes="capacity",
        retries_total="retries",
        ooms_total="ooms",
        steps_total="step",
        step_floor_bytes="floor",
        step_peak_bytes="peak",
        step_duration_seconds="duration",
        up="up",
        info="info",
    ),
    **_list_all(
        "vramscope",
        "risk",
        "vramscope_oom_{}",
        risk_level="level",
        probability_ratio="probability",
        horizon_seconds="horizon",
        in_seconds="in",
        in_low_seconds="in_low",
        in_high_seconds="in_high",
    ),
    "vramscope_findings": Meaning("vramscope", "finding", "count"),
    **_list_all(
        "dcgm-exporter",
        "device",
        "DCGM_FI_DEV_{}",
        FB_USED=("used", MIB),
        FB_FREE=("free", MIB),
        FB_RESERVED=("reserved_by_driver", MIB),
        FB_TOTAL=("total", MIB),
        GPU_UTIL="utilization",
        GPU_TEMP="temperature",
        POWER_USAGE="power",
        XID_ERRORS="xid",
    ),
    **_list_all(
        "nvidia_gpu_exporter",
        "device",
        "nvidia_smi_{}",
        memory_used_bytes="used",
        memory_free_bytes="free",
        memory_reserved_bytes="reserved_by_driver",
        memory_total_bytes="total",
        utilization_gpu_ratio=("utilization", 100.0),
        temperature_gpu="temperature",
        power_draw_watts="power",
        index="index",
        gpu_info="info",
    ),
}

SELECTOR = '{__name__=~"' + "|".join(METRICS) + '"}'
"""All of them in one expression."""
LOOKED_FOR = "vramscope_device_used_bytes, DCGM_FI_DEV_FB_USED and nvidia_smi_memory_used_bytes"
MEMORY_FIELDS = ("used", "free", "total", "allocated")
"""Figures by which it is known when the memory of a device was read."""
