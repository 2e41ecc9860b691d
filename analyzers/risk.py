"""How near a device is to running out of memory, as far as anybody can say."""

from collections.abc import Sequence

import msgspec

from ..engine.model import SEVERITIES, DeviceSample, Finding, RiskLevel
from ..engine.units import format_age
from .capacity import KIND as CAPACITY
from .out_of_memory_track import OOM_MET, RETRIES

_DECISIVE = ("oom", CAPACITY, OOM_MET, RETRIES)


class Risk(msgspec.Struct, frozen=True):
    """Risk of running out of memory, with why it is what it is."""

    level: RiskLevel
    reason: str
    """A few words for a person; for a known level the finding's own sentence."""


def assess_risk(device: DeviceSample, findings: Sequence[Finding]) -> Risk:
    """Return the out-of-memory risk of one device.

    A forecast is an open finding of kind `oom`. Recorded use above the capacity that was asked about
    (`capacity`), an error that was met (`oom_met`) and a device that refused its allocator memory (`retries`)
    are facts and count as much; without any the level is `unknown`, because a caching allocator fills a
    device in healthy jobs too.

    Args:
        device: The device at its newest tick.
        findings: Findings of its node, of any kind, open or closed.
    """
    if device.state == "lost":
        return Risk("unknown", "device lost")
    forecast = _gravest_forecast(device, findings)
    if forecast is not None:
        return Risk(forecast.severity, forecast.title)
    if device.state == "ended":
        return Risk("unknown", "ended" if device.age_s is None else f"ended {format_age(device.age_s)} ago")
    return Risk("unknown", _explain_unknown(device))


def _gravest_forecast(device: DeviceSample, findings: Sequence[Finding]) -> Finding | None:
    forecasts = [
        finding
        for finding in findings
        if finding.kind in _DECISIVE and finding.is_open and finding.device_uuid == device.uuid
    ]
    return max(forecasts, key=lambda finding: SEVERITIES.index(finding.severity), default=None)


def _explain_unknown(device: DeviceSample) -> str:
    if device.state == "stale":
        return "stale" if device.age_s is None else f"stale {format_age(device.age_s)}"
    if device.state == "unsupported":
        return "memory not readable"
    allocator = device.allocator
    if allocator is None or (allocator.allocated_bytes is None and allocator.reserved_bytes is None):
        return "no allocator data"
    return _explain_partial(device)


def _explain_partial(device: DeviceSample) -> str:
    allocator = device.allocator
    is_recorded = device.kind == "trace"
    missing = []
    if allocator is not None and allocator.reserved_bytes is None:
        missing.append("reserved bytes")
    if device.memory.total_bytes is None:
        missing.append("capacity")
    if not missing:
        return "no forecast from allocator data"
    return f"{' and '.join(missing)} not {'recorded' if is_recorded else 'known'}"
