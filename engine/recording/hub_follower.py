"""Follows an agent: its samples in full, and those that never arrived from the agent's history."""

import heapq
import math
from collections.abc import Iterator
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path

import msgspec

from ..clock import Clock, SystemClock
from ..history import History
from ..history.ring import Row
from ..model import Finding, Sample
from ..viewer.conversation import Assessed, Event, HubStream, Joined
from ..viewer.this_node import Words
from ..wire.endpoints import is_hub_alive
from .follower import Heard

# After so long without a message the follower checks whether the agent still runs.
SILENT_S = 2.0
# Returned at once: an hour of many devices need not be in memory whole.
MOST_AT_ONCE = 256
REMEMBERED_NOTE = "from the agent's memory: without processes, temperature and power"


class HubFollower:
    """Follows the agent that serves a runtime folder, and keeps it running meanwhile.

    Args:
        since_s: The agent's history after this time comes first; infinity for none.
    """

    def __init__(self, folder: Path, *, since_s: float = math.inf, clock: Clock | None = None) -> None:
        self._folder = folder
        self._since_s = since_s
        self._clock = clock or SystemClock()
        self._began_s = self._clock.monotonic_s()
        self._stream = HubStream(folder, is_viewer=True, clock=clock)
        self._newest_seq: int | None = None
        self._due: Iterator[Heard] = iter(())
        self.has_answered = False
        # Samples that came from the agent's memory.
        self.remembered = 0
        # Samples that never arrived and that the agent no longer remembers.
        self.missed = 0
        # News for stderr.
        self.sentences: list[str] = []

    @property
    def lost(self) -> str | None:
        """Why nothing comes any more; None while something may."""
        heard_s = self._began_s if self._stream.heard_s is None else self._stream.heard_s
        if self._clock.monotonic_s() - heard_s < SILENT_S:
            return None
        if not is_hub_alive(self._folder):
            return "the agent ended"
        return None if self.has_answered else self._stream.refused or "the agent does not answer"

    def hear(self, timeout_s: float) -> list[Heard]:
        """Return what arrived, waiting at most `timeout_s` for it; a long history comes in several parts."""
        heard = list(islice(self._due, MOST_AT_ONCE))
        if not heard:
            events = self._stream.events(timeout_s)
            self._due = chain.from_iterable(map(self._convert, events))
            heard = list(islice(self._due, MOST_AT_ONCE))
        return heard

    def close(self) -> None:
        self._stream.close()

    def _convert(self, event: Event) -> Iterator[Heard]:
        if isinstance(event, Joined):
            yield from self._join(event)
        elif isinstance(event, Sample):
            yield from self._pass_new(event)
        elif isinstance(event, Finding):
            yield Words((event,))
        elif isinstance(event, Assessed):
            yield Words((), event.assessments)

    def _join(self, joined: Joined) -> Iterator[Heard]:
        """Yield what was missed, in full if it came meanwhile, and the agent's newest sample."""
        welcome = joined.welcome
        newest = () if welcome.sample is None else (welcome.sample,)
        full = {sample.seq: sample for sample in (*joined.held, *newest)}
        first = min(full, default=math.inf)
        is_first = self._newest_seq is None
        if joined.is_new_hub:
            self._newest_seq = None
        history = History()
        history.extend(welcome.history)
        remembered = history.samples(skipped=lambda row: row.seq in full or self._is_known(row, first))
        count = 0
        for sample in heapq.merge(remembered, full.values(), key=attrgetter("seq")):
            count += sample.seq not in full
            yield from self._pass_new(sample, is_remembered=sample.seq not in full)
        self._since_s = -math.inf  # all of an agent that follows this one is news
        if count and is_first:
            self.sentences.append(f"earlier samples, from the agent's memory: {count:,}")
        elif count:
            self.sentences.append(f"missed samples, filled in from the agent's memory: {count:,}")
        yield Words(welcome.findings, welcome.assessments)

    def _is_known(self, row: Row, first: float) -> bool:
        """Return whether a tick of the agent's history was recorded before, or is not asked for.

        What is between two samples in full is always asked for: it may still be on its way when the newest is
        there.
        """
        if self._newest_seq is not None:
            return row.seq <= self._newest_seq
        return row.time_s <= self._since_s and row.seq < first

    def _pass_new(self, sample: Sample, *, is_remembered: bool = False) -> Iterator[Heard]:
        """Yield a sample, unless it came before: an agent that is asked twice sends its newest again."""
        newest = self._newest_seq
        if newest is not None and sample.seq <= newest:
            return
        missed = 0 if newest is None else sample.seq - newest - 1
        self._newest_seq = sample.seq
        self.has_answered = True
        if missed:
            self.missed += missed
            self.sentences.append(f"missed samples that the agent no longer has: {missed:,}")
        if is_remembered:
            self.remembered += 1
            yield msgspec.structs.replace(sample, notes=(*sample.notes, REMEMBERED_NOTE))
        else:
            yield sample
