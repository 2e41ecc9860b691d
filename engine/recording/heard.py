"""What a recording is told: samples, and what analyzers say of them."""

from typing import NamedTuple

from ..model import Assessment, Finding, Sample


class Words(NamedTuple):
    """What analyzers said after the newest sample."""

    findings: tuple[Finding, ...] = ()
    assessments: tuple[Assessment, ...] | None = None
    """All that stand; None where none has changed."""


Heard = Sample | Words
