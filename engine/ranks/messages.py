"""What travels between a probe and its hub, over the unix socket `probe.sock` of the runtime folder.

The socket is of the kind SOCK_SEQPACKET: one packet is one message, a JSON object of at most 64 KiB with its
version and kind. The probe is pure standard library and speaks the same words from `engine/probe/wire.py`.
An unknown newer field is ignored; a message of a newer version is refused, and the sample's notes say so.
"""

from typing import Annotated, Final, Literal

import msgspec

from ..model import AdviceAction, Backend, RankCoordinates

PROBE_PROTOCOL: Final = 1
PROBE_SOCKET_NAME: Final = "probe.sock"
MAX_PACKET_BYTES: Final = 64 * 1024

MAX_FIGURE: Final = 2**62
"""Larger than any memory; what is larger was not measured and fits no column of history."""

DemandKind = Literal["segments", "detach", "history", "modules", "advise"]
"""A segment map, please; let go of the process; record stacks, or stop; profile modules for a few steps; do
something about memory at the end of a step."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_FIGURE)]
Figure = Count | None

ReadingRow = tuple[float, Figure, Figure, Figure, Figure, Figure, Figure, Figure, Figure, Figure]
"""Wall time in s, then bytes allocated, requested, active, reserved, inactive split; retries, OOMs;
bytes pinned on the host, bytes resident."""

StepRow = tuple[Count, float, float | None, Figure, Figure, bool]
"""Index, wall time of the end, duration in s, floor and peak in bytes, whether the peak is exact."""

SizeRow = tuple[Count, Figure, Figure]
"""Index of a step, and tokens and samples of its largest micro-batch as the program told them."""


PhaseRow = tuple[str, Count, float, float | None, Figure, Figure, Figure, Figure, Figure, bool, Figure, bool]
"""Name of a part, its calls so far; of the newest call that was measured: wall time of the end, duration in
s, bytes allocated and reserved before, the same after, peak, whether that is exact; the most of all calls,
and whether that is exact."""


class ProbedDevice(msgspec.Struct, frozen=True):
    """The device that a training process uses, as far as the process itself can tell."""

    index: Count
    """Ordinal within the process, after CUDA_VISIBLE_DEVICES."""
    uuid: str | None = None
    """As NVML spells it (`GPU-…`, `MIG-…`); `sim-<job>-<index>` for a simulated device."""
    name: str | None = None
    total_bytes: Figure = None
    pci_bus_id: str | None = None


class Hello(msgspec.Struct, frozen=True, tag_field="kind", tag="hello"):
    """Who reports; sent first on every connection, and again whole whenever any of it changed."""

    v: int
    pid: int
    """As the process itself sees it; the hub goes by the socket's peer credentials."""
    started_s: float | None = None
    command: str | None = None
    job: str | None = None
    python: str | None = None
    torch: str | None = None
    backend: Backend | None = None
    is_simulated: bool = False
    device: ProbedDevice | None = None
    coordinates: RankCoordinates | None = None
    capacity_bytes: Figure = None
    context_bytes: Figure = None
    allocator_settings: str | None = None
    notes: tuple[str, ...] = ()
    demands: tuple[str, ...] = ("segments", "detach", "history")
    """Kinds of demands that it understands; those of the first version, which did not tell."""


class Readings(msgspec.Struct, frozen=True, tag_field="kind", tag="readings"):
    """Readings of the allocator since the last message, oldest first; at most ten a second."""

    v: int
    rows: tuple[ReadingRow, ...]
    dropped: Count = 0
    """Readings lost since the start of the process, because no hub took them."""
    phase: str | None = None
    memory_history: Literal["off", "on", "user"] = "off"
    allocations: Figure = None
    """Allocations since the start of the process, at the newest of these readings."""
    frees: Figure = None


class Steps(msgspec.Struct, frozen=True, tag_field="kind", tag="steps"):
    """Steps that ended since the last message."""

    v: int
    rows: tuple[StepRow, ...]
    sizes: tuple[SizeRow, ...] = ()
    """Sizes of those whose size was told."""
    phases: tuple[PhaseRow, ...] = ()
    """Named parts of which a call was measured since, by name."""


class ModelState(msgspec.Struct, frozen=True, tag_field="kind", tag="model_state"):
    """Bytes of parameters, gradients and optimizer state, when they have changed."""

    v: int
    parameters_bytes: Figure = None
    gradients_bytes: Figure = None
    optimizer_bytes: Figure = None
    grad_sample_bytes: Figure = None


class SegmentsPart(msgspec.Struct, frozen=True, tag_field="kind", tag="segments"):
    """One part of a segment map that was asked for."""

    v: int
    request: Count
    part: Count
    parts: Count
    data: str
    """Base64 of a piece of the zlib-compressed JSON of a `ProbedSegments`."""


class ModulesPart(msgspec.Struct, frozen=True, tag_field="kind", tag="modules"):
    """One part of a profile by module that was asked for."""

    v: int
    request: Count
    part: Count
    parts: Count
    data: str
    """Base64 of a piece of the zlib-compressed text of a `module_memory.jsonl`."""


class AdviceTaken(msgspec.Struct, frozen=True, tag_field="kind", tag="advised"):
    """What became of an advice at the end of a step."""

    v: int
    request: Count
    is_obeyed: bool
    outcome: str
    """What came of it, or why nothing was done: a sentence without its subject, which is the process."""
    freed_bytes: Figure = None
    """Reserved bytes that were given back to the device."""


class DemandRefused(msgspec.Struct, frozen=True, tag_field="kind", tag="refused"):
    """A demand is not met."""

    v: int
    request: Count
    reason: str
    """A sentence without its subject, which is the process."""


class OutOfMemoryMet(msgspec.Struct, frozen=True, tag_field="kind", tag="oom"):
    """An out-of-memory error was raised."""

    v: int
    time_s: float
    size_bytes: Figure = None
    """Bytes of the request that failed."""
    flight_record: str | None = None
    """Path of the record; None where it could not be written."""
    reason: str | None = None
    """Why there is no record, in one sentence."""


class Goodbye(msgspec.Struct, frozen=True, tag_field="kind", tag="goodbye"):
    """The probe ends: the process exits, or it was told to detach."""

    v: int
    reason: Literal["exit", "detached"]


ProbeMessage = (
    Hello
    | Readings
    | Steps
    | ModelState
    | SegmentsPart
    | ModulesPart
    | AdviceTaken
    | DemandRefused
    | OutOfMemoryMet
    | Goodbye
)


class ProbedSegments(msgspec.Struct, frozen=True):
    """The content of a segment map as the probe packs it; field for field what `SegmentMap` needs."""

    time_s: float
    segments: tuple[tuple[int, int, int, int, bool, bool, tuple[tuple[int, int], ...]], ...]
    """Address, total bytes, pool (0 small, 1 large), stream, expandable, private, blocks (bytes, state)."""
    left_out: int = 0
    live_stacks: tuple[tuple[int, int, tuple[tuple[str, int, str], ...]], ...] = ()
    """Bytes, count, frames (file, line, function; innermost first); largest first."""
    is_at_step_end: bool = False
    """Taken by the thread that trains, between two steps."""


class Demand(msgspec.Struct, frozen=True):
    """What a hub asks of a probe."""

    v: int
    kind: DemandKind
    request: int = 0
    is_on: bool = True
    """For `history`: record allocations with their stacks, or stop."""
    seconds: float | None = None
    """For `history`: how long at most. For the others: how long to wait for the end of a step."""
    action: AdviceAction | None = None
    """For `advise`."""
    reason: str | None = None
    """For `advise`: why, in one sentence."""
