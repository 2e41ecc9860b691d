"""What the probe wrote down at an out-of-memory error. None means unmeasured; never 0 or a guess."""

import msgspec

from .sample import LiveStack, ModelStateReading, RankCoordinates, Segment

OF_TEXT = "text"
"""`FlightRecord.reason` where nothing was recorded and only a text tells of the error."""


class FlightProcess(msgspec.Struct, frozen=True):
    """The training process that failed."""

    pid: int | None = None
    started_s: float | None = None
    argv: tuple[str, ...] = ()
    python: str | None = None
    torch: str | None = None
    backend: str | None = None
    is_simulated: bool = False
    coordinates: RankCoordinates | None = None


class FlightDevice(msgspec.Struct, frozen=True):
    """The device on which it failed."""

    uuid: str | None = None
    index: int | None = None
    name: str | None = None
    total_bytes: int | None = None


class FlightFailure(msgspec.Struct, frozen=True):
    """The request that failed."""

    size_bytes: int | None = None
    device_free_bytes: int | None = None
    device_used_bytes: int | None = None
    """All that was used on the device, other processes included."""
    message: str = ""
    stack: tuple[tuple[str, int, str], ...] = ()
    """File, line and function, innermost first."""


class FlightSample(msgspec.Struct, frozen=True, gc=False):
    """The allocator's statistics at one moment before the failure."""

    time_s: float | None = None
    """Wall clock in seconds since the epoch."""
    allocated_bytes: int | None = None
    requested_bytes: int | None = None
    active_bytes: int | None = None
    reserved_bytes: int | None = None
    inactive_split_bytes: int | None = None
    retries: int | None = None
    ooms: int | None = None
    step: int | None = None


class FlightStep(msgspec.Struct, frozen=True, gc=False):
    """One training step before the failure."""

    index: int
    start_s: float | None = None
    duration_s: float | None = None
    floor_bytes: int | None = None
    peak_bytes: int | None = None
    is_peak_exact: bool = False


class FlightTruncation(msgspec.Struct, frozen=True, gc=False):
    """How many of each were left out, so that the file stays small."""

    samples: int = 0
    segments: int = 0
    blocks: int = 0


class FlightRecord(msgspec.Struct, frozen=True):
    """One file, `vramscope.flight/1`."""

    written_s: float | None = None
    reason: str | None = None
    process: FlightProcess = FlightProcess()
    device: FlightDevice = FlightDevice()
    failure: FlightFailure = FlightFailure()
    samples: tuple[FlightSample, ...] = ()
    """Oldest first."""
    steps: tuple[FlightStep, ...] = ()
    """Oldest first."""
    model_state: ModelStateReading | None = None
    stats: dict[str, float] = {}
    """`torch.cuda.memory_stats` as it was."""
    segments: tuple[Segment, ...] = ()
    live_stacks: tuple[LiveStack, ...] = ()
    """Largest first."""
    truncated: FlightTruncation = FlightTruncation()
    notes: tuple[str, ...] = ()
    allocator_settings: str | None = None
    """`PYTORCH_ALLOC_CONF` of the process; empty where it was not set."""
    file: str = ""
    """Name of the file."""
