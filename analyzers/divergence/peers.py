"""Who should be alike: ranks of one job and pipeline stage in one sample, and what each told in it."""

from typing import NamedTuple

from ...engine.model import RankCoordinates, Sample
from ..subjects import Subject, subjects_of

GroupKey = tuple[str, str, int | None]
"""Node, job, and pipeline stage where it is known."""


class Told(NamedTuple):
    """What one rank told in one sample."""

    subject: Subject
    number: int
    """Its rank in the world."""
    floor_bytes: int | None
    """None in a sample in which none of its steps ended."""
    peak_bytes: int | None


def find_peers(sample: Sample) -> dict[GroupKey, list[Told]]:
    """Return the groups of one sample with at least one rank each.

    A process belongs to its job, or, where it was attached to, to those that tell the same size of the world.
    Recorded ranks of one sample are one job. Devices of which nobody knows the rank have no peers; nor have
    processes of which two say that they are the same rank, since those are of different jobs.
    """
    groups: dict[GroupKey, list[Told]] = {}
    for subject in subjects_of(sample):
        coordinates = _find_coordinates(subject)
        job = None if coordinates is None else _find_job(subject, coordinates)
        if coordinates is not None and job is not None:
            groups.setdefault((sample.node, job, coordinates.pp), []).append(_read(subject, coordinates.rank))
    return {key: told for key, told in groups.items() if len({one.number for one in told}) == len(told)}


def has_peers(sample: Sample) -> bool:
    """Return whether there can be a group of two at all."""
    return len(sample.ranks) > 1 or (len(sample.devices) > 1 and sample.devices[0].rank is not None)


def _find_coordinates(subject: Subject) -> RankCoordinates | None:
    if subject.rank is not None:
        return subject.rank.coordinates
    return None if subject.device is None else subject.device.rank


def _find_job(subject: Subject, coordinates: RankCoordinates) -> str | None:
    if subject.rank is None:
        return "trace"
    if subject.rank.job is not None:
        return subject.rank.job
    world = coordinates.world_size
    return None if world is None or world < 2 else f"world of {world}"


def _read(subject: Subject, number: int) -> Told:
    allocator, rank = subject.allocator, subject.rank
    instant, most = allocator.allocated_bytes, allocator.allocated_max_bytes
    if rank is not None and rank.step is not None:
        floor, peak = rank.floor_min_bytes, rank.peak_max_bytes
    else:
        floor, peak = instant, None
    known = [value for value in (peak, most, instant) if value is not None]
    return Told(subject, number, _round(floor), max((_round(value) or 0 for value in known), default=None))


def _round(value_bytes: int | None) -> int | None:
    """Return bytes as the history ring keeps those of a process: rounded up to 512."""
    return None if value_bytes is None else -(-value_bytes // 512) * 512
