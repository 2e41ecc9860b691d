"""Inquirers side by side: what they ask, what they add to findings; one that fails is set aside."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ..model import Finding, Sample, SegmentMap
from ..model.inquiry import Inquirer, Inquiry

T = TypeVar("T")
MOST_INQUIRIES = 64
"""Questions that wait to be sent; the newest are dropped beyond."""


class CloserLook:
    """Lets inquirers follow what is found, and enrich it before anybody sees it."""

    def __init__(self, inquirers: Sequence[Inquirer]) -> None:
        self._inquirers = list(inquirers)
        self._open: dict[str, Finding] = {}
        self._inquiries: list[Inquiry] = []
        self.reason: str | None = None
        """Why an inquirer was set aside."""

    def restore(self, findings: Sequence[Finding]) -> None:
        """Hand findings of a predecessor to the inquirers."""
        for inquirer in tuple(self._inquirers):
            self._try(inquirer, lambda it: it.restore(findings), None)
        self._open.update((finding.id, finding) for finding in findings if finding.is_open)

    def follow(self, sample: Sample, findings: Sequence[Finding]) -> list[Finding]:
        """Take one sample with what was found in it; return the same findings with what is known of them."""
        for inquirer in tuple(self._inquirers):
            nothing: Sequence[Inquiry] = ()
            asked = self._try(inquirer, lambda it: it.follow(sample, findings), nothing)
            self._inquiries += asked[: MOST_INQUIRIES - len(self._inquiries)]
        for finding in findings:
            if finding.is_open:
                self._open[finding.id] = finding
            else:
                self._open.pop(finding.id, None)
        return [self._enrich(finding) for finding in findings]

    def take_inquiries(self) -> list[Inquiry]:
        """Return what should be asked, each once."""
        inquiries, self._inquiries = self._inquiries, []
        return inquiries

    def awaits_map(self, node: str, pid: int) -> bool:
        """Return whether anybody waits for a map of this process."""
        return any(
            self._try(inquirer, lambda it: it.awaits_map(node, pid), False)
            for inquirer in tuple(self._inquirers)
        )

    def take_map(self, segment_map: SegmentMap) -> list[Finding]:
        """Take an answer; return the open findings of which more is known by it."""
        before = {finding.id: self._enrich(finding) for finding in self._open.values()}
        for inquirer in tuple(self._inquirers):
            self._try(inquirer, lambda it: it.take_map(segment_map), None)
        after = [self._enrich(finding) for finding in self._open.values()]
        return [finding for finding in after if finding != before[finding.id]]

    def _enrich(self, finding: Finding) -> Finding:
        for inquirer in tuple(self._inquirers):
            finding = self._try(inquirer, lambda it, known=finding: it.enrich(known), finding)  # type: ignore[misc]
        return finding

    def _try(self, inquirer: Inquirer, act: Callable[[Inquirer], T], otherwise: T) -> T:
        try:
            return act(inquirer)
        except Exception as error:  # noqa: BLE001 - an inquirer's bug is told, and the findings go on without it
            self._inquirers.remove(inquirer)
            self.reason = f"inquirer {inquirer.name} failed and was set aside: {error!r}"
            return otherwise
