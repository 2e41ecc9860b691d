"""This node, sampled by this very process."""

from collections.abc import Iterable, Sequence

from vramscope.engine.errors import DriverNotLoadedError
from vramscope.engine.model import Finding, Sample
from vramscope.engine.viewer.node_source import DRIVER_SILENT, LocalNode
from vramscope.exporters.reports.frame import Provenance

MEMORY_INTERVAL_S = 0.1
_READ_SHARE = 0.5


class DriverStream:
    """Samples this node by its own readings; starts no process.

    Args:
        interval_s: Seconds from one sample to the next.
        notes: What to say beside the figures, such as why no agent was asked.
    """

    def __init__(self, interval_s: float, *, notes: Sequence[str] = ()) -> None:
        self._notes = tuple(notes)
        self._node = LocalNode(
            interval_s=interval_s, memory_interval_s=min(MEMORY_INTERVAL_S, _READ_SHARE * interval_s)
        )
        self._is_settled = False
        """Whether a device was seen: why there is none is asked no more."""

    @property
    def provenance(self) -> Provenance:
        """Where the samples come from."""
        return Provenance(source="driver", notes=self._notes)

    @property
    def agent(self) -> None:
        """None: no agent is asked."""
        return

    @property
    def is_ended(self) -> bool:
        """Never."""
        return False

    @property
    def read_share(self) -> float | None:
        """None: there is no end."""
        return None

    def start(self) -> None:
        """Begin to read on threads of its own."""
        self._node.start()

    def past(self) -> Iterable[Sample]:
        """Yield nothing."""
        return ()

    def take(self, timeout_s: float) -> Sequence[Sample]:
        """Return the sample that follows, or none when the time is up first.

        Raises:
            SourceUnavailableError: There is no device.
        """
        samples = self._node.take(timeout_s)
        if samples:
            self._check(samples[-1])
        return samples

    def complete(self, finding: Finding) -> Finding:
        """Return the finding as it is."""
        return finding

    def stop(self) -> None:
        """End all reading; a call that hangs is left behind."""
        self._node.stop()

    def _check(self, sample: Sample) -> None:
        """Raise why there is no device, once that is sure."""
        self._is_settled = self._is_settled or bool(sample.devices)
        if self._is_settled:
            return
        if self._node.failures:
            raise self._node.failures[0]
        if self._node.is_decided:
            raise DriverNotLoadedError(DRIVER_SILENT)
