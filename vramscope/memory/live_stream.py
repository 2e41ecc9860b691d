"""This node, live: through its agent while one answers, else by our own readings."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from vramscope.engine.errors import HubUnreachableError
from vramscope.engine.model import Finding, Sample
from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.wire.endpoints import is_hub_alive
from vramscope.exporters.reports.frame import Provenance

from .driver_stream import DriverStream
from .stream import SampleStream

if TYPE_CHECKING:
    from .agent_stream import AgentStream


class LiveStream:
    """Asks the agent of this node where one runs; samples in this process otherwise, and starts nothing.

    Args:
        interval_s: Seconds from one sample to the next, where this process samples; an agent keeps its own.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._notes: list[str] = []
        self._source: SampleStream = self._open()
        self._has_seen_devices = False

    @property
    def agent(self) -> "AgentStream | None":
        """The agent that is asked; None where this process samples."""
        return self._source.agent

    @property
    def provenance(self) -> Provenance:
        """Where the samples come from by now, and what became of the agent."""
        source = self._source.provenance
        return msgspec.structs.replace(source, notes=tuple(dict.fromkeys((*self._notes, *source.notes))))

    @property
    def is_ended(self) -> bool:
        """Never."""
        return False

    @property
    def read_share(self) -> float | None:
        """None: there is no end."""
        return None

    def start(self) -> None:
        """Begin."""
        self._source.start()

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
            self._leave(f"{agent.lost}; sampling in this process from here on")
        elif agent is not None and samples and not self._has_seen_devices:
            # An agent that knows no device cannot say why: we look for ourselves.
            self._leave("the agent knows no device; looking in this process")
            return []
        return samples

    def complete(self, finding: Finding) -> Finding:
        """Return a finding with what the agent knows of it besides."""
        return self._source.complete(finding)

    def stop(self) -> None:
        """End."""
        self._source.stop()

    def _open(self) -> SampleStream:
        folder = locate_runtime_folder()
        if is_hub_alive(folder):
            from .agent_stream import AgentStream

            try:
                return AgentStream(folder)
            except HubUnreachableError as error:
                self._notes.append(f"{error}; sampling in this process instead")
        return DriverStream(self._interval_s)

    def _leave(self, note: str) -> None:
        self._notes.append(note)
        self._source.stop()
        self._source = DriverStream(self._interval_s)
        self._source.start()
