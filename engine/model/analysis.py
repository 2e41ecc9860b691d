"""What an analyzer is: samples in, findings out, no clock, no input or output of its own."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from .assessment import Assessment
from .finding import Finding
from .sample import Sample


class Analyzer(Protocol):
    """A pure streaming object; live, replayed and imported samples take the same path."""

    name: str
    """Name of the analyzer, as in its entry point."""

    def observe(self, sample: Sample) -> Sequence[Finding]:
        """Take one sample and return the findings it opened, updated or closed.

        Only fields that the history ring keeps may decide, so that a restarted worker that is fed the ring
        concludes the same. `engine/history/block.py` names those of devices, `engine/history/rank_rows.py`
        those of processes, whose bytes are rounded up to 512 there.
        """
        ...

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt findings that a predecessor opened before the first sample that will be observed."""
        ...


@runtime_checkable
class Assessor(Protocol):
    """An analyzer that also says how near each process is to running out of memory."""

    def assess(self) -> Sequence[Assessment]:
        """Return the assessments that changed, as a person would see it, since this was last asked."""
        ...


@runtime_checkable
class Annotator(Protocol):
    """An analyzer that adds what it knows to the assessments of others."""

    def annotate(self, changed: Sequence[Assessment]) -> Sequence[Assessment]:
        """Return assessments with what is known besides, and those to which something else is to be added.

        Args:
            changed: Assessments that changed since this was last asked.
        """
        ...
