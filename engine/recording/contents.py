"""What a recording holds besides samples, in frozen structs."""

from typing import Literal

import msgspec

from ..model import Assessment, DeviceKind, DeviceSample, Finding

EventKind = Literal[
    "recording_started",
    "recording_stopped",
    "hub_restarted",
    "source_changed",
    "samples_dropped",
    "rank_attached",
    "rank_ended",
    "oom",
    "device_state",
    "step",
    "phase",
]
"""`step` and `phase` are read from the samples when they are asked for; all others are kept as events."""


class ImportedFile(msgspec.Struct, frozen=True):
    """A file of another tool that a recording was made of."""

    path: str
    """As it was given."""
    format: str
    """What its content says that it is, as `series CSV`."""
    clock: Literal["wall", "trace"]
    """`wall`: seconds since the epoch; `trace`: seconds since a start of its own."""
    is_simulated: bool | None = None
    """Whether its figures are of a simulation; None where the format does not tell."""
    notes: tuple[str, ...] = ()
    """What was left out or reinterpreted and why, in sentences."""


class RecordingIdentity(msgspec.Struct, frozen=True):
    """Of what a recording is, and by what it was made."""

    node: str
    """Node of the first sample; more may follow."""
    created_s: float
    """Wall clock in seconds since the epoch."""
    version: str
    """Version of vramscope that made the file."""
    interval_s: float | None = None
    """From one sample to the next, as the settings said; None where the agent decided."""
    memory_interval_s: float | None = None
    jobs: tuple[str, ...] = ()
    """Jobs of `vramscope run` that were seen, at most the first 64."""
    series: str = ""
    """Random; the files of one `--rotate` have it in common."""
    number: int = 0
    """Place of the file in its series."""
    imported: tuple[ImportedFile, ...] = ()
    """Files that it was made of; empty where it was measured."""


class RecordingEvent(msgspec.Struct, frozen=True):
    """Something that happened at one moment."""

    kind: EventKind
    time_s: float
    """Time of the sample that told it, in the samples' own clock."""
    node: str
    text: str
    """What happened, in a few words."""
    device_uuid: str | None = None
    pid: int | None = None
    rank: int | None = None
    step: int | None = None
    count: int | None = None
    """How many, where something was counted."""


class RecordedDevice(msgspec.Struct, frozen=True):
    """A device as it was when it was first recorded."""

    id: int
    node: str
    uuid: str
    index: int
    label: str
    kind: DeviceKind
    name: str | None = None
    total_bytes: int | None = None


class OverviewMinute(msgspec.Struct, frozen=True):
    """One device in one minute of the samples' own clock; None was not measured."""

    start_s: float
    node: str
    device_uuid: str
    samples: int
    used_min_bytes: int | None
    used_max_bytes: int | None
    allocated_max_bytes: int | None


class Told(msgspec.Struct, frozen=True):
    """What analyzers said between one sample and the next."""

    tick: int
    """Number of the newest sample then."""
    time_s: float
    """Its time."""
    findings: tuple[Finding, ...] = ()
    """Those that opened, changed or closed."""
    assessments: tuple[Assessment, ...] | None = None
    """All that stood; None where none had changed."""


class Damage(msgspec.Struct, frozen=True):
    """What of a recording could not be read and was left out."""

    blocks: int = 0
    samples: int = 0
    """Samples of those blocks, as the index counts them."""
    rows: int = 0
    """Other rows: newest samples, findings, events, minutes of the overview."""
    tail_lost: bool = False
    """Whether the newest seconds, which stand in a file beside it, could not be opened."""

    @property
    def sentence(self) -> str | None:
        """What is missing, in one sentence; None where nothing is."""
        blocks = _count(self.blocks, "damaged block")
        rows = _count(self.rows, "damaged row")
        parts = [f"{blocks} with {_count(self.samples, 'sample')}"] if self.blocks else []
        parts += [rows] if self.rows else []
        parts += ["the newest seconds, whose file (-wal) cannot be opened"] if self.tail_lost else []
        return f"left out: {', '.join(parts)}" if parts else None


def describe_device(number: int, node: str, device: DeviceSample) -> RecordedDevice:
    """Return a device as it is kept beside the samples."""
    return RecordedDevice(
        number,
        node,
        device.uuid,
        device.index,
        device.label,
        device.kind,
        device.name,
        device.memory.total_bytes,
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
