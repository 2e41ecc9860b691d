"""A training process of the newest figures that an agent served of it."""

from typing import cast

from ..model import Backend, RankCoordinates, RankSample, StepReading
from .devices import read_allocator
from .readings import Subject, parse_whole

_BACKENDS = ("cuda", "rocm", "xpu", "mps", "cpu")


def read_rank(pid: str, subject: Subject, time_s: float, since_s: float) -> RankSample | None:
    """Return a process at a moment; None where it is gone, or its id is none.

    Args:
        pid: Its process id.
        subject: Its figures.
        time_s: The moment.
        since_s: A figure that is older than this is not of the present.
    """
    up = subject.read("up", since_s)
    number = parse_whole(pid)
    if up is None or number is None:
        return None
    backend = subject.info.get("backend")
    return RankSample(
        pid=number,
        job=subject.info.get("run") or None,
        device_uuid=subject.label("uuid"),
        backend=cast(Backend, backend) if backend in _BACKENDS else None,
        is_simulated=subject.info.get("simulated") == "true",
        coordinates=_read_coordinates(subject),
        state="ok" if up else "stale",
        reason=None if up else "its agent has not heard of it for a while",
        age_s=max(0.0, time_s - (subject.newest_s(("allocated",)) or time_s)),
        allocator=read_allocator(subject, since_s),
        capacity_bytes=subject.read_bytes("capacity", since_s),
        step=_read_step(subject, time_s, since_s),
    )


def _read_coordinates(subject: Subject) -> RankCoordinates | None:
    rank = parse_whole(subject.label("rank"))
    if rank is None:
        return None
    names = ("world_size", "tp", "pp", "dp")
    world_size, tp, pp, dp = (parse_whole(subject.info.get(name)) for name in names)
    cp, ep = parse_whole(subject.info.get("cp")), parse_whole(subject.info.get("ep"))
    return RankCoordinates(rank, world_size, tp=tp, pp=pp, dp=dp, cp=cp, ep=ep)


def _read_step(subject: Subject, time_s: float, since_s: float) -> StepReading | None:
    """Return the newest step; when it ended within the scrape is not known, so its scrape stands for it."""
    index = subject.read_bytes("step", since_s)
    if index is None:
        return None
    floor, peak = (subject.read_bytes(name, since_s) for name in ("floor", "peak"))
    return StepReading(index, time_s, subject.read("duration", since_s), floor, peak)
