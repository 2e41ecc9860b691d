"""What is known of one device at one tick. None means unmeasured; it is never 0 and never a guess."""

from typing import Literal

import msgspec

from .rank import AllocatorReading, RankCoordinates

DeviceState = Literal["ok", "lost", "stale", "unsupported", "ended"]
"""`ok`; `lost`: fell off the bus; `stale`: a call has not returned; `unsupported`: memory is not readable;
`ended`: a modelled device whose processes have all ended, with the last figures they gave."""

DeviceKind = Literal["gpu", "mig", "unified", "vgpu", "trace", "simulated", "cpu"]
"""A whole GPU, a MIG instance, a GPU that shares the host's memory, a virtual GPU, a recorded rank,
a modelled card of `vramscope run --simulate`, the host where ranks train on its processors."""

SIMULATED_TRACE = "simulated"
"""Name of a recorded rank that one GPU played in a simulation; of one that was measured it is `recorded`."""


class MemoryReading(msgspec.Struct, frozen=True, gc=False):
    """Memory of one device in bytes; minimum and maximum span one published tick."""

    total_bytes: int | None = None
    """Capacity of the device."""
    used_bytes: int | None = None
    """Device used: everything on the device, all processes and the driver's own share."""
    free_bytes: int | None = None
    """Device free."""
    used_min_bytes: int | None = None
    """Least device used seen within the tick."""
    used_max_bytes: int | None = None
    """Most device used seen within the tick."""
    source: Literal["device", "host"] = "device"
    """`host` where the device shares the host's memory and the host's figures stand in for it."""


class ProcessReading(msgspec.Struct, frozen=True, gc=False):
    """One process that holds memory on a device."""

    pid: int
    """Process id as the driver reports it, in the host's pid namespace."""
    user: str | None = None
    """Login name of the owner; None where it cannot be known."""
    command: str | None = None
    """Command line; None where it cannot be known."""
    used_bytes: int | None = None
    """Device memory of this process; None where the driver does not tell (WDDM, some MIG and vGPU)."""
    location: Literal["here", "container", "outside", "gone"] = "here"
    """`here`: in our pid namespace, on the host; `container`: seen from the host inside a container;
    `outside`: the pid is not of our namespace (we run in a container); `gone`: exited, memory still held."""
    container: str | None = None
    """Short id or name of its container, where it is in one and that can be known."""
    started_s: float | None = None
    """Start time in seconds since the epoch; with the pid it identifies the process for good."""


class DeviceSample(msgspec.Struct, frozen=True, gc=False):
    """One device at one published tick; keyed by `uuid`, never by `index` alone."""

    uuid: str
    index: int
    name: str | None = None
    kind: DeviceKind = "gpu"
    parent_uuid: str | None = None
    """UUID of the GPU of which this is a MIG instance; its memory is part of the parent's."""
    mig_index: int | None = None
    state: DeviceState = "ok"
    reason: str | None = None
    """Why the state is not `ok`, in one sentence."""
    age_s: float | None = None
    """Seconds since memory was last read successfully; None before the first reading."""
    memory: MemoryReading = MemoryReading()
    allocator: AllocatorReading | None = None
    """Of the process that trains on it; the sum where several do (see `Sample.ranks` for each)."""
    utilization_percent: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    processes: tuple[ProcessReading, ...] | None = None
    """Processes that hold memory on it; None where the source does not tell, empty where there are none."""
    rank: RankCoordinates | None = None
    step: int | None = None
    """Training step (iteration) in progress, where the source knows it."""
    details_age_s: float | None = None
    """Seconds since utilisation, temperature, power and processes were read, where a slow driver keeps them
    from being of now; None where they are of now, or unmeasured."""

    @property
    def is_simulated(self) -> bool:
        """Whether its figures are of a modelled card, or of a simulation that was recorded: not measured."""
        return self.kind == "simulated" or (self.kind == "trace" and self.name == SIMULATED_TRACE)

    @property
    def label(self) -> str:
        """Short name for people: `0`, `0:1` for the second MIG instance of GPU 0, `sim0`, `cpu`."""
        if self.kind == "cpu":
            return "cpu"
        if self.kind == "simulated":
            return f"sim{self.index}"
        return f"{self.index}" if self.mig_index is None else f"{self.index}:{self.mig_index}"
