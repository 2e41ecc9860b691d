"""Ranks that should be alike, side by side. None is unmeasured."""

import msgspec

from ..subjects import SubjectKey


class RankLevel(msgspec.Struct, frozen=True):
    """One rank beside its peers, over the newest block of time in which all of them ended a step."""

    key: SubjectKey
    name: str
    floor_bytes: int
    """Least live bytes at step ends."""
    peak_bytes: int
    """Most live bytes."""
    above_bytes: int
    """Its floor less the middle floor of the group."""


class RankGroup(msgspec.Struct, frozen=True):
    """Ranks of one job that should be alike: of one pipeline stage, or of a job that tells no stages."""

    node: str
    job: str
    stage: int | None
    """Pipeline stage; None where none is known, and levels may differ by nature."""
    time_s: float
    ranks: tuple[RankLevel, ...]
    straggler: str | None
    """Name of the rank with the highest peak; None where stages are unknown or all are alike."""
    spread: float | None
    """How far that peak is above the middle one, as a share of the latter."""
