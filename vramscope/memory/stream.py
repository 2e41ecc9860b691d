"""What samples come from: this node through its agent, this node by our own readings, or a file."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from vramscope.engine.model import Finding, Sample
from vramscope.exporters.reports.frame import Provenance

if TYPE_CHECKING:
    from .agent_stream import AgentStream


class SampleStream(Protocol):
    """Yields samples; whoever takes them owns the waiting."""

    @property
    def provenance(self) -> Provenance:
        """Where the samples come from, as known by now."""
        ...

    @property
    def agent(self) -> "AgentStream | None":
        """The agent that is asked, which can also ask jobs; None where there is none."""
        ...

    @property
    def is_ended(self) -> bool:
        """Whether no sample follows, ever."""
        ...

    @property
    def read_share(self) -> float | None:
        """Share of a file that has been read, 0 to 1; None where there is no end."""
        ...

    def start(self) -> None:
        """Begin."""
        ...

    def past(self) -> Iterable[Sample]:
        """Yield what was sampled before we came, oldest first, for analyzers alone."""
        ...

    def take(self, timeout_s: float) -> Sequence[Sample]:
        """Return the samples that follow; none when the time is up first, or at the end.

        Raises:
            VramscopeError: There is nothing to sample, or the file cannot be understood.
        """
        ...

    def complete(self, finding: Finding) -> Finding:
        """Return a finding with what others have found out about it; the same object where nothing is."""
        ...

    def stop(self) -> None:
        """End; a driver call that hangs is left behind."""
        ...
