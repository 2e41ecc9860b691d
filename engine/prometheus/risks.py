"""How near processes are to running out of memory, as their agents say, who see every step."""

from collections.abc import Iterable, Sequence
from typing import get_args

import msgspec

from ..model import Assessment, RiskLevel
from ..wire.assessments import assessment_key
from .readings import Subject, parse_whole

SAID = "its agent says so"
LEVELS: tuple[RiskLevel, ...] = get_args(RiskLevel)


def read_assessment(
    node: str, key: tuple[str, str], subject: Subject, time_s: float, since_s: float
) -> Assessment | None:
    """Return what an agent says at a moment; None where it says nothing of the present.

    Args:
        node: Name of the node.
        key: UUID of the device and process id, empty where it is of none.
        subject: The figures.
        time_s: The moment.
        since_s: A figure that is older than this is not of the present.
    """
    uuid, pid = key
    level = next((it for it in LEVELS if subject.read(f"level {it}", since_s) == 1), None)
    if level is None or (pid and parse_whole(pid) is None):
        return None
    return Assessment(
        node,
        uuid or None,
        subject.label("device"),
        time_s,
        level,
        SAID,
        pid=parse_whole(pid),
        rank=parse_whole(subject.label("rank")),
        memory_source="allocator" if pid else "device",
        horizon_s=subject.read("horizon", since_s),
        probability=subject.read("probability", since_s),
        oom_in_s=subject.read("in", since_s),
        oom_in_low_s=subject.read("in_low", since_s),
        oom_in_high_s=subject.read("in_high", since_s),
    )


def prefer_told(found: Iterable[Assessment], told: Sequence[Assessment]) -> tuple[Assessment, ...]:
    """Return what was found, with what agents say of the same instead where they do."""
    known = {assessment_key(it): it for it in found}
    for assessment in told:
        key = assessment_key(assessment)
        known[key] = _amend(known[key], assessment) if key in known else assessment
    return tuple(known.values())


def _amend(found: Assessment, told: Assessment) -> Assessment:
    """Return a forecast as it was told, with the levels of memory that were found beside it."""
    return msgspec.structs.replace(
        found,
        level=told.level,
        reason=found.reason if found.level == told.level else told.reason,
        confidence=None,
        horizon_s=told.horizon_s,
        probability=told.probability,
        steps_ahead=None,
        probability_within_steps=None,
        oom_in_s=told.oom_in_s,
        oom_in_low_s=told.oom_in_low_s,
        oom_in_high_s=told.oom_in_high_s,
    )
