"""Where a recording gets its samples from: the agent of this node, or this process itself."""

import time
from pathlib import Path
from typing import NamedTuple, Protocol

from ..clock import Clock, SystemClock
from ..errors import SourceUnavailableError
from ..model import Assessment, Finding, Sample
from ..paths import locate_runtime_folder

SILENT_S = 2.0
"""An agent that has not spoken for so long is looked for."""


class Words(NamedTuple):
    """What analyzers said after the newest sample."""

    findings: tuple[Finding, ...] = ()
    assessments: tuple[Assessment, ...] | None = None
    """All that stand; None where none has changed."""


Heard = Sample | Words


class Follower(Protocol):
    """Yields samples in full and what is said of them, in order."""

    def hear(self, timeout_s: float) -> list[Heard]:
        """Return what came since, waiting at most so long for it."""
        ...

    def close(self) -> None:
        """End."""
        ...


class HubFollower:
    """Follows the agent that serves a runtime folder; it stays as long as it is followed.

    Args:
        folder: The runtime folder.
        clock: Injected in tests.
    """

    def __init__(self, folder: Path, *, clock: Clock | None = None) -> None:
        from ..bus.stream import HubStream  # loads ZeroMQ, which a node without an agent does without

        self._folder = folder
        self._clock = clock or SystemClock()
        self._began_s = self._clock.monotonic_s()
        self._stream = HubStream(folder, is_viewer=True, clock=clock)
        self._seen: tuple[int, float] | None = None
        self.has_answered = False

    @property
    def lost(self) -> str | None:
        """Why nothing comes any more; None while something may."""
        from ..bus.lock import is_hub_alive

        heard_s = self._began_s if self._stream.heard_s is None else self._stream.heard_s
        if self._clock.monotonic_s() - heard_s < SILENT_S:
            return None
        if not is_hub_alive(self._folder):
            return "the agent ended"
        return None if self.has_answered else self._stream.refused or "the agent does not answer"

    def hear(self, timeout_s: float) -> list[Heard]:
        """Return what came since, waiting at most so long for it."""
        from ..bus.stream import Assessed, Joined

        heard: list[Heard] = []
        for event in self._stream.events(timeout_s):
            if isinstance(event, Joined):
                welcome = event.welcome
                heard += [] if welcome.sample is None else self._take(welcome.sample)
                heard.append(Words(welcome.findings, welcome.assessments))
            elif isinstance(event, Sample):
                heard += self._take(event)
            elif isinstance(event, Finding):
                heard.append(Words((event,)))
            elif isinstance(event, Assessed):
                heard.append(Words((), event.assessments))
        return heard

    def close(self) -> None:
        """Disconnect."""
        self._stream.close()

    def _take(self, sample: Sample) -> list[Heard]:
        """Return a sample, unless it came before: an agent that is asked twice tells its newest again."""
        key = (sample.seq, sample.time_s)
        if key == self._seen:
            return []
        self._seen, self.has_answered = key, True
        return [sample]


class LocalFollower:
    """Samples and analyzes this node in this very process; starts no other.

    Args:
        interval_s: Seconds from one sample to the next.
        memory_interval_s: Seconds between two readings of device memory.
    """

    def __init__(self, *, interval_s: float, memory_interval_s: float) -> None:
        from ..bus.analyzer_host import AnalyzerHost
        from ..bus.assessments import AssessmentStore
        from ..plugins import make_analyzers
        from ..sampling.node import open_node

        self._producer = open_node(interval_s=interval_s, memory_interval_s=memory_interval_s)
        plugins = make_analyzers()
        self.notes = plugins.notes
        self._host = AnalyzerHost(plugins.made)
        self._assessments = AssessmentStore()
        self._producer.start()

    @property
    def failures(self) -> list[SourceUnavailableError]:
        """Why there is no device."""
        return self._producer.failures

    @property
    def has_held_calls(self) -> bool:
        """Whether a driver call has not returned; the process must then end with `os._exit`."""
        return self._producer.has_held_calls

    def hear(self, timeout_s: float) -> list[Heard]:
        """Return the sample that is due and what is said of it, waiting at most so long for it."""
        end_s = time.monotonic() + timeout_s
        while not (samples := self._producer.take()):
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return []
            time.sleep(min(self._producer.wait_s(), left_s))
        return [heard for sample in samples for heard in (sample, self._analyze(sample))]

    def close(self) -> None:
        """End all reading; a call that hangs is left behind."""
        self._producer.stop()

    def _analyze(self, sample: Sample) -> Words:
        findings = tuple(self._host.observe(sample))
        is_changed = self._assessments.merge(self._host.assess())
        is_changed = self._assessments.observe(sample) or is_changed
        return Words(findings, self._assessments.all() if is_changed else None)


class NodeFollower:
    """Follows the agent of this node where one runs, else samples in this process until one does.

    Args:
        interval_s: Seconds from one sample to the next, where this process samples.
        memory_interval_s: Seconds between two readings of device memory, where this process samples.
        folder: Runtime folder of the agent; this user's own by default.
    """

    def __init__(self, *, interval_s: float, memory_interval_s: float, folder: Path | None = None) -> None:
        self._folder = folder or locate_runtime_folder()
        self._interval_s, self._memory_interval_s = interval_s, memory_interval_s
        self.sentences: list[str] = []
        """What changed about the source, for stderr."""
        self.has_devices = False
        """Whether a device or a training process was ever seen."""
        self.has_held_calls = False
        self.failures: list[SourceUnavailableError] = []
        """Why there is no device."""
        self._local: LocalFollower | None = None
        self._hub: HubFollower | None = None
        self._choose()

    @property
    def is_of_agent(self) -> bool:
        """Whether samples come from an agent."""
        return self._hub is not None

    def hear(self, timeout_s: float) -> list[Heard]:
        """Return what came since, waiting at most so long for it."""
        if self._hub is not None:
            heard = self._hub.hear(timeout_s)
            lost = None if heard else self._hub.lost
            if lost is not None:
                self.sentences.append(f"{lost}; sampling in this process until one answers")
                self._leave()
                self._open_local()
        elif self._local is not None:
            heard = self._local.hear(timeout_s)
            self.failures = self._local.failures
            self._choose()
        self._note_devices(heard)
        return heard

    def close(self) -> None:
        """End."""
        self._leave()

    def _choose(self) -> None:
        """Go over to an agent where one runs."""
        from ..bus.lock import is_hub_alive

        if is_hub_alive(self._folder):
            if self._local is not None:
                self.sentences.append("an agent runs; following it from here on")
            self._leave()
            self._hub = HubFollower(self._folder)
        elif self._local is None:
            self._open_local()

    def _open_local(self) -> None:
        self._local = LocalFollower(interval_s=self._interval_s, memory_interval_s=self._memory_interval_s)
        self.sentences += self._local.notes

    def _leave(self) -> None:
        if self._hub is not None:
            self._hub.close()
        if self._local is not None:
            self._local.close()
            self.has_held_calls = self.has_held_calls or self._local.has_held_calls
        self._hub = self._local = None

    def _note_devices(self, heard: list[Heard]) -> None:
        if not self.has_devices:
            self.has_devices = any(isinstance(it, Sample) and (it.devices or it.ranks) for it in heard)
