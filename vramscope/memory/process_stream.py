"""This node by our own readings, and this process by what its allocator says."""

import os
import time
from collections.abc import Iterable, Sequence

import msgspec

from vramscope.engine.model import Finding, Sample, SegmentMap
from vramscope.engine.sampling.live import LiveProducer, open_node
from vramscope.exporters.reports.frame import Provenance

from .own_process import OwnError, OwnProcess

MEMORY_INTERVAL_S = 0.1


class ProcessStream:
    """Samples the driver, where one is there, and the allocator of this process, where it has one.

    Args:
        interval_s: Seconds from one sample to the next.
    """

    def __init__(self, interval_s: float) -> None:
        self._producer: LiveProducer = open_node(
            interval_s=interval_s, memory_interval_s=min(MEMORY_INTERVAL_S, 0.5 * interval_s)
        )
        self._own = OwnProcess()
        self._newest: Sample | None = None
        self._has_allocator = False

    @property
    def provenance(self) -> Provenance:
        """Where the samples come from, and why there is no device where there is none."""
        newest = self._newest
        has_devices = newest is not None and bool(newest.devices)
        notes = () if has_devices else tuple(str(failure) for failure in self._producer.failures)
        return Provenance(source="process" if self._has_allocator else "driver", notes=notes)

    @property
    def agent(self) -> None:
        """None: no agent is asked."""
        return

    @property
    def is_ended(self) -> bool:
        """Whether this is a fork of the process that was watched, which has no threads to sample with."""
        return os.getpid() != self._own.pid

    @property
    def read_share(self) -> float | None:
        """None: there is no end."""
        return None

    def start(self) -> None:
        """Begin to read on threads of its own, and to take the steps that this process tells."""
        self._producer.start()
        self._own.steps.start()

    def past(self) -> Iterable[Sample]:
        """Yield nothing."""
        return ()

    def take(self, timeout_s: float) -> Sequence[Sample]:
        """Return the sample that follows, or none when the time is up first."""
        end_s = time.monotonic() + timeout_s
        while True:
            samples = [self._add_own(sample) for sample in self._producer.take()]
            left_s = end_s - time.monotonic()
            if samples or left_s <= 0:
                return samples
            time.sleep(min(self._producer.wait_s(), left_s))

    def map_segments(self) -> list[SegmentMap]:
        """Return the segments of the allocator of this process, for each device that it uses."""
        newest = self._newest
        return [] if newest is None else self._own.map_segments(newest.node, newest.devices)

    def take_errors(self) -> list[OwnError]:
        """Return the out-of-memory errors that this process met since the last call."""
        return self._own.take_errors()

    def complete(self, finding: Finding) -> Finding:
        """Return the finding as it is."""
        return finding

    def stop(self) -> None:
        """End all reading; a call that hangs is left behind."""
        self._own.steps.stop()
        self._own.errors.stop()
        self._producer.stop()

    def _add_own(self, sample: Sample) -> Sample:
        devices, ranks = self._own.read(sample.devices)
        self._has_allocator = self._has_allocator or any(rank.allocator is not None for rank in ranks)
        self._newest = msgspec.structs.replace(sample, devices=devices, ranks=ranks)
        return self._newest
