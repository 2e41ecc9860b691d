"""Who leaks: a process, a device or a host that is known as a whole, or the host memory of a process."""

from collections.abc import Iterator
from typing import NamedTuple

from ...engine.model import HostSample, RankSample, Sample
from ...engine.units import GIB
from ..floors.beat import Beat, read_beat, round_sector
from ..rank_names import name_rank
from ..subjects import subjects_of

LEAK = "leak"
HOST_LEAK = "host_leak"
KINDS = (LEAK, HOST_LEAK)

HOST_HEADROOM_BYTES = 8 * GIB
"""A process that holds less is judged as if it had this much room to grow, or as much as it holds."""

OwnerKey = tuple[str, str, str | None, int | None, float | None]
"""Kind of finding, node, UUID of the device, process id and start time."""


class Owner(NamedTuple):
    """Whom a finding is about, as its newest sample says."""

    kind: str
    node: str
    device_uuid: str | None
    device: str | None
    """Label of the device."""
    pid: int | None
    started_s: float | None
    name: str

    @property
    def key(self) -> OwnerKey:
        """What tells it from others."""
        return self.kind, self.node, self.device_uuid, self.pid, self.started_s

    @property
    def is_host(self) -> bool:
        """Whether it is a host as a whole."""
        return self.kind == HOST_LEAK and self.pid is None


def owners_of(sample: Sample) -> Iterator[tuple[Owner, Beat | None, int | None]]:
    """Yield who is there, with the beat, if there is one, and the most that it can reach in bytes."""
    for subject in subjects_of(sample):
        rank = subject.rank
        device = subject.device
        yield (
            Owner(
                LEAK,
                sample.node,
                subject.device_uuid,
                None if device is None else device.label,
                None if rank is None else rank.pid,
                None if rank is None else rank.started_s,
                subject.name,
            ),
            read_beat(subject),
            subject.limit_bytes,
        )
    for rank in sample.ranks:
        if rank.state == "ok" and rank.resident_bytes is not None:
            yield _host_owner(sample, rank), _host_beat(sample, rank), _host_limit(sample.host, rank)


def listed_keys(sample: Sample) -> set[OwnerKey]:
    """Return who is listed and has not ended, though nothing new may be known of them."""
    node = sample.node
    found: set[OwnerKey] = {(HOST_LEAK, node, None, None, None)}
    found |= {
        (LEAK, node, device.uuid, None, None)
        for device in sample.devices
        if device.state not in ("lost", "ended")
    }
    for rank in sample.ranks:
        if rank.state != "ended":
            found |= {(kind, node, rank.device_uuid, rank.pid, rank.started_s) for kind in KINDS}
    return found


def _host_owner(sample: Sample, rank: RankSample) -> Owner:
    labels = {device.uuid: device.label for device in sample.devices}
    label = labels.get(rank.device_uuid or "")
    return Owner(HOST_LEAK, sample.node, rank.device_uuid, label, rank.pid, rank.started_s, name_rank(rank))


def _host_beat(sample: Sample, rank: RankSample) -> Beat:
    resident = round_sector(rank.resident_bytes or 0)
    step = None if rank.step is None else rank.step.index
    return Beat(sample.time_s, resident, resident, rank.steps_within, step, "host")


def _host_limit(host: HostSample | None, rank: RankSample) -> int:
    resident = rank.resident_bytes or 0
    usual = resident + max(resident, HOST_HEADROOM_BYTES)
    if host is None or host.total_bytes is None or host.used_bytes is None:
        return usual
    return min(usual, resident + max(0, host.total_bytes - host.used_bytes))
