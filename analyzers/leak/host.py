"""The memory of a host as a whole: what is taken on it, and by none of the processes that report.

Page-locked buffers, files in a tmpfs or in shared memory, data loader workers and other programs belong to no
process that reports. What those that do report hold is subtracted, so that a process that leaks is told by
itself and not twice. Page cache is not counted: used is what the kernel could not make available
(MemTotal - MemAvailable, proc_meminfo(5)).
"""

from collections.abc import Iterator

from ...engine.model import Finding, Sample
from ..floors.beat import Beat, round_sector
from ..floors.episode import Episode
from .owner import HOST_LEAK, Owner, OwnerKey
from .track import LeakTrack

SOON_S = 86_400.0
"""A host that has more time than this is left alone: nobody can be named, and much may happen on it."""


class HostTrack(LeakTrack):
    """The growth of a host, told only where it would be full within a day."""

    def _state(self, owner: Owner, episode: Episode, time_s: float) -> Iterator[Finding]:
        left_s = self._measure(owner, episode, time_s).time_left_s
        if self.finding is not None or (left_s is not None and left_s < SOON_S):
            yield from super()._state(owner, episode, time_s)


def hosts_of(sample: Sample) -> Iterator[tuple[Owner, Beat, int]]:
    """Yield the host where its memory is known, with its beat and the most that it can reach in bytes."""
    host = sample.host
    if host is None or host.used_bytes is None or host.total_bytes is None:
        return
    explained = sum(
        [round_sector(rank.resident_bytes or 0) for rank in sample.ranks if rank.state != "ended"]
    )
    rest = max(0, round_sector(host.used_bytes) - explained)
    owner = Owner(HOST_LEAK, sample.node, None, None, None, None, "the host")
    beat = Beat(sample.time_s, rest, rest, 0, None, "host")
    yield owner, beat, max(rest, host.total_bytes - explained)


def make_track(key: OwnerKey) -> LeakTrack:
    """Return a track for an owner that was not seen before."""
    kind, _, _, pid, _ = key
    return HostTrack() if kind == HOST_LEAK and pid is None else LeakTrack()
