"""The sentence on a fleet: the device that is nearest to running out, and how much of the fleet is seen."""

import re
from collections.abc import Sequence

from ...engine.units import format_age
from ..risk import LEVELS
from ..sentence import Sentence
from ..verdict import Verdict
from .fleet import Coverage
from .model import FleetDevice
from .order import find_gravest

_GRAVE = LEVELS.index("medium")


def judge_fleet(devices: Sequence[FleetDevice], coverage: Coverage) -> Verdict:
    """Return the verdict on a fleet.

    Args:
        devices: Every device that is known.
        coverage: How much of the fleet is seen; less than all of it is always told.
    """
    seen = ((coverage.text, coverage.text.removesuffix(" nodes")),) if coverage.is_partial else ()
    grave = [device for device in devices if LEVELS.index(device.level) >= _GRAVE]
    lead = find_gravest(grave)
    if lead is None:
        return _judge_calm(devices, coverage, seen)
    others = len(grave) - 1
    more = ((f"{others:,} more at risk", f"+{others:,}", ""),) if others else ()
    return Verdict(lead.level, Sentence((_describe_lead(lead), *more, *seen)))


def _judge_calm(
    devices: Sequence[FleetDevice], coverage: Coverage, seen: tuple[tuple[str, ...], ...]
) -> Verdict:
    if not devices:
        text = "No device is known yet" if coverage.total else "Waiting for the first figures"
        return Verdict("unknown", Sentence(((text,), *seen)))
    unknown = sum(device.level == "unknown" for device in devices)
    if not unknown:
        return Verdict(
            "low", Sentence(((f"OOM risk low on all {len(devices):,} devices", "OOM risk low"), *seen))
        )
    told = f"OOM risk unknown on {unknown:,} of {len(devices):,} devices"
    short = "OOM risk unknown"
    return Verdict("unknown", Sentence(((told, f"{short}: {unknown:,}/{len(devices):,}", short), *seen)))


def _describe_lead(lead: FleetDevice) -> tuple[str, ...]:
    """Return which device it is and what threatens it, from the complete form to the shortest."""
    whose, short = f"{lead.name} of {lead.node}", f"{lead.node}/{lead.label}"
    old = " (last word)" if lead.is_old else ""
    if lead.oom_in_s is not None:
        left = format_age(lead.oom_in_s)
        brief = left.replace(" ", "")
        return (
            f"{whose}: out of memory in {left}{old}",
            f"{whose}: OOM in {brief}{old}",
            f"{short}: OOM {brief}",
        )
    reason = re.sub(rf"^{re.escape(lead.name)}\s*(\([^)]*\))?\s*", "", lead.reason).rstrip(".")
    return f"{whose}: {reason}{old}", f"{whose}: {lead.level} risk{old}", f"{short}: {lead.level}"
