"""Sources of samples: a file, this node sampled by this process, or this node through its agent."""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from vramscope.engine.clock import Clock, SystemClock
from vramscope.engine.errors import DriverNotLoadedError, SourceUnavailableError
from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.model import Finding, Sample
from vramscope.engine.viewer.this_node import ANSWERS_WITHIN_S, DRIVER_SILENT, LocalNode, ThisNode
from vramscope.engine.wire.endpoints import is_hub_alive
from vramscope.exporters.reports.frame import Provenance

if TYPE_CHECKING:
    from vramscope.engine.sampling.series_player import FileSource
    from vramscope.engine.viewer.client import Client


class SampleStream(Protocol):
    """A source of samples; the caller of `take` decides how long to wait."""

    @property
    def provenance(self) -> Provenance:
        """Where the samples come from, as known by now."""
        ...

    @property
    def agent(self) -> "AgentStream | None":
        """The agent that sends the samples, which can also ask jobs; None without one."""
        ...

    @property
    def is_ended(self) -> bool:
        """Whether no more samples follow."""
        ...

    @property
    def read_share(self) -> float | None:
        """Share of a file read so far, 0 to 1; None where there is no end."""
        ...

    def start(self) -> None: ...

    def past(self) -> Iterable[Sample]:
        """Yield the samples from before the start, oldest first, for the analyzers only."""
        ...

    def take(self, timeout_s: float) -> Sequence[Sample]:
        """Return the next samples; none when the time is up first, or at the end."""
        ...

    def complete(self, finding: Finding) -> Finding:
        """Return a finding with further evidence from the source; the same object if there is none."""
        ...

    def stop(self) -> None:
        """End; leave a hanging driver call behind."""
        ...


# Most samples returned at once, so that progress and Ctrl-C come in between.
BATCH = 256


class FileStream:
    """The samples of one file, without waiting."""

    def __init__(self, path: Path, *, capacity_bytes: int | None = None) -> None:
        from vramscope.engine.sampling.series_source import open_series

        self._path = path
        self._series: FileSource = open_series(path, capacity_bytes=capacity_bytes)
        self._samples: Iterator[Sample] = self._series.samples()
        self._is_ended = False

    @property
    def provenance(self) -> Provenance:
        series = self._series
        return Provenance(
            source="input",
            input=show_path(self._path),
            format=series.format,
            notes=series.notes,
            real_uuid=series.real_uuid,
            label=series.label,
        )

    @property
    def agent(self) -> None:
        return

    @property
    def is_ended(self) -> bool:
        return self._is_ended

    @property
    def read_share(self) -> float | None:
        return 1.0 if self._is_ended else self._series.read_share

    def start(self) -> None:
        """Do nothing: the file is open."""

    def past(self) -> Iterable[Sample]:
        return ()

    def take(self, timeout_s: float) -> Sequence[Sample]:
        found = list(islice(self._samples, BATCH))
        self._is_ended = not found
        return found

    def complete(self, finding: Finding) -> Finding:
        return finding

    def stop(self) -> None:
        self._series.close()


MEMORY_INTERVAL_S = 0.1
_READ_SHARE = 0.5


class DriverStream:
    """Samples this node in this process; starts no other process.

    Args:
        interval_s: Seconds between samples.
        notes: Sentences for the report, such as why no agent was asked.
    """

    def __init__(self, interval_s: float, *, notes: Sequence[str] = ()) -> None:
        self._notes = tuple(notes)
        self._node = LocalNode(
            interval_s=interval_s, memory_interval_s=min(MEMORY_INTERVAL_S, _READ_SHARE * interval_s)
        )
        # Whether a device was seen, so that its absence needs no explanation.
        self._is_settled = False

    @property
    def provenance(self) -> Provenance:
        return Provenance(source="driver", notes=self._notes)

    @property
    def agent(self) -> None:
        return

    @property
    def is_ended(self) -> bool:
        return False

    @property
    def read_share(self) -> float | None:
        return None

    def start(self) -> None:
        self._node.start()

    def past(self) -> Iterable[Sample]:
        return ()

    def take(self, timeout_s: float) -> Sequence[Sample]:
        """Return the next sample, or none when the time is up first."""
        samples = self._node.take(timeout_s)
        if samples:
            self._check(samples[-1])
        return samples

    def complete(self, finding: Finding) -> Finding:
        return finding

    def stop(self) -> None:
        """Stop all reading; leave a hanging call behind."""
        self._node.stop()

    def _check(self, sample: Sample) -> None:
        """Raise the reason why there is no device, once it is certain."""
        self._is_settled = self._is_settled or bool(sample.devices)
        if self._is_settled:
            return
        if self._node.failures:
            raise self._node.failures[0]
        if self._node.is_decided:
            raise DriverNotLoadedError(DRIVER_SILENT)


AGENT_ANSWERS_WITHIN_S = 2.0


class AgentStream:
    """Follows the agent that serves a runtime folder; starts none."""

    def __init__(self, folder: Path) -> None:
        from vramscope.engine.viewer.client import connect  # loads ZeroMQ

        self.client: Client = connect(folder, timeout_s=AGENT_ANSWERS_WITHIN_S)
        self._folder = folder
        self._seen: tuple[int, float] | None = None
        self._hub_id: str | None = None
        # Why the agent no longer sends samples; None while it does.
        self.lost: str | None = None

    @property
    def provenance(self) -> Provenance:
        return Provenance(source="agent")

    @property
    def agent(self) -> "AgentStream":
        return self

    @property
    def is_ended(self) -> bool:
        return self.lost is not None

    @property
    def read_share(self) -> float | None:
        return None

    def start(self) -> None:
        """Do nothing: the agent samples already."""

    def past(self) -> Iterable[Sample]:
        """Yield the samples that the agent remembers; leave its newest to `take`."""
        waiting: Sample | None = None
        for sample in self.client.history.samples():
            if waiting is not None:
                self._seen = waiting.seq, waiting.time_s
                yield waiting
            waiting = sample

    def take(self, timeout_s: float) -> Sequence[Sample]:
        """Return the new samples; none when the time is up first, or the agent is lost."""
        end_s = time.monotonic() + timeout_s
        while self.lost is None:
            left_s = max(0.0, end_s - time.monotonic())
            snapshot = self.client.snapshot(timeout_s=left_s)
            if snapshot.connection == "lost" and not is_hub_alive(self._folder):
                self.lost = snapshot.reason or "the agent is gone"
            elif snapshot.connection == "lost" and (snapshot.silent_s or 0.0) > AGENT_ANSWERS_WITHIN_S:
                self.lost = snapshot.reason or "the agent is silent"
            sample = snapshot.sample
            if sample is not None and (sample.seq, sample.time_s) != self._seen:
                return self._collect(sample)
            if time.monotonic() >= end_s:
                break
        return []

    def complete(self, finding: Finding) -> Finding:
        """Return the agent's version of a finding if it has more evidence, such as the line of a leak."""
        known = next((it for it in self.client.snapshot(timeout_s=0.0).findings if it.id == finding.id), None)
        is_fuller = known is not None and len(known.evidence) > len(finding.evidence)
        return known if known is not None and is_fuller else finding

    def close(self) -> None:
        self.client.close()

    stop = close

    def _collect(self, newest: Sample) -> list[Sample]:
        """Return the newest sample, after those missed before it."""
        seen = self._seen
        self._seen = (newest.seq, newest.time_s)
        if seen is None or newest.seq <= seen[0] + 1:
            return [newest]
        missed = [it for it in self.client.history.samples() if seen[0] < it.seq < newest.seq]
        return [*(it for it in missed if it.time_s > seen[1]), newest]


class LiveStream:
    """Follows the agent of this node if one runs; samples in this process otherwise, and starts nothing.

    Args:
        interval_s: Seconds between samples, where this process samples; an agent has its own interval.
        node: The agent or the sampler in this process; by default those of this user.
        clock: Measures how long an agent has had to find its devices.
    """

    def __init__(
        self,
        interval_s: float,
        *,
        node: ThisNode[AgentStream, DriverStream] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._node = node or ThisNode(AgentStream, lambda: DriverStream(interval_s))
        self._clock = clock or SystemClock()
        self._has_seen_devices = False
        self._opened_s = 0.0

    @property
    def agent(self) -> "AgentStream | None":
        """The agent that is followed; None where this process samples."""
        return self._node.agent

    @property
    def provenance(self) -> Provenance:
        """Where the samples come from now, and what happened to the agent."""
        source = self._source.provenance
        return msgspec.structs.replace(
            source, notes=tuple(dict.fromkeys((*self._node.sentences, *source.notes)))
        )

    @property
    def is_ended(self) -> bool:
        return False

    @property
    def read_share(self) -> float | None:
        return None

    def start(self) -> None:
        # Not in the constructor: a signal from the first reading on must still give a report.
        self._node.open()
        self._opened_s = self._clock.monotonic_s()

    def past(self) -> Iterable[Sample]:
        return self._source.past()

    def take(self, timeout_s: float) -> Sequence[Sample]:
        """Return the next samples; none when the time is up first."""
        samples = self._source.take(timeout_s)
        self._has_seen_devices = self._has_seen_devices or any(it.devices or it.ranks for it in samples)
        agent = self.agent
        if agent is not None and agent.lost is not None and not samples:
            self._node.leave_agent(f"{agent.lost}; sampling in this process from here on")
        elif (
            agent is not None
            and samples
            and not self._has_seen_devices
            and self._clock.monotonic_s() - self._opened_s > ANSWERS_WITHIN_S
        ):
            # The first samples of an agent come before its driver has answered; one that knows no device
            # after that cannot say why: we look for ourselves.
            self._node.leave_agent("the agent has no device; looking for devices in this process")
            return []
        return samples

    def complete(self, finding: Finding) -> Finding:
        """Return a finding with further evidence of the agent."""
        return self._source.complete(finding)

    def stop(self) -> None:
        self._node.close()

    @property
    def _source(self) -> SampleStream:
        return self._node.agent or self._node.open_local()


class SpareStream(LiveStream):
    """This node, live; a node without devices is noted and is no error.

    Args:
        interval_s: Seconds between samples, where this process samples.
    """

    def __init__(self, interval_s: float) -> None:
        super().__init__(interval_s)
        # Why this node has nothing to sample; None while it has, or while that is unknown.
        self.absence: SourceUnavailableError | None = None

    @property
    def provenance(self) -> Provenance:
        """Where the samples come from, and why there are none, if there are none."""
        provenance = super().provenance
        if self.absence is None:
            return provenance
        note = f"this node gathers reports and has none of its own: {self.absence}"
        return msgspec.structs.replace(provenance, notes=(*provenance.notes, note))

    def take(self, timeout_s: float) -> Sequence[Sample]:
        """Return the next samples; none when the time is up first, or there is no device."""
        try:
            samples = super().take(timeout_s)
        except SourceUnavailableError as error:
            self.absence = error
            return ()
        self.absence = None if samples else self.absence
        return samples
