"""This node, sampled by this very process."""

import time
from collections.abc import Iterable, Sequence

from vramscope.engine.errors import DriverNotLoadedError
from vramscope.engine.model import Finding, Sample
from vramscope.engine.sampling.live import LiveProducer, open_node
from vramscope.exporters.reports.frame import Provenance

DRIVER_SILENT = "no GPU could be read: the NVIDIA driver does not answer; see `dmesg | grep -i nvrm`"
ANSWERS_WITHIN_S = 5.0
"""A driver that nobody keeps loaded takes seconds to start; one that is silent for longer hangs."""
MEMORY_INTERVAL_S = 0.1
_READ_SHARE = 0.5


class DriverStream:
    """Samples this node by its own readings; starts no process.

    Args:
        interval_s: Seconds from one sample to the next.
        notes: What to say beside the figures, such as why no agent was asked.
    """

    def __init__(self, interval_s: float, *, notes: Sequence[str] = ()) -> None:
        self._interval_s = interval_s
        self._notes = tuple(notes)
        self._producer: LiveProducer = open_node(
            interval_s=interval_s, memory_interval_s=min(MEMORY_INTERVAL_S, _READ_SHARE * interval_s)
        )
        self._answers_by_s: float | None = None

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
        self._producer.start()
        self._answers_by_s = time.monotonic() + ANSWERS_WITHIN_S

    def past(self) -> Iterable[Sample]:
        """Yield nothing."""
        return ()

    def take(self, timeout_s: float) -> Sequence[Sample]:
        """Return the sample that follows, or none when the time is up first.

        Raises:
            SourceUnavailableError: There is no device.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            samples = self._producer.take()
            if samples:
                self._check(samples[-1])
                return samples
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return []
            time.sleep(min(self._producer.wait_s(), left_s))

    def complete(self, finding: Finding) -> Finding:
        """Return the finding as it is."""
        return finding

    def stop(self) -> None:
        """End all reading; a call that hangs is left behind."""
        self._producer.stop()

    def _check(self, sample: Sample) -> None:
        """Raise why there is no device, once that is sure."""
        if sample.devices:
            self._answers_by_s = None
        if self._answers_by_s is None:
            return
        if self._producer.failures:
            raise self._producer.failures[0]
        if time.monotonic() > self._answers_by_s:
            raise DriverNotLoadedError(DRIVER_SILENT)
