"""A family of metrics with its series, in no output's own form, and the picture of a node they are of."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from ...engine.model import Assessment, DeviceSample, Finding, RankSample, Sample
from ...engine.model.finding import is_last_word
from ...engine.viewer.snapshot import Snapshot

MetricKind = Literal["gauge", "counter", "info", "untyped"]
"""`untyped`: a name of another program, which the text must repeat as it is, whatever its kind there."""
Subject = TypeVar("Subject")
"""Source of a value: a device, a process, an agent."""

DEVICE_LABELS = ("node", "device", "uuid")
"""Those of the series that `vramscope export --prometheus` writes, so that both continue each other."""
RANK_LABELS = (*DEVICE_LABELS, "rank", "pid")


@dataclass(frozen=True)
class Family(Generic[Subject]):
    """One kind of value; unmeasured values have no series."""

    name: str
    """Without the `_total` of a counter and the `_info` of an info."""
    kind: MetricKind
    unit: str
    """How the name ends, in the singular of OpenMetrics; empty without a unit."""
    help: str
    read: Callable[[Subject], float | None]


def label_text(value: object) -> str:
    """Return the value of a label: empty where it is unknown, and always text that can be encoded."""
    return "" if value is None else str(value).encode("utf-8", "replace").decode()


# The content of one scrape: the newest snapshot of an agent, and its age.

STALE_INTERVALS = 3.0
LEAST_STALE_S = 5.0
"""A sample that is older than this, and than a few intervals, says nothing of the present."""
EXPORTED_STATES = ("ok", "unsupported", "lost", "stale")
"""States of devices that are exported; a modelled card whose job has ended is gone."""


class Picture(NamedTuple):
    """An agent as it is known at one moment."""

    node: str
    snapshot: Snapshot
    age_s: float
    """Seconds since the newest sample came; without meaning before the first."""

    @property
    def sample(self) -> Sample | None:
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
        found = () if self.sample is None else self.sample.devices
        return tuple(device for device in found if device.state in EXPORTED_STATES)

    @property
    def ranks(self) -> tuple[RankSample, ...]:
        """Training processes; those that have ended too, whose counters are their last word."""
        return self.sample.ranks if self.sample is not None and self.is_fresh else ()

    def is_up(self, device: DeviceSample) -> bool:
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
        number = None if rank.coordinates is None else rank.coordinates.rank
        return *self.label_device(rank.device_uuid), label_text(number), label_text(rank.pid)

    def label_assessment(self, assessment: Assessment) -> tuple[str, ...]:
        """Return the values of `RANK_LABELS`; those of the process are empty where it is of a device."""
        process = label_text(assessment.rank), label_text(assessment.pid)
        return *self.label_device(assessment.device_uuid), *process

    def findings(self) -> Iterator[Finding]:
        """Yield the findings that hold, and errors that ended the last process of a device."""
        return (it for it in self.snapshot.findings if it.is_open or is_last_word(it))


NODE_LABELS = ("node",)
Row = tuple[tuple[str, ...], float | None]
"""Values of the labels, and the value; None where it is unmeasured."""


class Metric(NamedTuple):
    """One family as it is at one moment: what every output is made of."""

    name: str
    """Without the `_total` of a counter and the `_info` of an info."""
    kind: MetricKind
    unit: str
    help: str
    labels: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], float], ...]
    """Values of the labels, and the value: 1 for an info. Never empty."""


def read_all(
    families: Iterable[Family[Subject]],
    labels: tuple[str, ...],
    subjects: Iterable[tuple[tuple[str, ...], Subject]],
) -> Iterator[Metric]:
    subjects = list(subjects)
    for it in families:
        rows = ((values, it.read(subject)) for values, subject in subjects)
        yield from make_rows(it.name, it.kind, it.unit, it.help, labels, rows)


def make_rows(
    name: str, kind: MetricKind, unit: str, text: str, labels: tuple[str, ...], rows: Iterable[Row]
) -> Iterator[Metric]:
    """Yield one family, if it has a series."""
    known = tuple(
        (values, float(value))
        for values, value in rows
        if value is not None and math.isfinite(value) and (kind != "counter" or value >= 0)
    )
    if known:
        yield Metric(name, kind, unit, text, labels, known)


def make_info(
    name: str, text: str, labels: tuple[str, ...], rows: Iterable[tuple[str, ...]]
) -> Iterator[Metric]:
    yield from make_rows(name, "info", "", text, labels, ((values, 1.0) for values in rows))
