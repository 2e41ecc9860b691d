"""Feeds the screens from a Prometheus server: a thread that asks it at the pace of its scrapes."""

import itertools
import sys
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from ..alerts.state import FindingDecision
from ..errors import VramscopeError
from ..history import History
from ..model import Analyzer, Assessment, Finding, Sample
from ..replay.node_player import FoundVerdicts
from ..viewer.feed import BaseFeed
from ..viewer.snapshot import DecisionRefused, RankModules, SegmentsRefused, Snapshot
from .follower import PrometheusFollower
from .readings import join_findings, prefer_reported

LEAST_POLL_S = 0.25
MOST_POLL_S = 60.0
RETRY_S = 5.0
# Share of a core that reading answers may take; if it takes more, the server is asked less often.
MOST_SHARE = 0.25
# How long a thread that reads a large answer may keep the screen from the interpreter.
SWITCH_INTERVAL_S = 0.001
NOT_SCRAPED = "Prometheus has not scraped it since"
NOT_HERE = "Prometheus has only metrics: ask the agent of that node"


class _Node:
    """One node: its graphs, its analyzers and its newest sample."""

    def __init__(self, history: History, analyzers: Sequence[Analyzer]) -> None:
        self.history = history
        self._verdicts = FoundVerdicts(analyzers)
        self.sample: Sample | None = None
        self._reported: Sequence[Assessment] = ()
        self._counted: Sequence[Finding] = ()

    def add(self, sample: Sample, reported: Sequence[Assessment], counted: Sequence[Finding]) -> None:
        self.history.add(sample)
        self._verdicts.observe(sample)
        self.sample = sample
        self._reported = reported
        self._counted = counted

    def draw(self, reason: str | None, silent_s: float | None, notes: tuple[str, ...]) -> Snapshot:
        sample = self.sample
        if sample is not None and notes:
            sample = msgspec.structs.replace(sample, notes=(*sample.notes, *notes))
        return Snapshot(
            "live" if reason is None else "lost",
            reason=reason,
            silent_s=silent_s,
            sample=sample,
            findings=join_findings(self._verdicts.findings(), self._counted),
            assessments=prefer_reported(self._verdicts.assessments(), self._reported),
            node="" if sample is None else sample.node,
        )


class FirstAnswer:
    """A server's first answer, requested on its own thread.

    Args:
        follower: Not to be used until the answer was taken.
    """

    def __init__(self, follower: PrometheusFollower) -> None:
        self._follower = follower
        self._found: Sequence[Sample] = ()
        self._failed: VramscopeError | None = None
        self._thread = threading.Thread(target=self._ask, name="prometheus-first", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def take(self) -> Sequence[Sample]:
        self._thread.join()
        if self._failed is not None:
            raise self._failed
        return self._found

    def _ask(self) -> None:
        try:
            self._found = self._follower.poll()
        except VramscopeError as error:
            self._failed = error


class PrometheusFeed(BaseFeed):
    """Shows every node that a server has scraped. `first`: its first answer, arrived or not; None to ask."""

    def __init__(
        self,
        follower: PrometheusFollower,
        *,
        first: FirstAnswer | None = None,
        make_analyzers: Callable[[], Sequence[Analyzer]],
    ) -> None:
        super().__init__("prometheus-feed")
        # History of the first node.
        self.history = History()
        self._follower = follower
        self._first = first
        self._make_analyzers = make_analyzers
        self._nodes: dict[str, _Node] = {}
        self._called = threading.Condition()
        self._has_asked = self._is_empty_shown = False
        self._refused: dict[str, object] = {}
        self._numbers = itertools.count(1)

    def _wake(self) -> None:
        with self._called:
            self._called.notify()

    def history_of(self, node: str) -> History:
        """What was seen of a node; safe from any thread."""
        with self._called:
            found = self._nodes.get(node)
        return self.history if found is None else found.history

    def look_at(self, node: str) -> None:
        """Do nothing: questions about all nodes are refused alike."""

    def ask_segments(self, pid: int) -> None:
        self._refuse(segments_refused=(SegmentsRefused(pid, NOT_HERE),))

    def ask_modules(self, pid: int) -> None:
        self._refuse(modules=(RankModules(pid, next(self._numbers), refusal=NOT_HERE),))

    def decide(self, decision: FindingDecision) -> None:
        """Store nothing, and say so: there is no agent that could store a decision."""
        self._refuse(decision_refused=DecisionRefused(next(self._numbers), NOT_HERE))

    def _refuse(self, **answer: object) -> None:
        with self._called:
            self._refused |= answer
            self._has_asked = True
            self._called.notify()

    def _run(self) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        if self._first is not None and not self._first.wait(0.0):
            self._emit(f"{self._follower.url} has not answered yet")
        while not self._stopped.is_set():
            before_s = time.thread_time()
            failed = self._poll()
            took_s = time.thread_time() - before_s
            wait_s = min(max(self._follower.interval_s, LEAST_POLL_S, took_s / MOST_SHARE), MOST_POLL_S)
            self._rest(wait_s if failed is None else max(RETRY_S, wait_s), failed)

    def _rest(self, wait_s: float, failed: str | None) -> None:
        """Wait for the next scrape; questions meanwhile are answered at once."""
        while True:
            with self._called:
                if not self._stopped.is_set() and not self._has_asked:
                    self._called.wait(wait_s)
                if self._stopped.is_set() or not self._has_asked:
                    return
                self._has_asked = False
            self._emit(failed)

    def _poll(self) -> str | None:
        """Process what was scraped and emit it; return why there is no answer, or None."""
        failed = None
        try:
            first = self._first
            self._first = None
            for sample in self._follower.poll() if first is None else first.take():
                if self._stopped.is_set():
                    return None
                reported = self._follower.list_assessments(sample)
                counted = self._follower.list_findings(sample)
                self._node_of(sample.node).add(sample, reported, counted)
        except VramscopeError as error:
            failed = str(error)
        self._emit(failed)
        return failed

    def _node_of(self, name: str) -> _Node:
        with self._called:
            if name not in self._nodes:
                history = History() if self._nodes else self.history
                self._nodes[name] = _Node(history, self._make_analyzers())
            return self._nodes[name]

    def _emit(self, failed: str | None) -> None:
        """Emit a snapshot of every node, or of the failure alone if no node is known."""
        if not self._nodes:
            self._is_empty_shown = True
            self._on_snapshot(Snapshot("connecting" if failed is None else "lost", reason=failed))
        elif self._is_empty_shown:
            self._is_empty_shown = False
            self._on_snapshot(Snapshot(is_gone=True))
        for name in [name for name in self._nodes if not self._follower.is_followed(name)]:
            with self._called:
                del self._nodes[name]
            self._on_snapshot(Snapshot(node=name, is_gone=True))
        notes = self._follower.notes
        for name, node in list(self._nodes.items()):
            silent_s = self._follower.silent_s(name)
            reason = failed or (None if silent_s is None else NOT_SCRAPED)
            since_s = None if reason is None else round(self._follower.age_s(name) or 0.0, 1)
            snapshot = node.draw(reason, since_s, notes)
            self._on_snapshot(msgspec.structs.replace(snapshot, **self._refused))
