"""A worker process: hosts analyzers, feeds them every sample once and in order, reports what they find."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import zmq

from ..clock import Clock, SystemClock
from ..errors import WireError
from ..history import History
from ..model import Analyzer, Assessment, Finding, Sample
from ..model.inquiry import Inquirer
from ..ranks.segments import PackedSegments, unpack_segments
from .analyzer_host import AnalyzerHost
from .assessments import AssessmentKey, assessment_key
from .closer_look import CloserLook
from .endpoints import endpoints_of
from .messages import WorkerReport
from .stream import Event, HubStream, Joined
from .wire import encode

REPORT_INTERVAL_S = 3.0
"""How often a worker says that it is alive when it has found nothing new."""
QUEUE_REPORTS = 1024
POLL_S = 1.0
NOTHING_SEEN = -1


class Worker:
    """One worker of one hub.

    Args:
        runtime_dir: Folder of the hub.
        analyzers: Fresh analyzers.
        inquirers: Fresh inquirers, who look closer at what the analyzers find.
        reason: Why an analyzer could not be loaded, told to viewers.
        parent_fd: File descriptor that closes when the hub ends; None to run until stopped.
        clock: Injected in tests.
    """

    def __init__(
        self,
        runtime_dir: Path,
        analyzers: Sequence[Analyzer],
        *,
        inquirers: Sequence[Inquirer] = (),
        reason: str | None = None,
        parent_fd: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._host = AnalyzerHost(analyzers)
        self._host.reason = reason
        self._look = CloserLook(inquirers)
        self._parent_fd = parent_fd
        self._stream = HubStream(runtime_dir, is_viewer=False, clock=self._clock)
        if parent_fd is not None:
            self._stream.watch(parent_fd)
        self._context = zmq.Context()
        self._reports = self._context.socket(zmq.PUSH)
        self._reports.setsockopt(zmq.LINGER, 0)
        self._reports.setsockopt(zmq.SNDHWM, QUEUE_REPORTS)
        self._reports.connect(endpoints_of(runtime_dir).reports)
        self._unsent: list[Finding] = []
        self._unsent_assessments: dict[AssessmentKey, Assessment] = {}
        self._caught_up: tuple[str, ...] | None = None
        self._seen_seq = NOTHING_SEEN
        self._missed = 0
        self._report_due_s = 0.0
        self._is_stopping = False

    def run(self) -> None:
        """Analyze until the hub ends or `stop` is called."""
        while not self._is_stopping:
            for event in self._stream.events(POLL_S):
                self._take(event)
            self._inquire()
            self._report()
            if self._parent_fd is not None and self._stream.is_watched_closed:
                break
        self._stream.close()
        self._context.destroy(linger=0)

    def stop(self, *_: object) -> None:
        """End soon; may be called from a signal handler."""
        self._is_stopping = True

    def _take(self, event: Event) -> None:
        if isinstance(event, Joined):
            self._catch_up(event)
        elif isinstance(event, Sample):
            self._observe(event)
        elif isinstance(event, PackedSegments):
            self._take_map(event)

    def _catch_up(self, event: Joined) -> None:
        """Go through the ring: the findings come out as if this worker had always run."""
        welcome, history = event.welcome, History()
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

    def _inquire(self) -> None:
        for inquiry in self._look.take_inquiries():
            self._stream.send(inquiry.verb, inquiry.pid, is_on=inquiry.is_on, seconds=inquiry.seconds)

    def _take_map(self, packed: PackedSegments) -> None:
        """Let those look at a map who wait for it; others ask for maps too, to draw them."""
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
            samples_dropped=self._missed + self._stream.samples_dropped,
            analyzers=self._host.names,
            findings=tuple(self._unsent),
            open_ids=self._caught_up,
            reason=self._host.reason or self._look.reason,
            assessments=tuple(self._unsent_assessments.values()),
        )
        try:
            self._reports.send(encode("report", "", report), zmq.NOBLOCK)
        except zmq.Again:
            return  # the hub is behind: the findings go with the next report
        self._unsent, self._unsent_assessments, self._caught_up = [], {}, None
        self._report_due_s = now_s + REPORT_INTERVAL_S


def run_worker(runtime_dir: Path, *, parent_fd: int | None = None) -> int:
    """Run the analyzers of this installation for the hub of a runtime folder; return the exit code."""
    from ..plugins import make_analyzers, make_inquirers

    plugins, inquirers = make_analyzers(), make_inquirers()
    reason = "; ".join([*plugins.notes, *inquirers.notes]) or None
    worker = Worker(runtime_dir, plugins.made, inquirers=inquirers.made, reason=reason, parent_fd=parent_fd)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, worker.stop)
    worker.run()
    return 0
