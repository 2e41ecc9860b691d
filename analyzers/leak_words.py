"""A leak in the few words that a panel has room for, and the place in the program that is suspected."""

from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from ..engine.model import SEVERITIES, Finding, Severity
from ..engine.units import format_bytes

KIND = "leak"
TIME_LEFT = "time to out of memory"
"""Evidence of a leak: seconds at its pace, where the capacity is known."""
_RATE = "growth a second"
_RATE_PER_STEP = "growth a step"
_GROWN = "grown since onset"
_ONSET_STEP = "step at onset"
_FILE = "source file"

Known = dict[str, float | int | str | None]
"""Evidence by its name."""


class LeakWords(msgspec.Struct, frozen=True):
    """What is said of the gravest leak on a device."""

    severity: Severity
    text: str
    """`leak +20 MiB/step since step 1,310 (10.4 GiB)`."""
    brief: str
    """`leak +20 MiB/step`."""
    place: str | None
    """`train.py:212`; None where nobody is suspected."""


def describe_leak(findings: Sequence[Finding], device_uuid: str | None) -> LeakWords | None:
    """Return the gravest open leak of device memory on a device in few words; None without one.

    Args:
        findings: Findings of the node.
        device_uuid: The device.
    """
    leaks = [found for found in findings if _is_of(found, device_uuid)]
    leak = max(leaks, key=lambda found: (SEVERITIES.index(found.severity), found.updated_s), default=None)
    if leak is None:
        return None
    known = {evidence.name: evidence.value for evidence in leak.evidence}
    rate = _word_rate(known)
    past = _word_past(known)
    return LeakWords(leak.severity, f"{rate}{past}", rate, _find_place(known))


def _is_of(finding: Finding, device_uuid: str | None) -> bool:
    return finding.kind == KIND and finding.is_open and finding.device_uuid == device_uuid


def _word_rate(known: Known) -> str:
    per_step = _number(known, _RATE_PER_STEP)
    rate = _number(known, _RATE)
    if per_step is not None:
        return f"leak +{format_bytes(round(per_step))}/step"
    return "leak" if rate is None else f"leak +{format_bytes(round(60 * rate))}/min"


def _word_past(known: Known) -> str:
    grown = _number(known, _GROWN)
    step = _number(known, _ONSET_STEP)
    since = "" if step is None else f" since step {int(step):,}"
    return since if grown is None else f"{since} ({format_bytes(int(grown))})"


def _number(known: Known, name: str) -> float | None:
    value = known.get(name)
    return value if isinstance(value, int | float) else None


def _find_place(known: Known) -> str | None:
    value = known.get(_FILE)
    return PurePath(value).name if isinstance(value, str) else None
