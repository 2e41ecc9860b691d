"""This node, live: through its agent while one answers, else by our own readings."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from vramscope.engine.model import Finding, Sample
from vramscope.engine.viewer.node_source import NodeSource
from vramscope.exporters.reports.frame import Provenance

from .driver_stream import DriverStream
from .stream import SampleStream

if TYPE_CHECKING:
    from pathlib import Path

    from .agent_stream import AgentStream


class LiveStream:
    """Asks the agent of this node where one runs; samples in this process otherwise, and starts nothing.

    Args:
        interval_s: Seconds from one sample to the next, where this process samples; an agent keeps its own.
    """

    def __init__(self, interval_s: float) -> None:
        self._node: NodeSource[AgentStream, DriverStream] = NodeSource(
            _connect, lambda: DriverStream(interval_s)
        )
        self._node.open()
        self._has_seen_devices = False

    @property
    def agent(self) -> "AgentStream | None":
        """The agent that is asked; None where this process samples."""
        return self._node.agent

    @property
    def provenance(self) -> Provenance:
        """Where the samples come from by now, and what became of the agent."""
        source = self._source.provenance
        return msgspec.structs.replace(
            source, notes=tuple(dict.fromkeys((*self._node.sentences, *source.notes)))
        )

    @property
    def is_ended(self) -> bool:
        """Never."""
        return False

    @property
    def read_share(self) -> float | None:
        """None: there is no end."""
        return None

    def start(self) -> None:
        """Do nothing: the node is followed already."""

    def past(self) -> Iterable[Sample]:
        """Yield what an agent remembers."""
        return self._source.past()

    def take(self, timeout_s: float) -> Sequence[Sample]:
        """Return the samples that follow; none when the time is up first.

        Raises:
            SourceUnavailableError: There is no device.
        """
        samples = self._source.take(timeout_s)
        self._has_seen_devices = self._has_seen_devices or any(it.devices or it.ranks for it in samples)
        agent = self.agent
        if agent is not None and agent.lost is not None and not samples:
            self._node.leave_agent(f"{agent.lost}; sampling in this process from here on")
        elif agent is not None and samples and not self._has_seen_devices:
            # An agent that knows no device cannot say why: we look for ourselves.
            self._node.leave_agent("the agent knows no device; looking in this process")
            return []
        return samples

    def complete(self, finding: Finding) -> Finding:
        """Return a finding with what the agent knows of it besides."""
        return self._source.complete(finding)

    def stop(self) -> None:
        """End."""
        self._node.close()

    @property
    def _source(self) -> SampleStream:
        return self._node.agent or self._node.open_local()


def _connect(folder: "Path") -> "AgentStream":
    from .agent_stream import AgentStream

    return AgentStream(folder)
