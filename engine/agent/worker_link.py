"""A worker's connection to its hub: what the hub says, and the way of its reports."""

from pathlib import Path
from typing import Protocol

import zmq

from ..clock import Clock
from ..viewer.conversation import Event, RankVerb
from ..viewer.stream import HubStream
from ..wire.endpoints import endpoints_of

QUEUE_REPORTS = 1024


class WorkerLink(Protocol):
    """What a worker needs of a connection."""

    samples_dropped: int
    """Samples that were published and never reached this end."""
    is_watched_closed: bool
    """Whether the pipe given to `watch` was closed at its other end."""

    def events(self, timeout_s: float) -> list[Event]:
        """Wait until something arrives and return all that has, oldest first; empty after `timeout_s`."""
        ...

    def send(self, verb: RankVerb, pid: int, *, is_on: bool = True, seconds: float | None = None) -> int:
        """Ask something of a training process; return the number of the question."""
        ...

    def report(self, data: bytes) -> bool:
        """Send a report; return whether it went: it does not while the hub is behind, or away."""
        ...

    def watch(self, fd: int) -> None:
        """Wake up when a pipe's other end closes."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


class LocalWorkerLink(HubStream):
    """The connection to the hub of this node.

    Args:
        runtime_dir: Folder of the hub.
        clock: Where time is read.
    """

    def __init__(self, runtime_dir: Path, clock: Clock) -> None:
        super().__init__(runtime_dir, is_viewer=False, clock=clock)
        self._reports = self._context.socket(zmq.PUSH)
        self._reports.setsockopt(zmq.LINGER, 0)
        self._reports.setsockopt(zmq.SNDHWM, QUEUE_REPORTS)
        self._reports.connect(endpoints_of(runtime_dir).reports)

    def report(self, data: bytes) -> bool:
        """Send a report; return whether it went: it does not while the hub is behind."""
        try:
            self._reports.send(data, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True
