"""What a training process tells of itself through the probe. None means unmeasured; never 0 or a guess."""

from typing import Literal

import msgspec

RankState = Literal["ok", "stale", "ended"]
"""`ok`; `stale`: the process lives and has not reported for a while; `ended`: it said goodbye or is gone."""

Backend = Literal["cuda", "rocm", "xpu", "mps", "cpu"]
"""Where its tensors live. A simulated device answers as CUDA would and is marked by `is_simulated`."""


class RankCoordinates(msgspec.Struct, frozen=True, gc=False):
    """Where in the parallel layout a rank stands."""

    rank: int
    world_size: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    local_rank: int | None = None
    cp: int | None = None
    ep: int | None = None
    source: str | None = None
    """Who said so: `environment`, `torch.distributed`, `Megatron`, `DeepSpeed`, `device mesh`, `trace`."""


class AllocatorReading(msgspec.Struct, frozen=True, gc=False):
    """What the training process's caching allocator says, in PyTorch's own words."""

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
    """Free bytes that cannot be given back to the device, because a neighbour in their segment lives."""
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
    """The lesser of the allocated bytes read at both ends of the step; moments between may have had less."""
    peak_bytes: int | None = None
    """Most allocated bytes seen within the step."""
    is_peak_exact: bool = False
    """Whether the allocator itself said the peak; else it is the most that was sampled, a lower bound."""
    tokens: int | None = None
    """Tokens of its largest micro-batch, as the program told `vramscope.step`; None where it did not."""
    batch: int | None = None
    """Samples of that micro-batch, as the program told."""


class PhaseReading(msgspec.Struct, frozen=True, gc=False):
    """One `vramscope.phase` of the program: its newest call that was measured, and the most of all calls."""

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
    """Whether the allocator itself said the peak; else it is the most that was read, a lower bound."""
    most_bytes: int | None = None
    """Most allocated bytes within any call."""
    is_most_exact: bool = False
    """Whether no call can have had more: it is the allocator's own peak."""


class ModelStateReading(msgspec.Struct, frozen=True, gc=False):
    """Bytes of what the optimizers hold, each storage counted once; activations are the rest of the peak."""

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
    """Which `vramscope run` it belongs to; None for a process that was attached to."""
    command: str | None = None
    device_uuid: str | None = None
    """Device its tensors live on; None where it could not be matched."""
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
    """Least floor of the steps that ended within the tick; None where none did, or none told it."""
    peak_max_bytes: int | None = None
    """Highest peak of those steps."""
    sized_steps: tuple[StepReading, ...] = ()
    """Of the steps that ended within the tick and told a size: of each size the one whose peak says most, 16
    sizes at most. Every ten seconds earlier ones with exact peaks are told again."""
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
    """Named parts of the program's steps, in the order in which they first ended; 16 at most. History keeps
    none."""
    readings_dropped: int = 0
    """Readings that never arrived, since the start of the process."""
    notes: tuple[str, ...] = ()
