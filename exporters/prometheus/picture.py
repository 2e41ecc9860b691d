"""What is told at one scrape: the newest snapshot of an agent, and how old it is."""

from collections.abc import Iterator
from typing import NamedTuple

from ...engine.model import Assessment, DeviceSample, Finding, RankSample, Sample
from ...engine.model.finding import is_last_word
from ...engine.viewer.snapshot import Snapshot
from .family import label_text

STALE_INTERVALS = 3.0
LEAST_STALE_S = 5.0
"""A sample that is older than this, and than a few intervals, says nothing of the present."""
TOLD_STATES = ("ok", "unsupported", "lost", "stale")
"""States of devices that are told; a modelled card whose job has ended is not there any more."""


class Picture(NamedTuple):
    """An agent as it is known at one moment."""

    node: str
    snapshot: Snapshot
    age_s: float
    """Seconds since the newest sample came; of no meaning where there is none."""

    @property
    def sample(self) -> Sample | None:
        """The newest sample."""
        return self.snapshot.sample

    @property
    def is_fresh(self) -> bool:
        """Whether the newest sample is of the present."""
        sample = self.sample
        if sample is None or self.snapshot.connection == "lost":
            return False
        return self.age_s <= max(STALE_INTERVALS * sample.interval_s, LEAST_STALE_S)

    @property
    def devices(self) -> tuple[DeviceSample, ...]:
        """The devices that are told."""
        found = () if self.sample is None else self.sample.devices
        return tuple(device for device in found if device.state in TOLD_STATES)

    @property
    def ranks(self) -> tuple[RankSample, ...]:
        """Training processes; those that have ended too, whose counters are their last word."""
        return self.sample.ranks if self.sample is not None and self.is_fresh else ()

    def is_up(self, device: DeviceSample) -> bool:
        """Return whether a device answers."""
        return self.is_fresh and device.state in ("ok", "unsupported")

    def age_of(self, device: DeviceSample) -> float | None:
        """Return the seconds since the memory of a device was read; None where it never was."""
        return None if device.age_s is None else device.age_s + self.age_s

    def label_device(self, uuid: str | None) -> tuple[str, ...]:
        """Return the values of `DEVICE_LABELS`; empty ones for what has no device."""
        devices = () if self.sample is None else self.sample.devices
        label = next((it.label for it in devices if it.uuid == uuid), None)
        return label_text(self.node), label_text(label), label_text(uuid)

    def label_rank(self, rank: RankSample) -> tuple[str, ...]:
        """Return the values of `RANK_LABELS`."""
        number = None if rank.coordinates is None else rank.coordinates.rank
        return *self.label_device(rank.device_uuid), label_text(number), label_text(rank.pid)

    def label_assessment(self, assessment: Assessment) -> tuple[str, ...]:
        """Return the values of `RANK_LABELS`; those of the process are empty where it is of a device."""
        process = label_text(assessment.rank), label_text(assessment.pid)
        return *self.label_device(assessment.device_uuid), *process

    def findings(self) -> Iterator[Finding]:
        """Yield the findings that hold, and errors that ended the last process of a device."""
        return (it for it in self.snapshot.findings if it.is_open or is_last_word(it))
