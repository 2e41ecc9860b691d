"""A stream watched for a while: chosen devices go through the analyzers into the log of a report."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from vramscope.engine.agent.analyzer_host import AnalyzerHost
from vramscope.engine.model import SEVERITIES, Analyzer, Assessment, DeviceSample, Finding, RankSample, Sample
from vramscope.engine.plugins import make_analyzers
from vramscope.exporters.reports.frame import Provenance
from vramscope.exporters.reports.log import MAX_SNAPSHOTS, RunLog

from .streams import SampleStream


class Selection(NamedTuple):
    """What is watched; None is everything."""

    # Indices, labels (`0:1`, `sim0`) or UUIDs.
    devices: tuple[str, ...] | None = None
    pid: int | None = None
    job: str | None = None

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self.devices is None and self.pid is None and self.job is None

    def apply(self, sample: Sample) -> Sample:
        """Return a sample with only what is chosen."""
        if self.is_all:
            return sample
        ranks = tuple(rank for rank in sample.ranks if self._wants_rank(rank))
        inhabited = {rank.device_uuid for rank in ranks}
        devices = tuple(
            self._narrow(device, ranks)
            for device in sample.devices
            if self._wants_device(device) and self._is_inhabited(device, inhabited)
        )
        if self.devices is not None:
            kept = {device.uuid for device in devices}
            ranks = tuple(rank for rank in ranks if rank.device_uuid in kept)
        return msgspec.structs.replace(sample, devices=devices, ranks=ranks)

    def find_missing(self, seen: Collection[DeviceSample]) -> tuple[str, ...]:
        """Return the devices that were named and not seen."""
        known = {word for device in seen for word in _names_of(device)}
        return tuple(word for word in self.devices or () if word not in known)

    def _wants_rank(self, rank: RankSample) -> bool:
        return self.pid in (None, rank.pid) and self.job in (None, rank.job)

    def _wants_device(self, device: DeviceSample) -> bool:
        return self.devices is None or not _names_of(device).isdisjoint(self.devices)

    def _is_inhabited(self, device: DeviceSample, inhabited: Collection[str | None]) -> bool:
        if self.pid is None and self.job is None:
            return True
        holds = self.job is None and any(it.pid == self.pid for it in device.processes or ())
        return holds or device.uuid in inhabited

    def _narrow(self, device: DeviceSample, ranks: tuple[RankSample, ...]) -> DeviceSample:
        """Return a device with the allocator of the chosen process, where several share the device."""
        if self.pid is None and self.job is None:
            return device
        own = [rank for rank in ranks if rank.device_uuid == device.uuid and rank.allocator is not None]
        return msgspec.structs.replace(device, allocator=own[0].allocator) if len(own) == 1 else device


def _names_of(device: DeviceSample) -> set[str]:
    return {str(device.index), device.label, device.uuid}


AnalyzerT = TypeVar("AnalyzerT")


class Conclusions:
    """All installed analyzers, fed with the same samples."""

    def __init__(self) -> None:
        plugins = make_analyzers()
        self._analyzers = list(plugins.made)
        self._host = AnalyzerHost(self._analyzers)
        self._plugin_notes = tuple(plugins.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why an analyzer could not be loaded, or was stopped."""
        return self._plugin_notes if self._host.reason is None else (*self._plugin_notes, self._host.reason)

    def observe(self, sample: Sample) -> list[Finding]:
        return self._host.observe(sample)

    def assess(self) -> list[Assessment]:
        return self._host.assess()

    def find(self, kind: type[AnalyzerT]) -> AnalyzerT | None:
        """Return the analyzer of a class, while it runs."""
        names = self._host.names
        found = (it for it in self._analyzers if isinstance(it, kind) and it.name in names)
        return next(found, None)


class Companion(Protocol):
    """Gets each sample along with the analyzers: records curves, or asks processes."""

    def observe(self, sample: Sample) -> None:
        """Process one sample, which has only what is chosen."""
        ...


class Watch:
    """Feeds the samples of a stream to the analyzers and to the log of a report.

    Args:
        stream: Source of samples.
        selection: What is watched.
        max_snapshots: Most snapshots to keep for each device.
        interval_s: Least seconds between two snapshots; analyzers get every sample.
        until_s: Seconds after the first sample, in the clock of the samples, at which to end; None for never.
    """

    def __init__(
        self,
        stream: SampleStream,
        selection: Selection,
        *,
        max_snapshots: int = MAX_SNAPSHOTS,
        interval_s: float = 0.0,
        until_s: float | None = None,
    ) -> None:
        self.stream = stream
        self.selection = selection
        self.conclusions = Conclusions()
        self.log = RunLog(max_snapshots=max_snapshots, interval_s=interval_s)
        self.companions: list[Companion] = []
        # Called with each finding that opens, becomes more severe or closes.
        self.on_finding: Callable[[Finding], None] | None = None
        # Analyzers for thresholds of the user; they get no past samples, so that they react to the first.
        self.rules: tuple[Analyzer, ...] = ()
        # Called with each sample before it is counted.
        self.before_sample: Callable[[Sample], None] | None = None
        self._until_s = until_s
        self._first_s: float | None = None
        self._is_over = False
        self._seen: dict[str, DeviceSample] = {}
        # Whether any sample had a device, or a training process.
        self.has_seen_any = False

    @property
    def is_ended(self) -> bool:
        """Whether no more samples will be read."""
        return self._is_over or self.stream.is_ended

    @property
    def provenance(self) -> Provenance:
        """Where the samples come from, and what was left out of them."""
        provenance = self.stream.provenance
        notes = tuple(dict.fromkeys((*provenance.notes, *self.conclusions.notes)))
        return msgspec.structs.replace(
            provenance, pid=self.selection.pid, job=self.selection.job, notes=notes
        )

    @property
    def devices_seen(self) -> tuple[DeviceSample, ...]:
        """Every device of the stream, chosen or not."""
        return tuple(self._seen.values())

    @property
    def missing_devices(self) -> tuple[str, ...]:
        """Devices that were named and have not been seen."""
        return self.selection.find_missing(self._seen.values())

    def start(self) -> None:
        """Start, with the past that the stream remembers."""
        self.stream.start()
        for sample in self.stream.past():
            self.log.take(self.conclusions.observe(self.selection.apply(sample)))
        self._assess()
        # Leave out findings that closed before the watch began.
        self.log = self.log.begin_next()
        if self.on_finding is not None:
            for trail in self.log.findings.values():
                self.on_finding(trail.finding)

    def step(self, timeout_s: float) -> bool:
        """Process the samples that come within a time; return whether there were any."""
        return self.fold(self.stream.take(timeout_s))

    def fold(self, samples: Sequence[Sample]) -> bool:
        """Process samples; return whether there were any."""
        for sample in samples:
            if self._is_past_end(sample):
                self._is_over = True
                break
            if self.before_sample is not None:
                self.before_sample(sample)
            self._observe(sample)
        return bool(samples)

    def begin_period(self) -> RunLog:
        """Return the log so far and start a new one, which has the open findings."""
        self._assess()
        done = self.log
        self.log = self.log.begin_next()
        return done

    def complete_findings(self) -> None:
        """Let the stream add further evidence to the findings."""
        known = [self.stream.complete(trail.finding) for trail in self.log.findings.values()]
        self.log.take(known)

    def _observe(self, sample: Sample) -> None:
        self.has_seen_any = self.has_seen_any or bool(sample.devices or sample.ranks)
        if len(self._seen) < len(sample.devices) or any(it.uuid not in self._seen for it in sample.devices):
            self._seen.update((device.uuid, device) for device in sample.devices)
        chosen = self.selection.apply(sample)
        self.log.observe(chosen)
        findings = self.conclusions.observe(chosen)
        for rule in self.rules:
            findings += rule.observe(chosen)
        if findings:
            self._announce(findings)
            self.log.take(findings)
        self._assess()
        for companion in self.companions:
            companion.observe(chosen)

    def _assess(self) -> None:
        """Log the forecasts that changed, sample by sample as the live view does: so both say the same."""
        self.log.take((), self.conclusions.assess())

    def _announce(self, findings: Iterable[Finding]) -> None:
        if self.on_finding is None:
            return
        for finding in findings:
            known = self.log.findings.get(finding.id)
            if known is None or not finding.is_open or _is_more_severe(finding, known.finding):
                self.on_finding(finding)

    def _is_past_end(self, sample: Sample) -> bool:
        if self._first_s is None:
            self._first_s = sample.time_s
        return self._until_s is not None and sample.time_s - self._first_s > self._until_s


def _is_more_severe(finding: Finding, known: Finding) -> bool:
    return SEVERITIES.index(finding.severity) > SEVERITIES.index(known.severity)
