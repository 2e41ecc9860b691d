"""This node sampled by this very process: its own readings, its own analyzers, nothing started."""

import time
from collections.abc import Callable

from vramscope.engine.agent.analyzer_host import AnalyzerHost
from vramscope.engine.model import Finding, NodeStatus, Sample
from vramscope.engine.sampling.live import LiveProducer, open_node
from vramscope.engine.wire.stores import AssessmentStore
from vramscope.exporters.status.document import describe_sample

EXIT_DRIVER_SILENT = 5
DRIVER_SILENT = "no GPU could be read: the NVIDIA driver does not answer; see `dmesg | grep -i nvrm`"
ANSWERS_WITHIN_S = 5.0
"""A driver that nobody keeps loaded takes seconds to start; one that is silent for longer hangs."""


class LocalNode:
    """Samples and analyzes this node without an agent.

    Args:
        interval_s: Seconds from one sample to the next.
        memory_interval_s: Seconds between two readings of device memory.
    """

    def __init__(self, *, interval_s: float, memory_interval_s: float) -> None:
        self._producer: LiveProducer = open_node(interval_s=interval_s, memory_interval_s=memory_interval_s)
        self._host: AnalyzerHost | None = None
        self._findings: dict[str, Finding] = {}
        self._assessments = AssessmentStore()
        self._notes: list[str] = []
        self._answers_until_s = 0.0

    @property
    def is_decided(self) -> bool:
        """Whether it is known why there is no device, or the driver has been silent for too long."""
        return bool(self._producer.failures) or time.monotonic() >= self._answers_until_s

    @property
    def exit_code(self) -> int:
        """The code of why there is no device."""
        if self._producer.failures:
            return self._producer.failures[0].exit_code
        return EXIT_DRIVER_SILENT

    @property
    def sentences(self) -> list[str]:
        """Why there is no device."""
        return [str(failure) for failure in self._producer.failures] or [DRIVER_SILENT]

    def start(self) -> None:
        """Begin to read on threads of its own."""
        self._answers_until_s = time.monotonic() + ANSWERS_WITHIN_S
        self._producer.start()

    def stop(self) -> None:
        """End all reading; a call that hangs is left behind."""
        self._producer.stop()

    def once(self, meanwhile: Callable[[], None]) -> NodeStatus:
        """Return the state after two samples; the first begins the span of the second.

        Args:
            meanwhile: Called once between the two.
        """
        samples = self._await_samples(None)
        while not (samples[-1].devices or self.is_decided):
            samples = self._await_samples(None)
        self._analyzers().observe(samples[-1])
        meanwhile()
        return self._describe(self._await_samples(None)[-1])

    def next(self, end_s: float | None) -> NodeStatus | None:
        """Return the state at the next sample, or None when the time (monotonic) is up first."""
        samples = self._await_samples(end_s)
        return self._describe(samples[-1]) if samples else None

    def _await_samples(self, end_s: float | None) -> list[Sample]:
        """Return what is due next, one sample at least; nothing when the time is up first."""
        while end_s is None or time.monotonic() < end_s:
            samples = self._producer.take()
            if samples:
                return samples
            wait_s = self._producer.wait_s()
            time.sleep(wait_s if end_s is None else max(0.0, min(wait_s, end_s - time.monotonic())))
        return []

    def _describe(self, sample: Sample) -> NodeStatus:
        host = self._analyzers()
        self._findings.update({finding.id: finding for finding in host.observe(sample)})
        self._assessments.merge(host.assess())
        self._assessments.observe(sample)
        ordered = sorted(self._findings.values(), key=lambda f: (not f.is_open, -f.opened_s))
        failed = [] if host.reason is None else [host.reason]
        notes = [*self._notes, *failed]
        return describe_sample(sample, ordered, assessments=self._assessments.all(), notes=notes)

    def _analyzers(self) -> AnalyzerHost:
        """Return the analyzers; they are looked up after the first sample, while the second is awaited."""
        if self._host is None:
            from vramscope.engine.plugins import make_analyzers

            plugins = make_analyzers()
            self._notes += plugins.notes
            self._host = AnalyzerHost(plugins.made)
        return self._host
