"""Training processes in a ring: the few columns by which analyzers decide, and who they are of."""

import msgspec

from ..model import AllocatorReading, Backend, RankCoordinates, RankSample, RankState
from .ring import ColumnRing

RANK_STATES: tuple[RankState, ...] = ("ok", "stale", "ended")
MAX_RANKS = 64
"""Processes that a ring holds, or as many as run at once; the one not seen for the longest goes first."""
_MAX_RETRIES, _MAX_OOMS = 2**31 - 1, 2**15 - 1


class RankHeader(msgspec.Struct, frozen=True):
    """What a ring keeps of a training process beside its columns, as it was last seen."""

    pid: int
    started_s: float | None = None
    job: str | None = None
    device_uuid: str | None = None
    backend: Backend | None = None
    is_simulated: bool = False
    coordinates: RankCoordinates | None = None
    flight_record: str | None = None
    oom_s: float | None = None
    oom_size_bytes: int | None = None
    notes: tuple[str, ...] = ()


def rank_key(rank: RankSample) -> str:
    """Return where a process stands among the devices of a ring."""
    return f"rank:{rank.pid}:{rank.started_s}"


def rank_header_of(rank: RankSample) -> RankHeader:
    """Return what the ring keeps of a process beside its columns."""
    return RankHeader(
        rank.pid,
        rank.started_s,
        rank.job,
        rank.device_uuid,
        rank.backend,
        rank.is_simulated,
        rank.coordinates,
        rank.flight_record,
        rank.oom_s,
        rank.oom_size_bytes,
        rank.notes,
    )


def rank_values_of(rank: RankSample) -> dict[str, int]:
    """Return the columns of one process in one tick."""
    values = {"state": RANK_STATES.index(rank.state)}
    allocator = rank.allocator or AllocatorReading()
    if allocator.retries is not None:
        values["retries"] = min(allocator.retries, _MAX_RETRIES)
    if allocator.ooms is not None:
        values["ooms"] = min(allocator.ooms, _MAX_OOMS)
    return values


def ranks_of(ring: ColumnRing, headers: dict[str, RankHeader], position: int) -> tuple[RankSample, ...]:
    """Return the processes of one tick, with the fields that the ring keeps."""
    found = ((ring.value(key, "state", position), key, header) for key, header in headers.items())
    return tuple(
        RankSample(
            pid=header.pid,
            started_s=header.started_s,
            job=header.job,
            device_uuid=header.device_uuid,
            backend=header.backend,
            is_simulated=header.is_simulated,
            coordinates=header.coordinates,
            state=RANK_STATES[state],
            allocator=AllocatorReading(
                retries=ring.value(key, "retries", position), ooms=ring.value(key, "ooms", position)
            ),
            flight_record=header.flight_record,
            oom_s=header.oom_s,
            oom_size_bytes=header.oom_size_bytes,
            notes=header.notes,
        )
        for state, key, header in found
        if state is not None
    )
