"""What is recorded: samples from this node's agent or from this process, and the job they belong to."""

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..clock import Clock, SystemClock
from ..errors import OutputFileError, SourceUnavailableError, UsageError
from ..files.base.input_file import show_path
from ..files.base.output_file import replacing
from ..model import Sample
from ..sources.processes import read_start_ticks, read_status
from ..viewer.this_node import LocalNode, ThisNode, Words

if TYPE_CHECKING:
    from .hub_follower import HubFollower


NOTE_NAME = "recorder.json"
_MOST_BYTES = 16_384


class RecorderNote(msgspec.Struct, frozen=True):
    """A running recording, and the process that writes it."""

    pid: int
    # When the process started; a later process may get the same pid.
    start_ticks: int
    # Absolute.
    path: str
    # Start, in seconds since the epoch.
    since_s: float
    # What somebody else did to its file, and where it continues; None if nothing.
    moved: str | None = None


def refuse_second(folder: Path) -> None:
    """Raise `OutputFileError` if another process records already for the viewers of this runtime folder."""
    other = read_announced(folder)
    if other is not None:
        raise OutputFileError(
            f"process {other.pid} is already recording here, into {show_path(Path(other.path))}"
        )


def announce(folder: Path, path: Path, since_s: float, moved: str | None = None) -> None:
    """Publish to the viewers of a runtime folder that this process records for them."""
    ticks = read_start_ticks(os.getpid()) or 0
    note = RecorderNote(os.getpid(), ticks, str(path.absolute()), since_s, moved)
    with replacing(folder / NOTE_NAME) as stream:
        stream.write(msgspec.json.encode(note))


def withdraw(folder: Path) -> None:
    note = _read(folder)
    if note is not None and note.pid == os.getpid():
        with suppress(OSError):
            (folder / NOTE_NAME).unlink()


def read_announced(folder: Path) -> RecorderNote | None:
    """Return what is recorded for the viewers of a runtime folder, or None."""
    note = _read(folder)
    return note if note is not None and is_running(note.pid, note.start_ticks) else None


def is_running(pid: int, start_ticks: int | None) -> bool:
    """Return whether a process of this number and start runs; a zombie does not."""
    if start_ticks is None or read_start_ticks(pid) != start_ticks:
        return False
    try:
        read_status(pid)
    except UsageError:
        return False
    return True


def _read(folder: Path) -> RecorderNote | None:
    try:
        with (folder / NOTE_NAME).open("rb") as file:
            return msgspec.json.decode(file.read(_MOST_BYTES), type=RecorderNote)
    except (OSError, ValueError):
        return None


Heard = Sample | Words


class NodeFollower:
    """Follows the agent of this node if one runs, else samples in this process until one does.

    Args:
        since_s: If an agent runs from the start, its history after this time comes first.
    """

    def __init__(
        self,
        *,
        interval_s: float,
        memory_interval_s: float,
        serving: Sequence[str] | None = None,
        folder: Path | None = None,
        since_s: float = math.inf,
    ) -> None:
        self._since_s = since_s
        # Samples that came from the agent's memory, and samples that never arrived.
        self.remembered = self.missed = 0
        self._interval_s = interval_s
        self._memory_interval_s = memory_interval_s
        self._serving = serving
        # Whether a device or a training process was ever seen.
        self.has_devices = False
        self.has_held_calls = False
        self.failures: list[SourceUnavailableError] = []
        self._source = ThisNode(self._connect, self._make_local, folder)
        self._source.open()

    @property
    def sentences(self) -> list[str]:
        """What changed about the source, for stderr."""
        return self._source.sentences

    @property
    def is_of_agent(self) -> bool:
        """Samples come from an agent, not from this process."""
        return self._source.agent is not None

    def hear(self, timeout_s: float) -> list[Heard]:
        """Return what arrived, waiting at most `timeout_s` for it."""
        hub = self._source.agent
        local = self._source.local
        heard: list[Heard] = []
        if hub is not None:
            heard = hub.hear(timeout_s)
            self.remembered += hub.remembered
            self.missed += hub.missed
            self._source.sentences += hub.sentences
            hub.remembered = hub.missed = 0
            hub.sentences.clear()
            lost = None if heard else hub.lost
            if lost is not None:
                self._source.leave_agent(f"{lost}; sampling in this process until one answers")
        elif local is not None:
            for sample in local.take(timeout_s):
                heard += (sample, local.analyze(sample))
            self.failures = local.failures
            if self._source.is_agent_alive:
                self.has_held_calls = self.has_held_calls or local.has_held_calls
                self._source.follow_agent()
        self._note_devices(heard)
        return heard

    def close(self) -> None:
        local = self._source.local
        self.has_held_calls = self.has_held_calls or (local is not None and local.has_held_calls)
        self._source.close()

    def _connect(self, folder: Path) -> "HubFollower":
        from .hub_follower import HubFollower  # loads ZeroMQ, which a node without an agent does without

        return HubFollower(folder, since_s=self._since_s)

    def _make_local(self) -> LocalNode:
        self._since_s = math.inf  # what an agent remembers from then on is recorded already
        local = LocalNode(
            interval_s=self._interval_s, memory_interval_s=self._memory_interval_s, serving=self._serving
        )
        _ = local.analyzers  # what cannot be loaded is said before the first sample
        self._source.sentences += local.notes
        return local

    def _note_devices(self, heard: list[Heard]) -> None:
        if self.has_devices:
            return
        samples = [it for it in heard if isinstance(it, Sample)]
        self.has_devices = any(it.devices or it.ranks for it in samples)
        if self._source.agent is not None and samples:
            from .hub_follower import REMEMBERED_NOTE

            why = (note for note in samples[-1].notes if note != REMEMBERED_NOTE)
            self.failures = [SourceUnavailableError(note) for note in why]


class JobView:
    """Leaves out the processes of other jobs, and simulated cards that only these use.

    Real devices stay, with all that is used on them: memory of others is missing to the job. Processes of no
    job, that were attached to, stay too.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._strangers: set[int] = set()
        self._cards: set[str] = set()

    def narrow(self, heard: Heard) -> Heard:
        """Drop what is of other jobs alone."""
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


# The last measurements and findings arrive that much later.
LINGER_S = 2.5


class JobEnd:
    """Decides when a recording of one job is over.

    Args:
        job: Its name; processes that report under it belong to it too. None for the first one alone.

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
        self._has_ranks = self.job is not None and any(
            rank.job == self.job and rank.state != "ended" for rank in sample.ranks
        )

    @property
    def is_over(self) -> bool:
        """Nothing of the job runs, for long enough that its last samples have arrived."""
        now_s = self._clock.monotonic_s()
        if self._has_ranks or is_running(self.pid, self._start_ticks):
            self._ended_s = None
        elif self._ended_s is None:
            self._ended_s = now_s
        return self._ended_s is not None and now_s - self._ended_s >= LINGER_S
