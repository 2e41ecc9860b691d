"""Beats: from each sample of a subject the least and the most it held since the one before.

A training process with steps beats once a tick in which steps ended, with the floor and the peak of those
steps. Anything else beats with every sample, at some moment of a step that nobody knows.
"""

from typing import Literal, NamedTuple

from ...engine.model import RankSample
from ..subjects import Subject

BeatKind = Literal["step", "sample", "device", "host"]
"""`step`: bounds of whole steps; `sample`: allocated bytes at any moment; `device`: device used, no more;
`host`: resident host memory."""

SECTOR_BYTES = 512
"""The history ring keeps figures of processes rounded up to this; decisions see no finer ones either."""


class Beat(NamedTuple):
    """One reading in time."""

    time_s: float
    low_bytes: int
    high_bytes: int
    steps: int
    """Steps it stands for; 0 where that is unknown."""
    step: int | None
    """Number of the newest step."""
    kind: BeatKind
    reserved_bytes: int = 0
    """Held by the allocator; 0 where that is unknown."""
    split_bytes: int = 0
    """Free beside live blocks (`inactive_split_bytes`); 0 where that is unknown."""


def read_beat(subject: Subject) -> Beat | None:
    """Return what a sample says of a subject's floor; None where it says nothing new."""
    if subject.rank is not None and subject.rank.step is not None:
        return _read_steps(subject, subject.rank)
    allocator = subject.allocator
    if allocator.allocated_bytes is not None:
        low = round_sector(allocator.allocated_bytes)
        high = round_sector(allocator.allocated_max_bytes or 0)
        reserved = allocator.reserved_bytes or 0
        return Beat(subject.sample.time_s, low, max(low, high), 0, subject.step, "sample", reserved)
    return _read_device(subject)


def round_sector(value: int) -> int:
    """Return bytes rounded up to whole sectors."""
    return -(-value // SECTOR_BYTES) * SECTOR_BYTES


def _read_steps(subject: Subject, rank: RankSample) -> Beat | None:
    if not rank.steps_within or rank.floor_min_bytes is None:
        return None
    low = round_sector(rank.floor_min_bytes)
    high = rank.peak_max_bytes
    if high is None:
        high = subject.allocator.allocated_max_bytes
    most = low if high is None else max(low, round_sector(high))
    reserved = round_sector(subject.allocator.reserved_bytes or 0)
    split = round_sector(subject.allocator.inactive_split_bytes or 0)
    return Beat(subject.sample.time_s, low, most, rank.steps_within, subject.step, "step", reserved, split)


def _read_device(subject: Subject) -> Beat | None:
    if subject.device is None or subject.device.memory.used_bytes is None:
        return None
    memory = subject.device.memory
    used = subject.device.memory.used_bytes
    high = memory.used_max_bytes
    return Beat(subject.sample.time_s, used, used if high is None else max(used, high), 0, None, "device")
