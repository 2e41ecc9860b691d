"""This node through its agent: its samples, the past that it remembers, and what its worker found out."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from vramscope.engine.model import Finding, Sample
from vramscope.engine.viewer.client import Client, connect
from vramscope.engine.wire.endpoints import is_hub_alive
from vramscope.exporters.reports.frame import Provenance

ANSWERS_WITHIN_S = 2.0


class AgentStream:
    """Follows the agent that serves a runtime folder; starts none.

    Args:
        folder: The runtime folder.

    Raises:
        HubUnreachableError: No agent runs there, or it does not answer.
    """

    def __init__(self, folder: Path) -> None:
        self.client: Client = connect(folder, timeout_s=ANSWERS_WITHIN_S)
        self._folder = folder
        self._seen: tuple[int, float] | None = None
        self._hub_id: str | None = None
        self.lost: str | None = None
        """Why the agent gives no samples any more; None while it does."""

    @property
    def provenance(self) -> Provenance:
        """Where the samples come from."""
        return Provenance(source="agent")

    @property
    def agent(self) -> "AgentStream":
        """Itself."""
        return self

    @property
    def is_ended(self) -> bool:
        """Whether the agent is gone."""
        return self.lost is not None

    @property
    def read_share(self) -> float | None:
        """None: there is no end."""
        return None

    def start(self) -> None:
        """Do nothing: the agent samples already."""

    def past(self) -> Iterable[Sample]:
        """Yield what the agent remembers tick by tick; its newest sample is left to `take`."""
        waiting: Sample | None = None
        for sample in self.client.history.samples():
            if waiting is not None:
                self._seen = waiting.seq, waiting.time_s
                yield waiting
            waiting = sample

    def take(self, timeout_s: float) -> Sequence[Sample]:
        """Return the samples that came since; none when the time is up first, or the agent is lost."""
        end_s = time.monotonic() + timeout_s
        while self.lost is None:
            left_s = max(0.0, end_s - time.monotonic())
            snapshot = self.client.snapshot(timeout_s=left_s)
            if snapshot.connection == "lost" and not is_hub_alive(self._folder):
                self.lost = snapshot.reason or "the agent is gone"
            elif snapshot.connection == "lost" and (snapshot.silent_s or 0.0) > ANSWERS_WITHIN_S:
                self.lost = snapshot.reason or "the agent is silent"
            sample = snapshot.sample
            if sample is not None and (sample.seq, sample.time_s) != self._seen:
                return self._collect(sample)
            if time.monotonic() >= end_s:
                break
        return []

    def complete(self, finding: Finding) -> Finding:
        """Return the agent's own version of a finding where it tells more, such as the line of a leak."""
        known = next((it for it in self.client.snapshot(timeout_s=0.0).findings if it.id == finding.id), None)
        is_fuller = known is not None and len(known.evidence) > len(finding.evidence)
        return known if known is not None and is_fuller else finding

    def close(self) -> None:
        """Disconnect."""
        self.client.close()

    stop = close

    def _collect(self, newest: Sample) -> list[Sample]:
        """Return the newest sample, after those that arrived together with it."""
        seen = self._seen
        self._seen = (newest.seq, newest.time_s)
        if seen is None or newest.seq <= seen[0] + 1:
            return [newest]
        missed = [it for it in self.client.history.samples() if seen[0] < it.seq < newest.seq]
        return [*(it for it in missed if it.time_s > seen[1]), newest]
