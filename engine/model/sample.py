"""What was measured in one tick: devices, host, training processes."""

from typing import Final, Literal, get_args

import msgspec

from .serving import ServerSample


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
    stall_percent: float | None = None
    """Share of the last tick in which every process that could run waited for memory (pressure stall
    information, `full`). Read where a device shares the host's memory; not kept by history, as the next one.
    """
    swap_in_bytes_per_s: float | None = None
    """Rate at which memory came back from swap over the last tick."""
    load_average: float | None = None
    """Tasks that ran or waited to run, averaged by the kernel over a minute; not kept by history."""


RankState = Literal["ok", "stale", "ended"]
"""`ok`; `stale`: the process runs but has not reported for a while; `ended`: it ended or its probe was
detached.
"""

Backend = Literal["cuda", "rocm", "xpu", "mps", "cpu"]
"""Kind of device with its tensors. A simulated device answers as CUDA would and is marked by `is_simulated`.
"""


class RankCoordinates(msgspec.Struct, frozen=True, gc=False):
    """A rank's place in the parallel layout."""

    rank: int
    world_size: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    local_rank: int | None = None
    cp: int | None = None
    ep: int | None = None
    source: str | None = None
    """Source of the coordinates: `environment`, `torch.distributed`, `Megatron`, `DeepSpeed`, `device mesh`,
    `trace`.
    """


class AllocatorReading(msgspec.Struct, frozen=True, gc=False):
    """State of the training process's caching allocator, in PyTorch's own terms."""

    allocated_bytes: int | None = None
    """Bytes of live tensors (`torch.cuda.memory_allocated`)."""
    allocated_max_bytes: int | None = None
    """Most allocated bytes seen within the tick."""
    reserved_bytes: int | None = None
    """Bytes held in segments (`torch.cuda.memory_reserved`)."""
    requested_bytes: int | None = None
    """Bytes the program asked for; allocated less requested is internal fragmentation."""
    active_bytes: int | None = None
    """Allocated, and freed blocks that another stream may still use."""
    inactive_split_bytes: int | None = None
    """Free bytes that cannot be released to the device, because their segment also has live blocks."""
    retries: int | None = None
    """Times since start that the device refused a segment and the cache was flushed (`num_alloc_retries`)."""
    ooms: int | None = None
    """Out-of-memory errors since start (`num_ooms`)."""
    allocations: int | None = None
    """Allocations since start (`allocation.all.allocated`); not kept by history and recordings."""
    frees: int | None = None
    """Frees since start (`allocation.all.freed`); not kept by history and recordings."""


class StepReading(msgspec.Struct, frozen=True, gc=False):
    """One training step that has ended."""

    index: int
    """Counts from 1 at the first step that the probe saw."""
    ended_s: float
    """Wall clock in seconds since the epoch."""
    duration_s: float | None = None
    floor_bytes: int | None = None
    """The lower of the allocated bytes at the start and end of the step; there may have been less in between.
    """
    peak_bytes: int | None = None
    """Most allocated bytes seen within the step."""
    is_peak_exact: bool = False
    """Whether the peak is from the allocator itself; else it is the most that was sampled, a lower bound."""
    tokens: int | None = None
    """Tokens of its largest micro-batch, as passed to `vramscope.step`; None where it was not."""
    batch: int | None = None
    """Samples of that micro-batch, as passed to `vramscope.step`."""


class PhaseReading(msgspec.Struct, frozen=True, gc=False):
    """One `vramscope.phase` of the program: its newest measured call, and the most of all calls."""

    name: str
    calls: int
    """Calls so far; after the first few only some are measured."""
    ended_s: float
    """Wall clock in seconds since the epoch."""
    duration_s: float | None = None
    allocated_before_bytes: int | None = None
    reserved_before_bytes: int | None = None
    allocated_after_bytes: int | None = None
    reserved_after_bytes: int | None = None
    peak_bytes: int | None = None
    """Most allocated bytes within the newest call."""
    is_peak_exact: bool = False
    """Whether the peak is from the allocator itself; else it is the most that was read, a lower bound."""
    most_bytes: int | None = None
    """Most allocated bytes within any call."""
    is_most_exact: bool = False
    """Whether no call can have had more: it is the allocator's own peak."""


class ModelStateReading(msgspec.Struct, frozen=True, gc=False):
    """Bytes of the optimizers' tensors, each storage counted once; activations are the rest of the peak."""

    parameters_bytes: int | None = None
    gradients_bytes: int | None = None
    optimizer_bytes: int | None = None
    """Optimizer state on the device of the parameters."""
    grad_sample_bytes: int | None = None
    """Per-sample gradients of Opacus; None where there are none."""


class RankSample(msgspec.Struct, frozen=True, gc=False):
    """One training process at one published tick; known by pid and start time."""

    pid: int
    """Process id in the pid namespace of the hub."""
    started_s: float | None = None
    """Start time of the process in seconds since the epoch."""
    job: str | None = None
    """The `vramscope run` it belongs to; None for a process that was attached to."""
    command: str | None = None
    device_uuid: str | None = None
    """Device its tensors are on; None where it could not be matched."""
    backend: Backend | None = None
    """None until the process has used a device."""
    is_simulated: bool = False
    coordinates: RankCoordinates | None = None
    state: RankState = "ok"
    reason: str | None = None
    """Why the state is not `ok`, in one sentence."""
    age_s: float | None = None
    """Seconds since its newest reading."""
    allocator: AllocatorReading | None = None
    capacity_bytes: int | None = None
    """Most its allocator may reserve, where it was limited below the device's total."""
    context_bytes: int | None = None
    """Bytes of the context of the process on a simulated device, as modelled; None on a real one."""
    pinned_bytes: int | None = None
    """Pinned host memory."""
    resident_bytes: int | None = None
    """Resident host memory (RSS)."""
    phase: str | None = None
    """Name of the innermost `vramscope.phase` in progress."""
    step: StepReading | None = None
    """The newest step that has ended."""
    steps_within: int = 0
    """Steps that ended within the tick."""
    floor_min_bytes: int | None = None
    """Lowest floor of the steps that ended within the tick; None where no step ended or reported one."""
    peak_max_bytes: int | None = None
    """Highest peak of those steps."""
    sized_steps: tuple[StepReading, ...] = ()
    """Steps with a size that ended within the tick: the most informative one of each size, 16 sizes at most.
    Every ten seconds earlier ones with exact peaks are repeated.
    """
    model_state: ModelStateReading | None = None
    allocator_settings: str | None = None
    """`PYTORCH_ALLOC_CONF` of the process, where set."""
    memory_history: Literal["off", "on", "user"] = "off"
    """Whether allocations are recorded with their stacks: by us, or by the program itself."""
    flight_record: str | None = None
    """Path of the newest record of an out-of-memory error, on its node."""
    oom_s: float | None = None
    """When the newest out-of-memory error that the probe saw was raised, wall clock."""
    oom_size_bytes: int | None = None
    """Bytes of the request that failed then."""
    phases: tuple[PhaseReading, ...] = ()
    """Named parts of the program's steps, in the order in which they first ended; 16 at most. Not kept by
    history.
    """
    readings_dropped: int = 0
    """Readings that never arrived, since the start of the process."""
    notes: tuple[str, ...] = ()


DeviceState = Literal["ok", "lost", "stale", "unsupported", "ended"]
"""`ok`; `lost`: fell off the bus; `stale`: a call has not returned; `unsupported`: memory is not readable;
`ended`: a modelled device whose processes have all ended, with the last figures they gave."""

DeviceKind = Literal["gpu", "mig", "unified", "vgpu", "trace", "simulated", "cpu"]
"""A whole GPU, a MIG instance, a GPU that shares the host's memory, a virtual GPU, a recorded rank,
a modelled card of `vramscope run --simulate`, the host where ranks train on its processors."""

REAL_KINDS: frozenset[DeviceKind] = frozenset({"gpu", "mig", "unified", "vgpu"})
"""Devices that a driver knows; the others are modelled."""

SIMULATED_TRACE = "simulated"
"""Name of a recorded rank that one GPU played in a simulation; of one that was measured it is `recorded`."""


class MemoryReading(msgspec.Struct, frozen=True, gc=False):
    """Memory of one device in bytes; minimum and maximum span one published tick."""

    total_bytes: int | None = None
    """Capacity of the device."""
    used_bytes: int | None = None
    """Device used: all processes and the driver's own share."""
    free_bytes: int | None = None
    """Device free."""
    used_min_bytes: int | None = None
    """Least device used seen within the tick."""
    used_max_bytes: int | None = None
    """Most device used seen within the tick."""
    source: Literal["device", "host"] = "device"
    """`host` where the device shares the host's memory, and these are the host's values."""
    is_lower_bound: bool = False
    """Whether `used_bytes` is only what the processes that this user may see hold: more may be in use."""


ProcessKind = Literal["compute", "graphics", "compute+graphics"]
"""What a process uses a device for, as the driver lists it; MPS clients compute."""


class ProcessOwner(msgspec.Struct, frozen=True, gc=False):
    """Names of whose a process is, where the node has them; ids are in `ProcessReading`."""

    namespace: str | None = None
    """Namespace of its Kubernetes pod."""
    pod_name: str | None = None
    """Name of its Kubernetes pod."""
    container_name: str | None = None
    """Name of its container: in its pod, of Docker or of Podman."""
    slurm_job_name: str | None = None
    """Name of its Slurm job, as a process of the job that we may read was started with."""
    slurm_partition: str | None = None
    """Partition of its Slurm job."""


class MpsRole(msgspec.Struct, frozen=True, gc=False):
    """Part of a process in NVIDIA's Multi-Process Service (MPS), whose clients share one context."""

    role: Literal["server", "client"]
    server_pid: int | None = None
    """Process id of the server; of a client None where several servers use the device."""


class ProcessReading(msgspec.Struct, frozen=True, gc=False):
    """One process that holds memory on a device."""

    pid: int
    """Process id as the driver reports it, in the host's pid namespace."""
    user: str | None = None
    """Login name of the owner; None where it cannot be known."""
    command: str | None = None
    """Command line; None where it cannot be known."""
    used_bytes: int | None = None
    """Device memory of this process; None where the driver does not report it (WDDM, some MIG and vGPU)."""
    location: Literal["here", "container", "outside", "gone"] = "here"
    """`here`: in our pid namespace, on the host; `container`: seen from the host inside a container;
    `outside`: the pid is not of our namespace (we run in a container); `gone`: exited, memory still held."""
    container: str | None = None
    """Short id or name of its container, where it is known."""
    started_s: float | None = None
    """Start time in seconds since the epoch; with the pid it identifies the process uniquely."""
    kind: ProcessKind | None = None
    """None where the source does not say."""
    parent_pid: int | None = None
    """Process that started it, or that adopted it since."""
    sm_percent: float | None = None
    """Share of time in which its kernels ran on this device, 0 to 100; None on a MIG instance."""
    memory_bandwidth_percent: float | None = None
    """Share of time in which its kernels read or wrote the memory of this device, 0 to 100."""
    cpu_percent: float | None = None
    """CPU time of all its threads since the reading before, percent of one core."""
    resident_bytes: int | None = None
    """Resident host memory (RSS)."""
    threads: int | None = None
    """Threads of the process, on the host."""
    pod: str | None = None
    """UID of its Kubernetes pod."""
    slurm_job: str | None = None
    """Number of its Slurm job."""
    slurm_step: str | None = None
    """Its step in that job: a number, `batch`, `extern` or `interactive`."""
    owner: ProcessOwner | None = None
    """Names of its pod, container or job; None where no name is known."""
    mps: MpsRole | None = None
    """Its part in MPS; None where it has none, or the driver does not report it."""
    preallocated_percent: float | None = None
    """Share of the device that its framework (JAX) takes when it starts, whatever lives in it, by the
    variables that it was started with; None where it takes none, or that cannot be known.
    """


class DeviceAllocation(msgspec.Struct, frozen=True, gc=False):
    """A container of Kubernetes that was given a device, whether or not it uses it."""

    namespace: str
    pod_name: str
    container_name: str
    resource: str
    """As in the limits of the pod: `nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`."""
    shares: int | None = None
    """Shares of the device that it has, if containers use it in turns (time-slicing, MPS); None for a
    whole one.
    """


MOST_OWNERS = 8
"""Owners of one device that a sample names; more use it only where it is shared by many."""


class DeviceOwner(msgspec.Struct, frozen=True, gc=False):
    """Whose processes hold memory of a device, or who was given it by Kubernetes and does not use it."""

    user: str | None = None
    slurm_job: str | None = None
    """Number of the Slurm job."""
    slurm_job_name: str | None = None
    namespace: str | None = None
    pod: str | None = None
    """Name of the pod, else its UID."""


ThrottleReason = Literal[
    "idle",
    "clock setting",
    "power cap",
    "hardware slowdown",
    "sync boost",
    "thermal slowdown",
    "hardware thermal slowdown",
    "power brake",
    "display clock setting",
]
"""Why the clocks are below their maximum, as the driver reports it. `idle` and the settings are no fault."""

ComputeMode = Literal["default", "exclusive thread", "prohibited", "exclusive process"]
"""Which processes may compute on a device: any number, one thread, none, one process."""


class DeviceHardware(msgspec.Struct, frozen=True, gc=False):
    """What seldom changes about a device; read every ten seconds or slower."""

    driver_version: str | None = None
    """Version of the driver."""
    cuda_version: str | None = None
    """Newest CUDA version that the driver serves."""
    power_limit_w: float | None = None
    """Power cap that is enforced."""
    sm_clock_max_mhz: int | None = None
    """Highest clock of the streaming multiprocessors (SM)."""
    memory_clock_max_mhz: int | None = None
    """Highest clock of device memory."""
    fan_percent: float | None = None
    """Fan speed, percent of its maximum; None without a fan of its own. It may exceed 100."""
    compute_mode: ComputeMode | None = None
    """Which processes may compute on it."""
    pcie_generation: int | None = None
    """Generation of PCI Express that the link runs at now."""
    pcie_lanes: int | None = None
    """Lanes of PCI Express in use."""
    is_ecc_on: bool | None = None
    """Whether memory errors are detected and corrected."""
    ecc_corrected: int | None = None
    """Memory errors that ECC corrected since the driver was loaded."""
    ecc_uncorrected: int | None = None
    """Memory errors that ECC could not correct since the driver was loaded."""
    retired_pages: int | None = None
    """Pages of memory that are out of use because of errors (GPUs before Ampere)."""
    remapped_rows: int | None = None
    """Rows of memory that spare rows replace because of errors (Ampere and later)."""
    is_repair_pending: bool | None = None
    """Whether pages or rows wait for a reset of the GPU to be taken out of use."""


class DeviceActivity(msgspec.Struct, frozen=True, gc=False):
    """What the driver measures of a running device, apart from memory; read every four seconds or slower."""

    memory_bandwidth_percent: float | None = None
    """Share of time in which device memory was read or written, 0 to 100."""
    sm_clock_mhz: int | None = None
    """Clock of the streaming multiprocessors (SM)."""
    memory_clock_mhz: int | None = None
    """Clock of device memory."""
    performance_state: int | None = None
    """0 is the highest performance, 15 the lowest."""
    throttle_reasons: tuple[ThrottleReason, ...] | None = None
    """Why the clocks are lowered; empty where they are not."""
    pcie_sent_bytes_per_s: float | None = None
    """From the device over PCI Express, to three significant digits."""
    pcie_received_bytes_per_s: float | None = None
    """To the device over PCI Express."""
    nvlink_sent_bytes_per_s: float | None = None
    """From the device over all its lanes of NVLink."""
    nvlink_received_bytes_per_s: float | None = None
    """To the device over all its lanes of NVLink."""
    xgmi_sent_bytes_per_s: float | None = None
    """From the device over all its links of XGMI, AMD's counterpart of NVLink."""
    xgmi_received_bytes_per_s: float | None = None
    """To the device over all its links of XGMI."""


class DeviceSample(msgspec.Struct, frozen=True, gc=False):
    """One device at one published tick; keyed by `uuid`, never by `index` alone."""

    uuid: str
    index: int
    name: str | None = None
    kind: DeviceKind = "gpu"
    parent_uuid: str | None = None
    """UUID of the parent GPU of this MIG instance; its memory is part of the parent's."""
    mig_index: int | None = None
    state: DeviceState = "ok"
    reason: str | None = None
    """Why the state is not `ok`, in one sentence."""
    age_s: float | None = None
    """Seconds since memory was last read successfully; None before the first reading."""
    memory: MemoryReading = MemoryReading()
    allocator: AllocatorReading | None = None
    """Allocator of the process that trains on it; the sum where several do (see `Sample.ranks` for each)."""
    utilization_percent: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    processes: tuple[ProcessReading, ...] | None = None
    """Processes that hold memory on it; None where the source does not report them, empty where there are
    none.
    """
    rank: RankCoordinates | None = None
    step: int | None = None
    """Training step (iteration) in progress, where the source has it."""
    details_age_s: float | None = None
    """Seconds since utilisation, temperature, power and processes were read, where a slow driver delays them;
    None where they are current, or unmeasured.
    """
    activity: DeviceActivity | None = None
    """Clocks, throttling and throughput; None where the source measures nothing of it."""
    hardware: DeviceHardware | None = None
    """Limits, errors and versions; None where the source measures nothing of it."""
    pci_address: str | None = None
    """Address on the PCI bus, as the kernel spells it: `0000:41:00.0`. Not kept by history."""
    gpu_instance_id: int | None = None
    """The driver's number of the GPU instance, if this is a MIG instance. Not kept by history."""
    allocations: tuple[DeviceAllocation, ...] | None = None
    """Containers that the kubelet gave it to; empty where to none, None where no kubelet says. Not kept by
    history.
    """
    owners: tuple[DeviceOwner, ...] = ()
    """Where the processes are left out, as in the cells of a fleet: whose they are, 8 at most."""

    def find_owners(self) -> tuple[DeviceOwner, ...]:
        """Return whose processes hold its memory, and who was given it and does not use it; each once."""
        if self.processes is None and self.allocations is None:
            return self.owners
        found: dict[DeviceOwner, None] = {}
        for process in self.processes or ():
            names = process.owner or _NO_NAMES
            owner = DeviceOwner(
                process.user,
                process.slurm_job,
                names.slurm_job_name,
                names.namespace,
                names.pod_name or process.pod,
            )
            if owner != _NOBODY:
                found.setdefault(owner)
        using = {(owner.namespace, owner.pod) for owner in found}
        for it in self.allocations or ():
            if (it.namespace, it.pod_name) not in using:
                found.setdefault(DeviceOwner(namespace=it.namespace, pod=it.pod_name))
        return tuple(found)[:MOST_OWNERS]

    @property
    def is_simulated(self) -> bool:
        """Whether its values are from a modelled card or a recorded simulation: not measured."""
        return self.kind == "simulated" or (self.kind == "trace" and self.name == SIMULATED_TRACE)

    @property
    def label(self) -> str:
        """Short name for people: `0`, `0:1` for the second MIG instance of GPU 0, `sim0`, `cpu`."""
        if self.kind == "cpu":
            return "cpu"
        if self.kind == "simulated":
            return f"sim{self.index}"
        return f"{self.index}" if self.mig_index is None else f"{self.index}:{self.mig_index}"


_NO_NAMES: Final = ProcessOwner()
_NOBODY: Final = DeviceOwner()

FREE: Final = 0
ALLOCATED: Final = 1
AWAITING_FREE: Final = 2
"""Freed by the program, and another stream may still use it."""


class Segment(msgspec.Struct, frozen=True):
    """One piece of device memory that the allocator holds, cut into blocks."""

    address: int
    total_bytes: int
    pool: Literal["small", "large"]
    stream: int
    blocks: tuple[tuple[int, int], ...]
    """Size in bytes and state (`FREE`, `ALLOCATED`, `AWAITING_FREE`) of each block, in order of address."""
    is_expandable: bool = False
    is_private: bool = False
    """Belongs to a private pool, as CUDA graphs use them: its free blocks serve nobody else."""


class LiveStack(msgspec.Struct, frozen=True):
    """Live blocks that were allocated at one place of the program."""

    size_bytes: int
    count: int
    stack: tuple[tuple[str, int, str], ...]
    """File, line and function, innermost first."""


class SegmentMap(msgspec.Struct, frozen=True):
    """All segments of one process on one device at one moment."""

    node: str
    pid: int
    device_uuid: str | None
    time_s: float
    segments: tuple[Segment, ...]
    segments_left_out: int = 0
    """Segments beyond what one message may carry."""
    live_stacks: tuple[LiveStack, ...] = ()
    """Largest first; empty where allocations are not recorded with their stacks."""
    is_at_step_end: bool = False
    """Taken between two steps, when what serves a step only has gone."""


EventKind = Literal["xid", "hang", "reset", "wedged", "memory error", "lost"]
"""`xid`: an error of NVIDIA's driver by its number; of other drivers `hang`: work did not end in time;
`reset`: the driver resets the device or a part of it; `wedged`: it gave up and needs to be loaded again;
`memory error`: one that ECC could not correct; `lost`: off the bus.
"""


# NVML reports an XID that the kernel's log has too up to so many seconds later.
SAME_ERROR_WITHIN_S = 10.0


class DeviceEvent(msgspec.Struct, frozen=True, gc=False):
    """An error that a driver reported when it happened, by NVML or in the kernel's log."""

    time_s: float
    """Wall clock in seconds since the epoch; of NVML when it was asked, up to four seconds later."""
    kind: EventKind
    source: Literal["nvml", "kernel log"]
    device_uuid: str | None = None
    """None where the report names no device, or one that is not listed."""
    pci_address: str | None = None
    code: int | None = None
    """Number of an XID."""
    pid: int | None = None
    """Process that the report names, in the host's pid namespace."""
    text: str = ""
    """What the driver wrote; empty for NVML, which gives a number alone."""

    @property
    def name(self) -> str:
        """The error in a word or two: `XID 79`, `reset`."""
        return f"XID {self.code}" if self.kind == "xid" else self.kind

    def is_same(self, other: "DeviceEvent") -> bool:
        """Return whether both report one error, also if NVML reports it and the kernel's log has it too."""
        if (self.name, self.device_uuid) != (other.name, other.device_uuid):
            return False
        if self.source == other.source:
            return (self.time_s, self.pid) == (other.time_s, other.pid)
        return abs(self.time_s - other.time_s) <= SAME_ERROR_WITHIN_S


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One node at one published tick."""

    node: str
    seq: int
    """Counts up by one per tick of one hub; a gap means samples were dropped on the way."""
    time_s: float
    """Wall clock in seconds since the epoch, or seconds of the trace where `clock` is `trace`."""
    interval_s: float
    """Length of the tick in seconds of `time_s`."""
    devices: tuple[DeviceSample, ...] = ()
    host: HostSample | None = None
    ranks: tuple[RankSample, ...] = ()
    """Training processes that report through the probe, each with the device its tensors live on."""
    notes: tuple[str, ...] = ()
    """Sentences about what was not found, or what limits the values."""
    clock: Literal["wall", "trace"] = "wall"
    is_last: bool = False
    """Whether no sample follows: a recording has ended."""
    devices_left_out: int = 0
    """Other devices of the node, which were not asked for; 0 where all are here."""
    servers: tuple[ServerSample, ...] = ()
    """Servers of models on the node, such as vLLM, that were found or named."""
    events: tuple[DeviceEvent, ...] = ()
    """Errors that drivers reported in the last minute, oldest first, 16 at most. Not kept by history."""


AdviceAction = Literal["empty_cache", "skip_long_batch", "reduce_batch", "checkpoint"]
"""What a training process is asked to do at the end of a step. The probe does the first itself; the others
are for the program's callback, which decides what they mean.
"""

ADVICE_ACTIONS: Final[tuple[AdviceAction, ...]] = get_args(AdviceAction)
"""All actions."""


ModuleMemoryFormat = Literal["module memory", "InternLM log", "InternLM chart"]
"""Format of the file: ours with exact bytes, `memory.log`, or one of its charts."""

MemoryKind = Literal["params", "grads", "os_params", "os_state", "activation"]
MEMORY_KINDS: tuple[MemoryKind, ...] = ("params", "grads", "os_params", "os_state", "activation")
"""Parameters, gradients, what an optimizer has besides the model's own parameters, its state, activations."""


class KindBytes(msgspec.Struct, frozen=True):
    """All of one kind at one moment."""

    computed_bytes: int | None = None
    """From the shapes of tensors; activations: the outputs of modules without children."""
    measured_bytes: int | None = None
    """From their storages; activations: those that autograd saved for the backward pass."""


class LayoutEntry(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of one node of a tree, without its children."""

    path: str
    """Names joined by dots, that of the tree first: `param_mem.blocks.0.mlp.w1.weight`."""
    computed_bytes: int | None
    measured_bytes: int | None


class MemoryMoment(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a profile."""

    tag: str
    time_s: float
    """Since the profile began."""
    allocated_bytes: int | None = None
    """Allocated bytes of the device's allocator."""
    kinds: dict[str, KindBytes]
    """By kind; `activation` is what lived at that moment, `activation_peak` what lived at the most so far."""
    layouts: dict[str, tuple[LayoutEntry, ...]] = {}
    """Entries by kind, where they were written at that moment; of `activation` those of the largest."""


class ModuleMemory(msgspec.Struct, frozen=True, kw_only=True):
    """A profile of one rank, from a file."""

    format: ModuleMemoryFormat
    rank: RankCoordinates | None = None
    device: str | None = None
    """As PyTorch names it: `cuda:0`."""
    is_simulated: bool = False
    """The device is a modelled card, so its allocator's values are modelled too."""
    moments: tuple[MemoryMoment, ...]
    notes: tuple[str, ...] = ()
    """Sentences about what the values are and what was left out."""
