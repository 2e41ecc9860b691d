"""What a recording is told, by the agent of this node or by this process, and for which job."""

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..clock import Clock, SystemClock
from ..errors import SourceUnavailableError, UsageError
from ..model import Assessment, Finding, Sample
from ..paths import locate_runtime_folder
from ..sources.processes import read_start_ticks
from .announcement import is_running

if TYPE_CHECKING:
    from .hub_follower import HubFollower


class Words(NamedTuple):
    """What analyzers said after the newest sample."""

    findings: tuple[Finding, ...] = ()
    assessments: tuple[Assessment, ...] | None = None
    """All that stand; None where none has changed."""


Heard = Sample | Words


class LocalFollower:
    """Samples and analyzes this node in this very process; starts no other.

    Args:
        interval_s: Seconds from one sample to the next.
        memory_interval_s: Seconds between two readings of device memory.
    """

    def __init__(self, *, interval_s: float, memory_interval_s: float) -> None:
        from ..agent.analyzer_host import AnalyzerHost
        from ..plugins import make_analyzers
        from ..sampling.live import open_node
        from ..wire.stores import AssessmentStore

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
        since_s: Where an agent runs from the start, what it remembers from after this time is told first.
    """

    def __init__(
        self,
        *,
        interval_s: float,
        memory_interval_s: float,
        folder: Path | None = None,
        since_s: float = math.inf,
    ) -> None:
        self._folder = folder or locate_runtime_folder()
        self._since_s = since_s
        self.remembered = self.missed = 0
        """Samples that were told as an agent remembers them, and those that never arrived."""
        self._interval_s = interval_s
        self._memory_interval_s = memory_interval_s
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
            self._count()
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
        from ..wire.endpoints import is_hub_alive

        if is_hub_alive(self._folder):
            if self._local is not None:
                self.sentences.append("an agent runs; following it from here on")
            self._leave()
            self._open_hub()
        elif self._local is None:
            self._open_local()

    def _open_hub(self) -> None:
        from .hub_follower import HubFollower  # loads ZeroMQ, which a node without an agent does without

        self._hub = HubFollower(self._folder, since_s=self._since_s)

    def _open_local(self) -> None:
        self._since_s = math.inf  # what an agent remembers from then on is recorded already
        self._local = LocalFollower(interval_s=self._interval_s, memory_interval_s=self._memory_interval_s)
        self.sentences += self._local.notes

    def _leave(self) -> None:
        if self._hub is not None:
            self._hub.close()
        if self._local is not None:
            self._local.close()
            self.has_held_calls = self.has_held_calls or self._local.has_held_calls
        self._hub = self._local = None

    def _count(self) -> None:
        """Take over what the follower of the agent counts and says."""
        if self._hub is not None:
            self.remembered += self._hub.remembered
            self.missed += self._hub.missed
            self.sentences += self._hub.sentences
            self._hub.remembered = self._hub.missed = 0
            self._hub.sentences.clear()

    def _note_devices(self, heard: list[Heard]) -> None:
        if self.has_devices:
            return
        samples = [it for it in heard if isinstance(it, Sample)]
        self.has_devices = any(it.devices or it.ranks for it in samples)
        if self._hub is not None and samples:
            from .hub_follower import REMEMBERED_NOTE

            why = (note for note in samples[-1].notes if note != REMEMBERED_NOTE)
            self.failures = [SourceUnavailableError(note) for note in why]


class JobView:
    """Leaves out the processes of other jobs, and simulated cards that only these use.

    Real devices stay, with all that is used on them: what others hold there is missing to the job.

    Args:
        job: Name of the job. Processes of no job, that were attached to, stay too.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._strangers: set[int] = set()
        self._cards: set[str] = set()

    def narrow(self, heard: Heard) -> Heard:
        """Return what was heard without what is of other jobs alone."""
        return self._narrow_sample(heard) if isinstance(heard, Sample) else self._narrow_words(heard)

    def _narrow_sample(self, sample: Sample) -> Sample:
        strangers = [rank for rank in sample.ranks if rank.job not in (None, self._job)]
        if not strangers and not self._cards:
            return sample
        ranks = tuple(rank for rank in sample.ranks if rank.job in (None, self._job))
        own = {rank.device_uuid for rank in ranks}
        foreign = {rank.device_uuid for rank in strangers} - own
        self._strangers.update(rank.pid for rank in strangers)
        self._cards |= {it.uuid for it in sample.devices if it.kind == "simulated" and it.uuid in foreign}
        devices = tuple(device for device in sample.devices if device.uuid not in self._cards)
        return msgspec.structs.replace(sample, devices=devices, ranks=ranks)

    def _narrow_words(self, words: Words) -> Words:
        if words.assessments is None:
            assessments = None
        else:
            assessments = tuple(
                it
                for it in words.assessments
                if it.pid not in self._strangers and it.device_uuid not in self._cards
            )
        findings = tuple(it for it in words.findings if it.device_uuid not in self._cards)
        return Words(findings, assessments)


LINGER_S = 2.5
"""What is measured and found in the last moments arrives that much later."""


class JobEnd:
    """Says when a recording of one job is over.

    Args:
        pid: The job's first process.
        job: Its name; processes that report under it belong to it too. None for the first one alone.
        clock: Injected in tests.

    Raises:
        UsageError: There is no such process.
    """

    def __init__(self, pid: int, job: str | None = None, *, clock: Clock | None = None) -> None:
        self.pid = pid
        self.job = job
        self._clock = clock or SystemClock()
        self._start_ticks = read_start_ticks(pid)
        if not is_running(pid, self._start_ticks):
            raise UsageError(f"--until-exit {pid}: there is no such process")
        self._has_ranks = False
        self._ended_s: float | None = None

    def observe(self, sample: Sample) -> None:
        """Look for processes of the job."""
        self._has_ranks = self.job is not None and any(
            rank.job == self.job and rank.state != "ended" for rank in sample.ranks
        )

    @property
    def is_over(self) -> bool:
        """Whether nothing of the job runs any more, for long enough that its last words are here."""
        now_s = self._clock.monotonic_s()
        if self._has_ranks or is_running(self.pid, self._start_ticks):
            self._ended_s = None
        elif self._ended_s is None:
            self._ended_s = now_s
        return self._ended_s is not None and now_s - self._ended_s >= LINGER_S
