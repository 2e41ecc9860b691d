"""All that an agent knows as families of metrics: one table, which every output reads."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import get_args

from ...engine.model import (
    AllocatorReading,
    Assessment,
    DeviceActivity,
    DeviceHardware,
    DeviceSample,
    DeviceTrend,
    HostSample,
    HubStatus,
    ModelStateReading,
    ProcessOwner,
    ProcessReading,
    RankSample,
    StepReading,
    ThrottleReason,
    TrendWord,
)
from ...engine.model.finding import Timed
from ..recording.openmetrics import FAMILIES
from ..recording.rows import DeviceRow, DeviceRowReader
from .families import (
    DEVICE_LABELS,
    NODE_LABELS,
    RANK_LABELS,
    Family,
    Metric,
    Picture,
    Row,
    label_text,
    make_info,
    make_rows,
    read_all,
)
from .servers import collect_servers


def collect(picture: Picture) -> Iterator[Metric]:
    """Yield the families that have a series; what is unmeasured or too old has none."""
    yield from _collect_agent(picture)
    yield from _collect_devices(picture)
    yield from _collect_ranks(picture)
    yield from _collect_risks(picture)
    yield from collect_servers(picture)


def _read_times(
    picture: Picture,
    families: Iterable[Family[Timed]],
    labels: tuple[str, ...],
    subjects: Iterable[tuple[tuple[str, ...], Timed]],
) -> Iterator[Metric]:
    """Yield families of times that count from a sample, as seconds from the scrape."""
    for family in families:
        rows: list[Row] = [
            (values, find_left_s(picture, it.time_s, seconds))
            for values, it in subjects
            if (seconds := family.read(it)) is not None
        ]
        yield from make_rows(family.name, family.kind, family.unit, family.help, labels, rows)


def _collect_agent(picture: Picture) -> Iterator[Metric]:
    node = (label_text(picture.node),)
    yield from read_all(AGENT_GAUGES, NODE_LABELS, [(node, picture)])
    hub = picture.snapshot.hub
    sample = picture.sample
    if hub is not None and picture.is_fresh:
        name = AGENT_INFO_NAME
        text = AGENT_INFO_HELP
        yield from make_info(name, text, (*NODE_LABELS, "version"), [(*node, label_text(hub.version))])
        yield from read_all(HUB_FAMILIES, NODE_LABELS, [(node, hub)])
    if sample is not None and sample.host is not None and picture.is_fresh:
        yield from read_all(HOST_FAMILIES, NODE_LABELS, [(node, sample.host)])


def _collect_devices(picture: Picture) -> Iterator[Metric]:
    labelled = [(picture.label_device(it.uuid), it) for it in picture.devices]
    infos = [(*labels, label_text(it.name), it.kind, label_text(it.parent_uuid)) for labels, it in labelled]
    info_labels = (*DEVICE_LABELS, *DEVICE_INFO_LABELS)
    yield from make_info(DEVICE_INFO_NAME, DEVICE_INFO_HELP, info_labels, infos)
    ups: list[Row] = [(labels, float(picture.is_up(it))) for labels, it in labelled]
    yield from make_rows(UP_NAME, "gauge", "", UP_HELP, DEVICE_LABELS, ups)
    ages: list[Row] = [(labels, picture.age_of(it)) for labels, it in labelled]
    yield from make_rows(AGE_NAME, "gauge", "seconds", AGE_HELP, DEVICE_LABELS, ages)
    rows = read_rows(picture)
    answering = [(labels, it) for labels, it in labelled if it.uuid in rows]
    yield from read_all(ROW_FAMILIES, DEVICE_LABELS, [(labels, rows[it.uuid]) for labels, it in answering])
    yield from read_all([FREE, LOWER_BOUND, *ACTIVITY_FAMILIES, *HARDWARE_FAMILIES], DEVICE_LABELS, answering)
    throttling: list[Row] = [
        ((*labels, reason), float(reason in it.activity.throttle_reasons))
        for labels, it in answering
        if it.activity is not None and it.activity.throttle_reasons is not None
        for reason in THROTTLE_REASONS
    ]
    labels_of_reasons = (*DEVICE_LABELS, "reason")
    yield from make_rows(THROTTLED_NAME, "gauge", "", THROTTLED_HELP, labels_of_reasons, throttling)
    versions = [
        (*labels, *map(label_text, (it.driver_version, it.cuda_version, it.compute_mode)))
        for labels, device in answering
        if (it := device.hardware) is not None
    ]
    yield from make_info(DRIVER_INFO_NAME, DRIVER_INFO_HELP, (*DEVICE_LABELS, *DRIVER_INFO_LABELS), versions)
    held: list[Row] = [
        ((*labels, str(it.pid), *map(label_text, _find_owner(it))), float(it.used_bytes))
        for labels, device in answering
        for it in (device.processes or ())[:MOST_PROCESSES]
        if it.used_bytes is not None
    ]
    owner_labels = (*DEVICE_LABELS, "pid", *OWNER_LABELS)
    yield from make_rows(PROCESS_NAME, "gauge", "bytes", PROCESS_HELP, owner_labels, held)
    given = dict.fromkeys(
        (*labels, *map(label_text, (it.namespace, it.pod_name, it.container_name, it.resource)))
        for labels, device in answering
        for it in (device.allocations or ())[:MOST_ALLOCATIONS]
    )
    yield from make_info(
        ALLOCATION_INFO_NAME, ALLOCATION_INFO_HELP, (*DEVICE_LABELS, *ALLOCATION_LABELS), list(given)
    )


def _collect_ranks(picture: Picture) -> Iterator[Metric]:
    everybody: list[tuple[tuple[str, ...], RankSample]] = [
        (picture.label_rank(it), it) for it in picture.ranks
    ]
    present = [(labels, it) for labels, it in everybody if it.state != "ended"]
    infos = [(*labels, *map(label_text, read_info(it))) for labels, it in present]
    info_labels = (*RANK_LABELS, *RANK_INFO_LABELS)
    yield from make_info(RANK_INFO_NAME, RANK_INFO_HELP, info_labels, infos)
    yield from read_all(RANK_GAUGES, RANK_LABELS, present)
    yield from read_all(COUNTERS, RANK_LABELS, everybody)


def _collect_risks(picture: Picture) -> Iterator[Metric]:
    labelled = [(picture.label_assessment(it), it) for it in list_assessments(picture)]
    levels: list[Row] = [
        ((*labels, level), float(it.level == level)) for labels, it in labelled for level in LEVELS
    ]
    name = LEVEL_NAME
    text = LEVEL_HELP
    yield from make_rows(name, "gauge", "", text, (*RANK_LABELS, "level"), levels)
    yield from read_all(RISK_GAUGES, RANK_LABELS, labelled)
    yield from _read_times(picture, TIMES, RANK_LABELS, labelled)
    yield from _collect_trends(picture)
    name = FINDINGS_NAME
    text = FINDINGS_HELP
    counted: list[Row] = list(count_findings(picture).items())
    yield from make_rows(name, "gauge", "", text, (*DEVICE_LABELS, *FINDINGS_LABELS), counted)


def _collect_trends(picture: Picture) -> Iterator[Metric]:
    trends = [
        (picture.label_device(it.device_uuid), it.device_trend)
        for it in list_assessments(picture)
        if it.device_trend is not None
    ]
    words: list[Row] = [
        ((*labels, word), float(it.word == word)) for labels, it in trends for word in TREND_WORDS
    ]
    yield from make_rows(TREND_NAME, "gauge", "", TREND_HELP, (*DEVICE_LABELS, "trend"), words)
    yield from read_all(TREND_GAUGES, DEVICE_LABELS, trends)
    yield from _read_times(picture, TREND_TIMES, DEVICE_LABELS, trends)


# Metrics of devices: those of recordings under the same names, and whether they answer.

ROW_FAMILIES = tuple(Family[DeviceRow](it.name, it.kind, it.unit, it.help, it.read) for it in FAMILIES)
FREE = Family[DeviceSample](
    "vramscope_device_free_bytes",
    "gauge",
    "bytes",
    "Free memory of the device.",
    lambda it: it.memory.free_bytes,
)
PROCESS_NAME = "vramscope_process_used_bytes"
PROCESS_HELP = "Device memory of each process, with whose it is; no command, which may have secrets in it."
OWNER_LABELS = (
    "user",
    "namespace",
    "pod",
    "pod_uid",
    "container",
    "slurm_job",
    "slurm_job_name",
    "slurm_step",
)
ALLOCATION_INFO_NAME = "vramscope_device_allocation"
ALLOCATION_INFO_HELP = "Containers that the kubelet gave the device to, whether or not they use it."
ALLOCATION_LABELS = ("namespace", "pod", "container", "resource")
# Series of one device: a scrape stays bounded on a node that is shared by many.
MOST_PROCESSES = 256
MOST_ALLOCATIONS = 64


def _find_owner(process: ProcessReading) -> tuple[str | None, ...]:
    """Return the values of `OWNER_LABELS`; names are those that other exporters of a cluster use."""
    owner = process.owner or ProcessOwner()
    return (
        process.user,
        owner.namespace,
        owner.pod_name,
        process.pod,
        owner.container_name or process.container,
        process.slurm_job,
        owner.slurm_job_name,
        process.slurm_step,
    )


LOWER_BOUND = Family[DeviceSample](
    "vramscope_device_used_is_lower_bound",
    "gauge",
    "",
    "1 where used memory is only what the processes hold that the agent may see; absent elsewhere.",
    lambda it: 1.0 if it.memory.is_lower_bound else None,
)


def _of_activity(read: Callable[[DeviceActivity], float | None]) -> Callable[[DeviceSample], float | None]:
    return lambda device: None if device.activity is None else read(device.activity)


def _of_hardware(read: Callable[[DeviceHardware], float | None]) -> Callable[[DeviceSample], float | None]:
    return lambda device: None if device.hardware is None else read(device.hardware)


def _scale(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


_MHZ = 1e6
ACTIVITY_FAMILIES = (
    Family[DeviceSample](
        "vramscope_device_memory_bandwidth_ratio",
        "gauge",
        "ratio",
        "Share of time in which device memory was read or written, 0 to 1.",
        _of_activity(lambda it: _scale(it.memory_bandwidth_percent, 0.01)),
    ),
    Family[DeviceSample](
        "vramscope_device_sm_clock_hertz",
        "gauge",
        "hertz",
        "Clock of the streaming multiprocessors.",
        _of_activity(lambda it: _scale(it.sm_clock_mhz, _MHZ)),
    ),
    Family[DeviceSample](
        "vramscope_device_memory_clock_hertz",
        "gauge",
        "hertz",
        "Clock of device memory.",
        _of_activity(lambda it: _scale(it.memory_clock_mhz, _MHZ)),
    ),
    Family[DeviceSample](
        "vramscope_device_performance_state",
        "gauge",
        "",
        "Performance state: 0 is the highest performance, 15 the lowest.",
        _of_activity(lambda it: it.performance_state),
    ),
    *(
        Family[DeviceSample](
            f"vramscope_device_{link}_{way}_bytes_per_second",
            "gauge",
            "bytes_per_second",
            text,
            _of_activity(attrgetter(f"{link}_{way}_bytes_per_s")),
        )
        for link, way, text in (
            ("pcie", "sent", "Bytes that the device sends over PCI Express, per second."),
            ("pcie", "received", "Bytes that the device receives over PCI Express, per second."),
            ("nvlink", "sent", "Bytes that the device sends over all lanes of NVLink, per second."),
            ("nvlink", "received", "Bytes that the device receives over all lanes of NVLink, per second."),
            ("xgmi", "sent", "Bytes that the device sends over all links of XGMI, per second."),
            ("xgmi", "received", "Bytes that the device receives over all links of XGMI, per second."),
        )
    ),
)
HARDWARE_FAMILIES = (
    Family[DeviceSample](
        "vramscope_device_power_limit_watts",
        "gauge",
        "watts",
        "Power cap that is enforced.",
        _of_hardware(lambda it: it.power_limit_w),
    ),
    Family[DeviceSample](
        "vramscope_device_fan_ratio",
        "gauge",
        "ratio",
        "Fan speed, as a share of its maximum; it may exceed 1.",
        _of_hardware(lambda it: _scale(it.fan_percent, 0.01)),
    ),
    Family[DeviceSample](
        "vramscope_device_ecc_corrected_errors",
        "counter",
        "",
        "Memory errors that ECC corrected since the driver was loaded.",
        _of_hardware(lambda it: it.ecc_corrected),
    ),
    Family[DeviceSample](
        "vramscope_device_ecc_uncorrected_errors",
        "counter",
        "",
        "Memory errors that ECC could not correct since the driver was loaded.",
        _of_hardware(lambda it: it.ecc_uncorrected),
    ),
    Family[DeviceSample](
        "vramscope_device_retired_pages",
        "gauge",
        "",
        "Pages of memory that are out of use because of errors (GPUs before Ampere).",
        _of_hardware(lambda it: it.retired_pages),
    ),
    Family[DeviceSample](
        "vramscope_device_remapped_rows",
        "gauge",
        "",
        "Rows of memory that spare rows replace because of errors (Ampere and later).",
        _of_hardware(lambda it: it.remapped_rows),
    ),
    Family[DeviceSample](
        "vramscope_device_repair_pending",
        "gauge",
        "",
        "Whether pages or rows wait for a reset of the GPU to be taken out of use.",
        _of_hardware(lambda it: it.is_repair_pending),
    ),
)
THROTTLED_NAME = "vramscope_device_throttled"
THROTTLED_HELP = "Why the clocks are lowered: 1 at each reason that holds. `idle` and settings are no fault."
THROTTLE_REASONS: tuple[str, ...] = get_args(ThrottleReason)
DRIVER_INFO_NAME = "vramscope_device_driver"
DRIVER_INFO_HELP = "The driver of the device, and which processes may compute on it."
DRIVER_INFO_LABELS = ("driver_version", "cuda_version", "compute_mode")
UP_NAME = "vramscope_device_up"
UP_HELP = "Whether the device answers: 0 if it is lost or stale."
AGE_NAME = "vramscope_device_age_seconds"
AGE_HELP = "Seconds since the memory of the device was last read."
DEVICE_INFO_NAME = "vramscope_device"
DEVICE_INFO_HELP = (
    "The device: its name, its kind (`simulated` is a modelled card), its parent if it is a MIG instance."
)
DEVICE_INFO_LABELS = ("name", "kind", "parent_uuid")


def read_rows(picture: Picture) -> dict[str, DeviceRow]:
    """Return the values of the devices that answer, by UUID."""
    sample = picture.sample
    if sample is None or not picture.is_fresh:
        return {}
    answering = {device.uuid for device in sample.devices if device.state == "ok"}
    return {row.uuid: row for row in DeviceRowReader(has_nodes=False).rows([sample]) if row.uuid in answering}


# Metrics of each training process that reports through the probe.

_NO_ALLOCATOR = AllocatorReading()
_NO_STATE = ModelStateReading()
_NO_STEP = StepReading(0, 0.0)


def _of_allocator(read: Callable[[AllocatorReading], float | None]) -> Callable[[RankSample], float | None]:
    return lambda rank: read(rank.allocator or _NO_ALLOCATOR)


def _of_state(read: Callable[[ModelStateReading], float | None]) -> Callable[[RankSample], float | None]:
    return lambda rank: read(rank.model_state or _NO_STATE)


def _of_step(read: Callable[[StepReading], float | None]) -> Callable[[RankSample], float | None]:
    return lambda rank: read(rank.step or _NO_STEP)


def _bytes(name: str, text: str, read: Callable[[RankSample], float | None]) -> Family[RankSample]:
    return Family(f"vramscope_rank_{name}_bytes", "gauge", "bytes", text, read)


RANK_GAUGES = (
    _bytes("allocated", "Bytes of live tensors.", _of_allocator(lambda it: it.allocated_bytes)),
    _bytes(
        "allocated_max",
        "Most bytes of live tensors within the tick.",
        _of_allocator(lambda it: it.allocated_max_bytes),
    ),
    _bytes(
        "reserved",
        "Bytes that the caching allocator has reserved.",
        _of_allocator(lambda it: it.reserved_bytes),
    ),
    _bytes("requested", "Bytes the program asked for.", _of_allocator(lambda it: it.requested_bytes)),
    _bytes(
        "active",
        "Live bytes, and freed bytes that another stream may still use.",
        _of_allocator(lambda it: it.active_bytes),
    ),
    _bytes(
        "inactive_split",
        "Free bytes that cannot be given back to the device.",
        _of_allocator(lambda it: it.inactive_split_bytes),
    ),
    _bytes(
        "capacity",
        "Most the allocator may reserve, if limited below the device's memory.",
        lambda it: it.capacity_bytes,
    ),
    _bytes("parameters", "Parameters.", _of_state(lambda it: it.parameters_bytes)),
    _bytes("gradients", "Gradients.", _of_state(lambda it: it.gradients_bytes)),
    _bytes("optimizer", "Optimizer state on the device.", _of_state(lambda it: it.optimizer_bytes)),
    _bytes("step_floor", "Live bytes at the ends of the newest step.", _of_step(lambda it: it.floor_bytes)),
    _bytes("step_peak", "Most live bytes within the newest step.", _of_step(lambda it: it.peak_bytes)),
    _bytes("pinned", "Pinned host memory.", lambda it: it.pinned_bytes),
    _bytes("resident", "Resident host memory.", lambda it: it.resident_bytes),
    Family[RankSample](
        "vramscope_rank_step_duration_seconds",
        "gauge",
        "seconds",
        "Duration of the newest training step.",
        _of_step(lambda it: it.duration_s),
    ),
    Family[RankSample](
        "vramscope_rank_age_seconds",
        "gauge",
        "seconds",
        "Seconds since the newest reading of the process.",
        lambda it: it.age_s,
    ),
    Family[RankSample](
        "vramscope_rank_up", "gauge", "", "Whether the process reports.", lambda it: float(it.state == "ok")
    ),
)
"""Families of processes that have not ended."""
COUNTERS = (
    Family[RankSample](
        "vramscope_rank_retries",
        "counter",
        "",
        "Times that the device refused memory and the allocator flushed its cache.",
        _of_allocator(lambda it: it.retries),
    ),
    Family[RankSample](
        "vramscope_rank_ooms",
        "counter",
        "",
        "Out-of-memory errors of the allocator.",
        _of_allocator(lambda it: it.ooms),
    ),
    Family[RankSample](
        "vramscope_rank_steps",
        "counter",
        "",
        "Training steps that the probe saw end.",
        lambda it: None if it.step is None else it.step.index,
    ),
)
"""Families of processes that have ended too, as long as the agent reports them: what ends one comes last."""
RANK_INFO_NAME = "vramscope_rank"
RANK_INFO_HELP = "The process: its place in the parallel layout, its run, whether its card is modelled."
RANK_INFO_LABELS = ("world_size", "tp", "pp", "dp", "cp", "ep", "run", "backend", "simulated")


def read_info(rank: RankSample) -> tuple[object, ...]:
    """Return the values of `INFO_LABELS`; None is unknown."""
    place = rank.coordinates
    places = (
        (None,) * 6 if place is None else (place.world_size, place.tp, place.pp, place.dp, place.cp, place.ep)
    )
    return *places, rank.job, rank.backend, str(rank.is_simulated).lower()


# Metrics of conclusions: how near each process is to running out of memory, and the open findings.

LEVELS = ("unknown", "low", "medium", "high", "critical")
LEVEL_NAME = "vramscope_oom_risk_level"
LEVEL_HELP = "Risk of running out of memory, estimated: 1 for the current level, which may be `unknown`."
FINDINGS_NAME = "vramscope_findings"
FINDINGS_HELP = "Open findings, by kind and severity."
FINDINGS_LABELS = ("kind", "severity")

RISK_GAUGES = (
    Family[Assessment](
        "vramscope_oom_probability_ratio",
        "gauge",
        "ratio",
        "Estimated probability of an out-of-memory error within vramscope_oom_horizon_seconds, 0 to 1.",
        lambda it: it.probability,
    ),
    Family[Assessment](
        "vramscope_oom_horizon_seconds",
        "gauge",
        "seconds",
        "How far vramscope_oom_probability_ratio looks ahead.",
        lambda it: None if it.probability is None else it.horizon_s,
    ),
    Family[Assessment](
        "vramscope_oom_headroom_bytes",
        "gauge",
        "bytes",
        "Bytes that live tensors can take beyond their peak of recent steps; estimated.",
        lambda it: (
            None if it.capacity_bytes is None or it.peak_bytes is None else it.capacity_bytes - it.peak_bytes
        ),
    ),
)
TIMES = (
    Family[Assessment](
        "vramscope_oom_in_seconds",
        "gauge",
        "seconds",
        "Estimated seconds until an out-of-memory error, median; absent if none is expected.",
        lambda it: it.oom_in_s,
    ),
    Family[Assessment](
        "vramscope_oom_in_low_seconds",
        "gauge",
        "seconds",
        "Lower end of the 80 % interval of vramscope_oom_in_seconds.",
        lambda it: it.oom_in_low_s,
    ),
    Family[Assessment](
        "vramscope_oom_in_high_seconds",
        "gauge",
        "seconds",
        "Upper end of the 80 % interval of vramscope_oom_in_seconds.",
        lambda it: it.oom_in_high_s,
    ),
)
"""Counted from the sample they are based on; published as seconds from now."""


# How used memory goes on devices without a probe: never a forecast of an error.

TREND_WORDS = get_args(TrendWord)
TREND_NAME = "vramscope_device_trend"
TREND_HELP = (
    "How device used goes where no process reports: 1 for the current `trend`; "
    "what fills a device may be cache."
)
TREND_GAUGES = tuple(
    Family[DeviceTrend](
        f"vramscope_device_growth{name}_bytes_per_second",
        "gauge",
        "bytes_per_second",
        text,
        attrgetter(f"rate{name}_bytes_per_s"),
    )
    for name, text in (
        ("", "Growth of device used; absent where it does not grow."),
        ("_low", "Lower end of the 80 % interval of vramscope_device_growth_bytes_per_second."),
        ("_high", "Upper end of the 80 % interval of vramscope_device_growth_bytes_per_second."),
    )
)
TREND_TIMES = tuple(
    Family[DeviceTrend](
        f"vramscope_device_full_in{name}_seconds", "gauge", "seconds", text, attrgetter(f"full_in{name}_s")
    )
    for name, text in (
        ("", "Seconds until the device is full if it goes on filling; no forecast of an error."),
        ("_low", "Lower end of the 80 % interval of vramscope_device_full_in_seconds."),
        ("_high", "Upper end of the 80 % interval of vramscope_device_full_in_seconds."),
    )
)


def list_assessments(picture: Picture) -> tuple[Assessment, ...]:
    """Return the assessments of risk, if they are current."""
    return picture.snapshot.assessments if picture.is_fresh else ()


def find_left_s(picture: Picture, time_s: float, seconds: float) -> float:
    """Return the remaining seconds at the scrape, counted from the sample at `time_s`."""
    sample = picture.sample
    passed_s = picture.age_s + (0.0 if sample is None else max(0.0, sample.time_s - time_s))
    return max(0.0, seconds - passed_s)


def count_findings(picture: Picture) -> Counter[tuple[str, ...]]:
    """Return how many findings hold, by the values of the labels."""
    return Counter(
        (*picture.label_device(it.device_uuid), label_text(it.kind), it.severity) for it in picture.findings()
    )


# Metrics of the agent itself and of its host.

AGENT_GAUGES = (
    Family[Picture](
        "vramscope_agent_up", "gauge", "", "Whether the agent is sampling.", lambda it: float(it.is_fresh)
    ),
    Family[Picture](
        "vramscope_agent_sample_age_seconds",
        "gauge",
        "seconds",
        "Seconds since the newest sample of the agent.",
        lambda it: None if it.sample is None else it.age_s,
    ),
)
HUB_FAMILIES = (
    Family[HubStatus](
        "vramscope_agent_start_time_seconds",
        "gauge",
        "seconds",
        "Start time of the agent, in seconds since the epoch.",
        lambda it: it.started_s,
    ),
    Family[HubStatus](
        "vramscope_agent_cpu_ratio",
        "gauge",
        "ratio",
        "Recent share of one core used by the agent and its analyzers.",
        lambda it: None if it.cpu_percent is None else it.cpu_percent / 100.0,
    ),
    Family[HubStatus](
        "vramscope_agent_resident_bytes",
        "gauge",
        "bytes",
        "Resident memory of the agent.",
        lambda it: it.rss_bytes,
    ),
    Family[HubStatus](
        "vramscope_agent_viewers", "gauge", "", "Viewers that follow the agent.", lambda it: it.viewers
    ),
    Family[HubStatus](
        "vramscope_agent_late_ticks",
        "counter",
        "",
        "Ticks that were published more than half an interval late.",
        lambda it: it.ticks_late,
    ),
    Family[HubStatus](
        "vramscope_agent_worker_restarts",
        "counter",
        "",
        "Times that the analyzer process was restarted.",
        lambda it: sum(worker.restarts for worker in it.workers),
    ),
)
HOST_FAMILIES = (
    Family[HostSample](
        "vramscope_host_memory_capacity_bytes",
        "gauge",
        "bytes",
        "Memory of the host, or the limit of the cgroup if that is lower.",
        lambda it: it.total_bytes,
    ),
    Family[HostSample](
        "vramscope_host_memory_used_bytes",
        "gauge",
        "bytes",
        "Used memory of the host.",
        lambda it: it.used_bytes,
    ),
)
AGENT_INFO_NAME = "vramscope_agent"
AGENT_INFO_HELP = "The agent: its version."
