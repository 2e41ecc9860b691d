"""A recording as JSON lines, as `vramscope --json` printed them when it was measured."""

from collections.abc import Iterable, Iterator

from ...engine.model import Assessment, Finding, NodeStatus, Sample, order_findings
from ...engine.recording import Recording, Told
from ..status.document import describe_sample


def read_statuses(recording: Recording, samples: Iterable[Sample]) -> Iterator[NodeStatus]:
    """Yield the status object of each sample, with the findings that stood then.

    Args:
        recording: Where the samples are from.
        samples: In the order of the recording.
    """
    told = _Following(recording.told() if len(recording.nodes) == 1 else iter(()))
    for sample in samples:
        findings, assessments = told.at(sample.time_s)
        yield describe_sample(sample, findings, assessments=assessments)


class _Following:
    """What stood at a time, from what was said until then."""

    def __init__(self, told: Iterator[Told]) -> None:
        self._told = told
        self._next = next(told, None)
        self._findings: dict[str, Finding] = {}
        self._assessments: tuple[Assessment, ...] = ()

    def at(self, time_s: float) -> tuple[tuple[Finding, ...], tuple[Assessment, ...]]:
        """Return the open findings and those that have just closed, and the assessments."""
        self._findings = {key: it for key, it in self._findings.items() if it.is_open}
        while self._next is not None and self._next.time_s <= time_s:
            self._findings.update((finding.id, finding) for finding in self._next.findings)
            if self._next.assessments is not None:
                self._assessments = self._next.assessments
            self._next = next(self._told, None)
        return order_findings(self._findings.values()), self._assessments
