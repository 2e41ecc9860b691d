"""How near a process is to running out of memory, as the forecast says; the newest word stands.

A finding tells of a crossing; an assessment is there from the first forecast on, and says too that all is
well.
"""

from typing import Literal

import msgspec

from .headroom import HeadroomEstimate

RiskLevel = Literal["unknown", "low", "medium", "high", "critical"]
"""`unknown` is an answer of its own: device memory alone cannot foretell out-of-memory."""


class Assessment(msgspec.Struct, frozen=True, gc=False):
    """The forecast for one training process, or for one device where no process reports; None is unknown."""

    node: str
    device_uuid: str | None
    device: str | None
    """Label of the device (`DeviceSample.label`)."""
    time_s: float
    """Time of the sample that it rests on, in the samples' own clock."""
    level: RiskLevel
    reason: str
    """Why the level is what it is, in a few words."""
    pid: int | None = None
    """None where it speaks of the device as a whole."""
    started_s: float | None = None
    rank: int | None = None
    memory_source: Literal["allocator", "device"] = "allocator"
    """Whose figures it rests on: live tensors, or device used where nothing better is known."""
    confidence: float | None = None
    """Calibrated probability that the level is right, 0 to 1."""
    horizon_s: float | None = None
    probability: float | None = None
    """Probability of an out-of-memory error within `horizon_s`, 0 to 1."""
    steps_ahead: int | None = None
    probability_within_steps: float | None = None
    """Probability of an error within the next `steps_ahead` training steps, 0 to 1."""
    oom_in_s: float | None = None
    """Median time to the error from `time_s` on; None where none is foreseen."""
    oom_in_low_s: float | None = None
    """Lower end of the 80 % interval."""
    oom_in_high_s: float | None = None
    capacity_bytes: int | None = None
    """Most that its live tensors can really take."""
    floor_bytes: int | None = None
    """Live bytes at step ends."""
    peak_bytes: int | None = None
    """Most live bytes within recent steps."""
    growth_bytes_per_s: float | None = None
    """Robust rate at which the floor rises."""
    growth_bytes_per_step: float | None = None
    watched_s: float | None = None
    watched_steps: int | None = None
    headroom: tuple[HeadroomEstimate, ...] = ()
    """The largest step that would fit, by tokens and by samples, where the program tells its sizes."""
