"""Advice to running processes before an error: to few of them, seldom, and only what can help.

Giving a cache back never helps the process that gives: its own allocator does that before it fails. It helps
others on the same device, and libraries that allocate outside the allocator. A long batch can be skipped only
where the program reports the sizes of its steps, so that the largest that fits is known.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...engine.model import AdviceAction
from ...engine.units import MIB, format_bytes, format_left
from ..risk import LEVELS
from .model import ClusterPicture, ClusterRank, RankKey

# Errors forecast for later than this are left to people.
SOON_S = 600.0
# A process is asked the same thing at most once in so long.
AGAIN_S = 600.0
# Cache that is worth giving back: share of the device's memory, and at least so many bytes.
WORTH_SHARE = 0.02
WORTH_BYTES = 256 * MIB
# Free share of a device below which libraries outside the allocator find no room.
FULL_SHARE = 0.05
_HIGH = LEVELS.index("high")


class Advice(NamedTuple):
    rank: ClusterRank
    # Key of its job, or of the job that it would help.
    job: str
    action: AdviceAction
    # Why, in one sentence.
    reason: str


class Adviser:
    """Decides which processes to advise; it sends nothing."""

    def __init__(self) -> None:
        self._asked_s: dict[tuple[RankKey, AdviceAction], float] = {}

    def decide(self, picture: ClusterPicture) -> list[Advice]:
        """Return new advice; a process advised recently is left out. Pictures come in the order of time."""
        found = []
        for advice in find_advice(picture):
            key = (advice.rank.key, advice.action)
            if picture.time_s - self._asked_s.get(key, float("-inf")) >= AGAIN_S:
                self._asked_s[key] = picture.time_s
                found.append(advice)
        self._asked_s = {key: at_s for key, at_s in self._asked_s.items() if picture.time_s - at_s < AGAIN_S}
        return found


def find_advice(picture: ClusterPicture) -> Iterator[Advice]:
    """Yield all that could help at a moment, each process and action once."""
    seen = set()
    for job, rank in _list_ranks(picture):
        if _is_threatened(rank, picture.time_s):
            for advice in _help(rank, job, picture):
                key = (advice.rank.key, advice.action)
                if key not in seen:
                    seen.add(key)
                    yield advice


def _is_threatened(rank: ClusterRank, now_s: float) -> bool:
    is_high = LEVELS.index(rank.level) >= _HIGH and not rank.is_old
    return is_high and rank.oom_s is not None and rank.oom_s - now_s <= SOON_S


def _help(rank: ClusterRank, job: str, picture: ClusterPicture) -> Iterator[Advice]:
    left = format_left((rank.oom_s or 0.0) - picture.time_s)
    for neighbour in _find_neighbours(rank, picture):
        cache = find_cache(neighbour)
        if cache is not None and cache >= _worth(neighbour):
            reason = f"{rank.name} on the same device may run out of memory in {left}"
            yield Advice(
                neighbour, job, "empty_cache", f"{reason}; {format_bytes(cache)} of cache here are not needed"
            )
    cache = find_cache(rank)
    free = rank.device_free_bytes
    is_full = free is not None and free < FULL_SHARE * (rank.device_total_bytes or 0)
    if cache is not None and cache >= _worth(rank) and is_full:
        reason = f"the device is full, and {format_bytes(cache)} of the cache are not needed"
        yield Advice(
            rank, job, "empty_cache", f"{reason}: libraries outside the allocator, such as NCCL, need room"
        )
    # Steps as long as some that were seen would no longer fit.
    short = [
        it
        for it in rank.headroom
        if it.reason is None
        and it.largest_size is not None
        and it.largest_seen is not None
        and it.largest_size < it.largest_seen
    ]
    if short:
        size = short[0]
        reason = f"out of memory expected in {left}; {size.fitting} would fit"
        yield Advice(
            rank, job, "skip_long_batch", f"{reason}, and steps of up to {size.largest_seen:,.0f} were seen"
        )


def _find_neighbours(rank: ClusterRank, picture: ClusterPicture) -> Iterable[ClusterRank]:
    for _, it in _list_ranks(picture) if rank.device_uuid is not None else ():
        is_on_device = it.key.node == rank.key.node and it.device_uuid == rank.device_uuid
        if is_on_device and it.key != rank.key and not it.is_old:
            yield it


def _list_ranks(picture: ClusterPicture) -> Iterator[tuple[str, ClusterRank]]:
    """Yield every process with the key of its job."""
    for job in picture.jobs:
        for rank in job.ranks:
            yield job.key, rank
    for rank in picture.others:
        yield rank.job or "", rank


def find_cache(rank: ClusterRank) -> int | None:
    """Return the bytes that an allocator could give back and no step needs; None where unknown."""
    if rank.reserved_bytes is None or rank.allocated_bytes is None:
        return None
    held = rank.allocated_bytes + (rank.inactive_split_bytes or 0)
    return max(0, rank.reserved_bytes - max(held, rank.peak_bytes or 0))


def _worth(rank: ClusterRank) -> float:
    return max(WORTH_SHARE * (rank.device_total_bytes or 0), WORTH_BYTES)
