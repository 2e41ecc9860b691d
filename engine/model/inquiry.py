"""What an analyzer asks of a training process when a suspicion needs more than samples."""

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from .finding import Finding
from .sample import Sample
from .segments import SegmentMap


class Inquiry(msgspec.Struct, frozen=True):
    """One question to one process; its answer, if any comes, is a segment map or nothing."""

    verb: Literal["history", "segments"]
    """`history`: record allocations with their stacks for a while; `segments`: a segment map, please."""
    pid: int
    seconds: float | None = None
    """For `history`: how long. For `segments`: how long the process may wait for the end of a step, to take
    the map there; None to take it at once."""
    is_on: bool = True
    """For `history`: record, or stop."""


@runtime_checkable
class Inquirer(Protocol):
    """Looks closer at what analyzers have found: findings in, questions out, maps in, evidence out.

    Pure, as an analyzer is: it has no clock and asks nobody itself. What it adds to a finding is evidence; it
    neither opens nor closes any.
    """

    name: str
    """Name of the inquirer, as in its entry point."""

    def restore(self, findings: Sequence[Finding]) -> None:
        """Learn from open findings of a predecessor what it knew of them."""
        ...

    def follow(self, sample: Sample, findings: Sequence[Finding]) -> Sequence[Inquiry]:
        """Take one sample and what was found in it; return what should be asked now."""
        ...

    def awaits_map(self, node: str, pid: int) -> bool:
        """Return whether a map of this process would be an answer."""
        ...

    def take_map(self, segment_map: SegmentMap) -> None:
        """Take an answer."""
        ...

    def enrich(self, finding: Finding) -> Finding:
        """Return a finding with what is known of it by now; the same object where nothing is."""
        ...
