"""What is known of the host at one tick."""

from typing import Literal

import msgspec


class HostSample(msgspec.Struct, frozen=True, gc=False):
    """Host memory and processor of one node, in bytes and percent of all cores."""

    total_bytes: int | None = None
    """Memory this process may use: the host's, or the cgroup's limit where that is lower."""
    used_bytes: int | None = None
    available_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    cpu_percent: float | None = None
    """Busy share of all cores over the last tick, 0–100."""
    limit: Literal["host", "cgroup"] = "host"
    """Whose limit `total_bytes` is."""
