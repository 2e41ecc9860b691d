"""`vramscope guard --signal-job`: end one job before the host stalls, whose memory the GPU has."""

import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from vramscope.analyzers.host_stall import KIND as HOST_STALL
from vramscope.engine.model import SEVERITIES, Finding, ProcessReading, RankSample
from vramscope.engine.viewer.client import connect
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.live.process_signals import ProcessHandle, SignalRefused

from .frame.emit import complain
from .frame.errors import EXIT_FINDINGS, Interruption

if TYPE_CHECKING:
    from vramscope.engine.viewer.client import Client

# Least severity: below that it may be a model that is being loaded.
LEAST = "high"
TURN_S = 0.5


class StallGuard:
    """Signals each process of one job when a finding says that the host is about to stall; once a finding.

    Args:
        job: Name of its `vramscope run`.
    """

    def __init__(self, job: str, number: signal.Signals) -> None:
        self._job = job
        self._number = number
        self._done: set[str] = set()
        # Whether any process was signalled.
        self.has_signalled = False

    def observe(self, snapshot: Snapshot) -> list[str]:
        """Act on what a snapshot says; return what was done, in sentences."""
        if snapshot.connection != "live" or snapshot.sample is None or snapshot.replay is not None:
            return []
        finding = next((it for it in snapshot.findings if self._is_due(it)), None)
        if finding is None:
            return []
        self._done.add(finding.id)
        ranks = [it for it in snapshot.sample.ranks if it.job == self._job and it.state != "ended"]
        if not ranks:
            return [f"{finding.title}; no process of job {self._job} reports, so nothing was signalled"]
        return [f"{finding.title}; {self._signal(rank)}" for rank in ranks]

    def _is_due(self, finding: Finding) -> bool:
        is_severe = SEVERITIES.index(finding.severity) >= SEVERITIES.index(LEAST)
        return finding.kind == HOST_STALL and finding.is_open and is_severe and finding.id not in self._done

    def _signal(self, rank: RankSample) -> str:
        try:
            # It is pinned, so that a process id that is in use again is not hit.
            handle = ProcessHandle(ProcessReading(rank.pid, started_s=rank.started_s))
            try:
                handle.send(self._number)
            finally:
                handle.close()
        except SignalRefused as refused:
            return str(refused)
        self.has_signalled = True
        return f"sent {self._number.name} to process {rank.pid} of job {self._job}"


def watch_stalls(
    guard: StallGuard, duration_s: float | None, *, open_client: "Callable[[], Client]" = connect
) -> int:
    """Watch this node until the time is up or Ctrl-C; return the exit code.

    Raises:
        HubUnreachableError: No agent runs here.
    """
    end_s = None if duration_s is None else time.monotonic() + duration_s
    with open_client() as client, Interruption() as interruption:
        while not interruption.is_asked and (end_s is None or time.monotonic() < end_s):
            for sentence in guard.observe(client.snapshot(timeout_s=TURN_S)):
                complain(sentence, program="vramscope guard")
    return EXIT_FINDINGS if guard.has_signalled else 0
