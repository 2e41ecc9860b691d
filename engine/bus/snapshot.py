"""What a viewer draws from: one frozen picture of a node."""

from typing import Literal

import msgspec

from ..model import Finding, HubStatus, Sample


class Snapshot(msgspec.Struct, frozen=True):
    """The newest state of a node as one viewer knows it."""

    connection: Literal["connecting", "live", "lost"] = "connecting"
    """`lost`: the hub is silent or gone; the sample is the last one it sent."""
    reason: str | None = None
    """Why the connection is not live, in one sentence."""
    silent_s: float | None = None
    """Seconds since the hub last spoke, while the connection is lost."""
    sample: Sample | None = None
    findings: tuple[Finding, ...] = ()
    """Open findings first, then recently closed ones, newest first within each."""
    hub: HubStatus | None = None
    samples_dropped: int = 0
    """Samples that never reached this viewer."""
