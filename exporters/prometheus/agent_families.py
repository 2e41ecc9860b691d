"""What is told of the agent itself and of its host."""

from ...engine.model import HostSample, HubStatus
from .family import Family
from .picture import Picture

AGENT_GAUGES = (
    Family[Picture](
        "vramscope_agent_up", "gauge", "", "Whether the agent samples.", lambda it: float(it.is_fresh)
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
        "When the agent was started, in seconds since the epoch.",
        lambda it: it.started_s,
    ),
    Family[HubStatus](
        "vramscope_agent_cpu_ratio",
        "gauge",
        "ratio",
        "Share of one core that the agent and its analyzers took of late.",
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
        "vramscope_agent_viewers", "gauge", "", "Views that follow the agent.", lambda it: it.viewers
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
        "Times that the process of the analyzers was started again.",
        lambda it: sum(worker.restarts for worker in it.workers),
    ),
)
HOST_FAMILIES = (
    Family[HostSample](
        "vramscope_host_memory_capacity_bytes",
        "gauge",
        "bytes",
        "Memory of the host, or the limit of the cgroup where that is lower.",
        lambda it: it.total_bytes,
    ),
    Family[HostSample](
        "vramscope_host_memory_used_bytes",
        "gauge",
        "bytes",
        "Memory of the host that is used.",
        lambda it: it.used_bytes,
    ),
)
INFO_NAME = "vramscope_agent"
INFO_HELP = "The agent: its version."
