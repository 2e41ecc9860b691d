"""A worker process: hosts analyzers, feeds them every sample once and in order, reports what they find."""

import math
import os
import select
import signal
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import zmq

from ..clock import Clock, SystemClock, ceil_ms
from ..errors import WireError
from ..history import History
from ..model import Analyzer, Assessment, Finding, Sample
from ..model.finding import Inquirer
from ..ranks.messages import PackedSegments, unpack_segments
from ..viewer.conversation import Event, HubStream, Joined, RankVerb
from ..wire.endpoints import endpoints_of
from ..wire.messages import WorkerReport, encode
from ..wire.stores import AssessmentKey, assessment_key
from .analyzer_host import AnalyzerHost, CloserLook
from .pace import is_urgent_sample

QUEUE_REPORTS = 1024


class WorkerLink(Protocol):
    # Samples that were published and never arrived.
    samples_dropped: int
    # A pipe given to `watch` was closed at its other end.
    is_watched_closed: bool

    def events(self, timeout_s: float) -> list[Event]:
        """Wait until something arrives and return all that has, oldest first; empty after `timeout_s`."""
        ...

    def send(self, verb: RankVerb, pid: int, *, is_on: bool = True, seconds: float | None = None) -> int:
        """Ask something of a training process; return the number of the question."""
        ...

    def report(self, data: bytes) -> bool:
        """Send a report; False if the hub is behind, or gone."""
        ...

    def watch(self, fd: int) -> None:
        """Wake up when a pipe's other end writes, or closes."""
        ...

    def close(self) -> None: ...


class LocalWorkerLink(HubStream):
    def __init__(self, runtime_dir: Path, clock: Clock) -> None:
        super().__init__(runtime_dir, is_viewer=False, clock=clock)
        self._reports = self._context.socket(zmq.PUSH)
        self._reports.setsockopt(zmq.LINGER, 0)
        self._reports.setsockopt(zmq.SNDHWM, QUEUE_REPORTS)
        self._reports.connect(endpoints_of(runtime_dir).reports)

    def report(self, data: bytes) -> bool:
        try:
            self._reports.send(data, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True


# How often a worker reports that it is alive when it has found nothing new.
REPORT_INTERVAL_S = 3.0
# How long a worker waits for news at most; more than the hub holds samples back, so that no wait ends just
# before they come.
POLL_S = 5.5
# How long it lets samples come together, once none was urgent for so long.
PAUSE_S = 2.8
SETTLED_AFTER_S = 30.0
NOTHING_SEEN = -1


class Worker:
    """One worker of one hub.

    Args:
        inquirers: Fresh inquirers, which look closer at what the analyzers find.
        is_chosen: These are some of the analyzers; only their findings may be closed.
        reason: Why an analyzer could not be loaded, for viewers.
        parent_fd: File descriptor that closes when the hub ends; None to run until stopped.
    """

    def __init__(
        self,
        link: WorkerLink,
        analyzers: Sequence[Analyzer],
        *,
        inquirers: Sequence[Inquirer] = (),
        is_chosen: bool = False,
        reason: str | None = None,
        parent_fd: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._host = AnalyzerHost(analyzers)
        self._host.reason = reason
        self._is_chosen = is_chosen
        self._look = CloserLook(inquirers)
        self._parent_fd = parent_fd
        self._link = link
        # Both end a wait for events, and a pause.
        self._stop_ends = socket.socketpair()
        link.watch(self._stop_ends[0].fileno())
        self._pause = select.poll()
        self._pause.register(self._stop_ends[0], select.POLLIN)
        if parent_fd is not None:
            link.watch(parent_fd)
            self._pause.register(parent_fd, select.POLLIN | select.POLLERR)
        self._unsent: list[Finding] = []
        self._unsent_assessments: dict[AssessmentKey, Assessment] = {}
        self._caught_up: tuple[str, ...] | None = None
        self._seen_seq = NOTHING_SEEN
        self._urgent_s = self._newest_s = -math.inf
        self._missed = 0
        self._report_due_s = 0.0
        self._is_stopping = False

    def run(self) -> None:
        """Analyze until the hub ends or `stop` is called."""
        while not self._is_stopping:
            events = self._link.events(POLL_S)
            for event in events:
                if isinstance(event, Joined):
                    self._catch_up(event)
                elif isinstance(event, Sample):
                    self._observe(event)
                elif isinstance(event, PackedSegments):
                    self._pass_map(event)
            for inquiry in self._look.take_inquiries():
                self._link.send(inquiry.verb, inquiry.pid, is_on=inquiry.is_on, seconds=inquiry.seconds)
            self._report()
            if self._parent_fd is not None and self._link.is_watched_closed:
                break
            if not self._is_stopping and self._may_pause(events):
                self._pause.poll(ceil_ms(PAUSE_S))
        self._link.close()
        for end in self._stop_ends:
            end.close()

    def stop(self, *_: object) -> None:
        """End soon; may be called from a signal handler."""
        self._is_stopping = True
        with suppress(OSError):  # it has ended
            self._stop_ends[1].send(b"\0")

    def _may_pause(self, events: Sequence[Event]) -> bool:
        """Return whether the next samples may wait: none is urgent, and they come one by one.

        A calm hub sends more at once, and no other wait should end before they come.
        """
        came_s = sum(it.interval_s for it in events if isinstance(it, Sample))
        return 0.0 < came_s <= PAUSE_S + 1.0 and self._newest_s - self._urgent_s >= SETTLED_AFTER_S

    def _catch_up(self, event: Joined) -> None:
        """Go through the ring: the findings come out as if this worker had always run."""
        welcome = event.welcome
        history = History()
        history.extend(welcome.history)
        if event.is_new_hub:
            self._missed += max(0, (welcome.history_first_seq or 0) - (welcome.first_seq or 0))
            self._seen_seq = NOTHING_SEEN
            oldest_s = next((sample.time_s for sample in history.samples()), None)
            older = [f for f in welcome.findings if f.is_open and (oldest_s is None or f.opened_s < oldest_s)]
            self._host.restore(older)
            self._look.restore(welcome.findings)
        for sample in history.samples():
            if sample.seq > self._seen_seq:
                self._observe(sample)
        self._caught_up = self._host.open_ids
        self._look.take_inquiries()  # what the past would have asked can be answered no more

    def _observe(self, sample: Sample) -> None:
        self._unsent.extend(self._look.follow(sample, self._host.observe(sample)))
        self._seen_seq = sample.seq
        self._newest_s = sample.time_s
        if is_urgent_sample(sample) or self._urgent_s > sample.time_s or self._urgent_s == -math.inf:
            self._urgent_s = sample.time_s

    def _pass_map(self, packed: PackedSegments) -> None:
        """Pass a map to those who wait for it; others ask for maps too, to draw them."""
        if self._look.awaits_map(packed.node, packed.pid):
            try:
                self._unsent.extend(self._look.take_map(unpack_segments(packed)))
            except WireError:
                return  # the process packed nonsense: as good as no answer

    def _report(self) -> None:
        now_s = self._clock.monotonic_s()
        self._unsent_assessments.update({assessment_key(a): a for a in self._host.assess()})
        has_news = self._unsent or self._unsent_assessments or self._caught_up is not None
        if not has_news and now_s < self._report_due_s:
            return
        report = WorkerReport(
            name="analyzers",
            pid=os.getpid(),
            seen_seq=self._seen_seq,
            samples_dropped=self._missed + self._link.samples_dropped,
            analyzers=self._host.names,
            findings=tuple(self._unsent),
            open_ids=self._caught_up,
            reason=self._host.reason or self._look.reason,
            assessments=tuple(self._unsent_assessments.values()),
            found_by=tuple(self._host.name_finder(finding.id) for finding in self._unsent),
            is_chosen=self._is_chosen,
            is_assessor=self._host.is_assessor,
        )
        if not self._link.report(encode("report", "", report)):
            return  # the hub is behind, or away: the findings go with the next report
        self._unsent = []
        self._unsent_assessments = {}
        self._caught_up = None
        self._host.forget_closed()
        self._report_due_s = now_s + REPORT_INTERVAL_S


def run_worker(
    link: WorkerLink, *, chosen: Collection[str] | None = None, parent_fd: int | None = None
) -> int:
    """Run the analyzers named in `chosen` (None: all) for the hub at the other end; return the exit code."""
    from ..plugins import make_analyzers, make_inquirers

    plugins = make_analyzers(chosen)
    inquirers = make_inquirers()
    reason = "; ".join([*plugins.notes, *inquirers.notes]) or None
    worker = Worker(
        link,
        plugins.made,
        inquirers=inquirers.made,
        is_chosen=chosen is not None,
        reason=reason,
        parent_fd=parent_fd,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, worker.stop)
    worker.run()
    return 0
