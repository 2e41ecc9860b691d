"""Messages of training processes, and their bounds."""

import base64
import binascii
import zlib
from typing import Annotated, Final, Literal

import msgspec

from ..errors import WireError
from ..model import AdviceAction, Backend, LiveStack, RankCoordinates, Segment, SegmentMap

# The socket is of the kind SOCK_SEQPACKET: one packet is one message, a JSON object of at most 64 KiB with
# its version and kind. The probe is pure standard library and speaks the same words from
# `engine/probe/wire.py`. An unknown newer field is ignored; a message of a newer version is refused, and
# the sample's notes say so.

PROBE_PROTOCOL: Final = 1
PROBE_SOCKET_NAME: Final = "probe.sock"
MAX_PACKET_BYTES: Final = 64 * 1024

# Larger than any memory; a larger value was not measured and fits no column of history.
MAX_FIGURE: Final = 2**62

# Send a segment map; detach from the process; record stacks, or stop; profile modules for a few steps; do
# something about memory at the end of a step.
DemandKind = Literal["segments", "detach", "history", "modules", "advise"]

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_FIGURE)]
Figure = Count | None

# Wall time in s, then bytes allocated, requested, active, reserved, inactive split; retries, OOMs; bytes
# pinned on the host, bytes resident.
ReadingRow = tuple[float, Figure, Figure, Figure, Figure, Figure, Figure, Figure, Figure, Figure]

# Index, wall time of the end, duration in s, floor and peak in bytes, whether the peak is exact.
StepRow = tuple[Count, float, float | None, Figure, Figure, bool]

# Index of a step, and tokens and samples of its largest micro-batch from the program.
SizeRow = tuple[Count, Figure, Figure]


# Name of a part, its calls so far; of the newest measured call: wall time of the end, duration in s, bytes
# allocated and reserved before, the same after, peak, whether that is exact; the most of all calls, and
# whether that is exact.
PhaseRow = tuple[str, Count, float, float | None, Figure, Figure, Figure, Figure, Figure, bool, Figure, bool]


class ProbedDevice(msgspec.Struct, frozen=True):
    """The device that a training process uses, as far as the process itself knows."""

    # Ordinal within the process, after CUDA_VISIBLE_DEVICES.
    index: Count
    # In NVML's form (`GPU-…`, `MIG-…`); `sim-<job>-<index>` for a simulated device.
    uuid: str | None = None
    name: str | None = None
    total_bytes: Figure = None
    pci_bus_id: str | None = None


class Hello(msgspec.Struct, frozen=True, tag_field="kind", tag="hello"):
    """Who reports; sent first on every connection, and again whole whenever any of it changed."""

    v: int
    # As the process itself sees it; the hub goes by the socket's peer credentials.
    pid: int
    started_s: float | None = None
    command: str | None = None
    job: str | None = None
    python: str | None = None
    torch: str | None = None
    jax: str | None = None
    backend: Backend | None = None
    is_simulated: bool = False
    device: ProbedDevice | None = None
    coordinates: RankCoordinates | None = None
    capacity_bytes: Figure = None
    context_bytes: Figure = None
    allocator_settings: str | None = None
    notes: tuple[str, ...] = ()
    # Kinds of demands that it understands; the default are those of the first version, which did not say.
    demands: tuple[str, ...] = ("segments", "detach", "history")


class Readings(msgspec.Struct, frozen=True, tag_field="kind", tag="readings"):
    """Readings of the allocator since the last message, oldest first; at most ten a second."""

    v: int
    rows: tuple[ReadingRow, ...]
    # Lost since the start of the process, because no hub took them.
    dropped: Count = 0
    phase: str | None = None
    memory_history: Literal["off", "on", "user"] = "off"
    # Since the start of the process, at the newest of these readings; `frees` too.
    allocations: Figure = None
    frees: Figure = None


class Steps(msgspec.Struct, frozen=True, tag_field="kind", tag="steps"):
    """Steps that ended since the last message."""

    v: int
    rows: tuple[StepRow, ...]
    # Steps whose size is known.
    sizes: tuple[SizeRow, ...] = ()
    # Named parts with a measured call since, by name.
    phases: tuple[PhaseRow, ...] = ()


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
    # Base64 of a piece of the zlib-compressed JSON of a `ProbedSegments`.
    data: str


class ModulesPart(msgspec.Struct, frozen=True, tag_field="kind", tag="modules"):
    """One part of a profile by module that was asked for."""

    v: int
    request: Count
    part: Count
    parts: Count
    # Base64 of a piece of the zlib-compressed text of a `module_memory.jsonl`.
    data: str


class AdviceTaken(msgspec.Struct, frozen=True, tag_field="kind", tag="advised"):
    """Outcome of an advice at the end of a step."""

    v: int
    request: Count
    is_obeyed: bool
    # Its effect, or why nothing was done: a sentence without its subject, which is the process.
    outcome: str
    # Reserved bytes that the device got back.
    freed_bytes: Figure = None


class DemandRefused(msgspec.Struct, frozen=True, tag_field="kind", tag="refused"):
    """A demand is not met."""

    v: int
    request: Count
    # A sentence without its subject, which is the process.
    reason: str


class OutOfMemoryMet(msgspec.Struct, frozen=True, tag_field="kind", tag="oom"):
    """An out-of-memory error was raised."""

    v: int
    time_s: float
    # Size of the request that failed.
    size_bytes: Figure = None
    # Path of the record; None if it could not be written.
    flight_record: str | None = None
    # Why there is no record, in one sentence.
    reason: str | None = None


class Goodbye(msgspec.Struct, frozen=True, tag_field="kind", tag="goodbye"):
    """The probe ends: the process exits, or it was detached."""

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
    # Address, total bytes, pool (0 small, 1 large), stream, expandable, private, blocks (bytes, state).
    segments: tuple[tuple[int, int, int, int, bool, bool, tuple[tuple[int, int], ...]], ...]
    left_out: int = 0
    # Bytes, count, frames (file, line, function; innermost first); largest first.
    live_stacks: tuple[tuple[int, int, tuple[tuple[str, int, str], ...]], ...] = ()
    # Taken by the thread that trains, between two steps.
    is_at_step_end: bool = False


class Demand(msgspec.Struct, frozen=True):
    """What a hub asks of a probe."""

    v: int
    kind: DemandKind
    request: int = 0
    # For `history`: record allocations with their stacks, or stop.
    is_on: bool = True
    # For `history`: how long at most. For the others: how long to wait for the end of a step.
    seconds: float | None = None
    # For `advise`.
    action: AdviceAction | None = None
    # For `advise`: why, in one sentence.
    reason: str | None = None


# A hub never looks inside: a process that packs nonsense, or very much, costs the hub neither time nor
# memory.

MAX_PARTS = 256
MAX_PACKED_BYTES = 8 * 1024**2
MAX_UNPACKED_BYTES = 32 * 1024**2

_CONTENT = msgspec.json.Decoder(ProbedSegments)


class PackedSegments(msgspec.Struct, frozen=True):
    """The segment map of one process as its probe packed it."""

    node: str
    pid: int
    device_uuid: str | None
    # The zlib-compressed JSON of a `ProbedSegments`.
    data: bytes


class PartAssembly:
    """The parts of one answer, in whatever order they come."""

    def __init__(self, what: str = "a segment map") -> None:
        self._what = what
        self._pieces: dict[int, str] = {}
        self._parts: int | None = None
        self._chars = 0

    def add(self, part: SegmentsPart | ModulesPart) -> bytes | None:
        """Add one part; return the packed answer once it is whole."""
        if self._parts is None:
            self._parts = part.parts
        if part.parts != self._parts or not part.part < part.parts <= MAX_PARTS:
            raise WireError(f"sent part {part.part} of {part.parts} of {self._what}; at most {MAX_PARTS} fit")
        self._chars += len(part.data) - len(self._pieces.get(part.part, ""))
        if self._chars > MAX_PACKED_BYTES * 4 // 3:
            raise WireError(f"sent {self._what} of more than {MAX_PACKED_BYTES} bytes")
        self._pieces[part.part] = part.data
        if len(self._pieces) < part.parts:
            return None
        try:
            return base64.b64decode("".join(self._pieces[n] for n in range(part.parts)), validate=True)
        except (binascii.Error, ValueError) as error:
            raise WireError(f"sent {self._what} that is not base64: {error}") from error


def unpack_segments(packed: PackedSegments) -> SegmentMap:
    """Unpack the segment map of a probe.

    Raises:
        WireError: It is not what it should be, or larger than `MAX_UNPACKED_BYTES`.
    """
    content = _decode(packed)
    return SegmentMap(
        node=packed.node,
        pid=packed.pid,
        device_uuid=packed.device_uuid,
        time_s=content.time_s,
        segments=tuple(
            Segment(address, total, "large" if pool else "small", stream, blocks, is_expandable, is_private)
            for address, total, pool, stream, is_expandable, is_private, blocks in content.segments
        ),
        segments_left_out=content.left_out,
        live_stacks=tuple(LiveStack(*stack) for stack in content.live_stacks),
        is_at_step_end=content.is_at_step_end,
    )


def _decode(packed: PackedSegments) -> ProbedSegments:
    where = f"the segment map of process {packed.pid}"
    text = inflate(packed.data, where)
    try:
        return _CONTENT.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"{where} cannot be read: {error}") from error


def inflate(data: bytes, where: str) -> bytes:
    """Decompress the data of a probe.

    Args:
        where: What it is, for errors.

    Raises:
        WireError: It is not zlib data, cut short, or larger than `MAX_UNPACKED_BYTES`.
    """
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(data, MAX_UNPACKED_BYTES)
    except zlib.error as error:
        raise WireError(f"{where} cannot be read: {error}") from error
    if inflater.unconsumed_tail or not inflater.eof:
        raise WireError(f"{where} is cut short, or larger than {MAX_UNPACKED_BYTES} bytes")
    return text
