"""What the samples of a period said: one log a device, the findings, and what they rest on."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...engine.model import SEVERITIES, Assessment, Finding, RankSample, Sample, Severity
from .device_log import DeviceLog

MAX_SNAPSHOTS = 10_000
"""Snapshots that are kept of a device unless told otherwise."""


class FindingTrail(NamedTuple):
    """A finding as it stands, and the gravest that it has been."""

    finding: Finding
    gravest: Severity


class RunLog:
    """Folds samples, findings and assessments; bounded by the snapshots that are kept of each device.

    Args:
        max_snapshots: Snapshots to keep of each device.
        interval_s: Least seconds of the samples' clock between two snapshots; peaks come from all samples.
    """

    def __init__(self, *, max_snapshots: int = MAX_SNAPSHOTS, interval_s: float = 0.0) -> None:
        self.max_snapshots = max_snapshots
        self.interval_s = interval_s
        self.devices: dict[str, DeviceLog] = {}
        self.findings: dict[str, FindingTrail] = {}
        self.assessments: dict[tuple[str | None, int | None], Assessment] = {}
        """The newest of each process, or device, by device UUID and process id."""
        self.phased: dict[tuple[str | None, int], RankSample] = {}
        """The newest of each process that names phases, by device UUID and process id."""
        self.samples = 0
        self.first_s: float | None = None
        self.last: Sample | None = None
        self._due_s: float | None = None
        self._devices_by_index: Counter[int] = Counter()
        # Reports ask these for every device, and a file may have thousands of devices.
        self._findings_by_device: dict[str | None, dict[str, None]] = {}
        self._assessments_by_device: dict[str | None, dict[int | None, Assessment]] = {}

    @property
    def span_s(self) -> float:
        """Seconds from the first sample to the last."""
        return 0.0 if self.last is None or self.first_s is None else self.last.time_s - self.first_s

    def key_of(self, log: DeviceLog) -> str:
        """Return the key of a device in reports: its index, or its label where another has the same index."""
        return log.label if self._devices_by_index[log.index] > 1 else str(log.index)

    def observe(self, sample: Sample) -> None:
        """Take one sample."""
        is_due = self._is_due(sample.time_s, sample.interval_s)
        ranks = _sort_ranks(sample.ranks) if sample.ranks else {}
        for device in sample.devices:
            log = self.devices.get(device.uuid)
            if log is None:
                log = self.devices[device.uuid] = DeviceLog(device, self.max_snapshots)
                self._devices_by_index[log.index] += 1
            # A process that has not turned to any device yet may turn to this one.
            own = ranks.get(device.uuid) or ranks.get("") or ()
            log.observe(sample.time_s, device, own, is_due=is_due)
        for rank in sample.ranks:
            if rank.phases:
                self.phased[rank.device_uuid, rank.pid] = rank
        self.samples += 1
        if self.first_s is None:
            self.first_s = sample.time_s
        self.last = sample

    def take(self, findings: Iterable[Finding], assessments: Iterable[Assessment] = ()) -> None:
        """Take what analyzers concluded."""
        for finding in findings:
            known = self.findings.get(finding.id)
            gravest = finding.severity if known is None else _graver(known.gravest, finding.severity)
            self.findings[finding.id] = FindingTrail(finding, gravest)
            self._findings_by_device.setdefault(finding.device_uuid, {})[finding.id] = None
        for assessment in assessments:
            self.assessments[assessment.device_uuid, assessment.pid] = assessment
            self._assessments_by_device.setdefault(assessment.device_uuid, {})[assessment.pid] = assessment

    def findings_of(self, device_uuid: str) -> list[Finding]:
        """Return the findings about a device, in the order in which they were first heard of."""
        return [self.findings[it].finding for it in self._findings_by_device.get(device_uuid, ())]

    def assessments_of(self, device_uuid: str) -> list[Assessment]:
        """Return the newest assessments of a device and of its processes."""
        return list(self._assessments_by_device.get(device_uuid, {}).values())

    def begin_next(self) -> "RunLog":
        """Return the log of the period that follows: it knows the findings that are still open."""
        following = RunLog(max_snapshots=self.max_snapshots, interval_s=self.interval_s)
        following.take(trail.finding for trail in self.findings.values() if trail.finding.is_open)
        following.take((), self.assessments.values())
        return following

    def _is_due(self, time_s: float, tick_s: float) -> bool:
        """Return whether a snapshot is due; a clock that was set back begins anew.

        Ticks are not exact: one that comes up to half a tick early counts for the moment it was meant for.
        """
        due_s = self._due_s
        early_s = 0.5 * min(tick_s, self.interval_s)
        if due_s is not None and due_s - 2 * self.interval_s <= time_s < due_s - early_s:
            return False
        is_on_time = due_s is not None and abs(time_s - due_s) <= self.interval_s
        self._due_s = (due_s if due_s is not None and is_on_time else time_s) + self.interval_s
        return True


def _graver(one: Severity, other: Severity) -> Severity:
    return max(one, other, key=SEVERITIES.index)


def _sort_ranks(ranks: Sequence[RankSample]) -> dict[str, list[RankSample]]:
    found: dict[str, list[RankSample]] = defaultdict(list)
    for rank in ranks:
        if rank.state != "ended":
            found[rank.device_uuid or ""].append(rank)
    return found
