"""The state of a node as scripts see it (`vramscope.status/1`), and the state of a hub."""

from typing import Final, Literal

import msgspec

from .assessment import Assessment
from .device import DeviceSample
from .finding import Finding
from .host import HostSample
from .rank import RankSample

STATUS_SCHEMA: Final = "vramscope.status/1"


class WorkerStatus(msgspec.Struct, frozen=True):
    """One analyzer worker process as its hub sees it."""

    name: str
    pid: int | None
    state: Literal["starting", "running", "restarting", "failed"]
    restarts: int = 0
    samples_dropped: int = 0
    """Samples that this worker never saw: dropped on the way, or older than the ring reaches."""
    analyzers: tuple[str, ...] = ()
    reason: str | None = None
    """Why it is not running, in one sentence."""


class HookStatus(msgspec.Struct, frozen=True):
    """One hook of a hub: how the alerts fared that it was to be told."""

    name: Literal["command", "webhook"]
    target: str
    """The program, or the host of the address: nothing secret."""
    delivered: int = 0
    failed: int = 0
    dropped: int = 0
    """Alerts that were not tried: too many waited."""
    waiting: int = 0
    reason: str | None = None
    """Why the newest alert did not arrive, in one sentence; None where it did."""


class HubStatus(msgspec.Struct, frozen=True):
    """A hub's own state, published every tick."""

    hub_id: str
    """Random per start; a new one means the hub was restarted."""
    pid: int
    version: str
    started_s: float
    interval_s: float
    last_seq: int | None = None
    """Sequence number of the newest sample it published."""
    cpu_percent: float | None = None
    """CPU time of the hub and its workers over the last tick, percent of one core."""
    rss_bytes: int | None = None
    viewers: int | None = None
    workers: tuple[WorkerStatus, ...] = ()
    ticks_late: int = 0
    """Ticks published more than half an interval late."""
    hooks: tuple[HookStatus, ...] = ()
    """Who is told of findings, as `[alerts]` of its settings says."""
    notes: tuple[str, ...] = ()
    """What the hub itself could not do, in sentences."""


class NodeStatus(msgspec.Struct, frozen=True):
    """The object that `--json` prints, one a line."""

    schema: Literal["vramscope.status/1"]
    time: float
    node: str
    host: HostSample | None
    devices: tuple[DeviceSample, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    agent: HubStatus | None = None
    ranks: tuple[RankSample, ...] = ()
    assessments: tuple[Assessment, ...] = ()
    """How near each process is to running out of memory, by device and process."""
    devices_left_out: int = 0
    """Devices of the node that are not followed, because nobody asked for them; nothing is said of them."""
