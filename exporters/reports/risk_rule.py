"""The rule on usage alone, for devices without an allocator that tells: how full, and nothing foretold."""

from typing import NamedTuple

from ...engine.model import RiskLevel
from ...engine.units import MIB
from .device_log import DeviceLog
from .trend import fit_slope, known_points

SOON_S = 60.0
"""A device that would be full within this time at its present growth stands higher."""
FAST_MIB_PER_S = 10.0
LEAST_SPAN_S = 5.0
"""Growth over a shorter time decides nothing."""
_CONFIDENCE = {"critical": 0.9, "high": 0.8, "medium": 0.6, "low": 0.3}
_RECOMMENDATIONS: dict[RiskLevel, str] = {
    "critical": "Almost all of the device is taken: free memory, or reduce the batch size",
    "high": "The device fills within a minute at this rate: reduce the batch size or empty the cache",
    "medium": "Watch it: much of the device is taken, or what is taken grows fast",
    "low": "Nothing to do: the device is neither full nor filling",
    "unknown": "Nothing can be said: the device does not tell its memory",
}


class ThresholdRisk(NamedTuple):
    """What usage alone says of one device."""

    level: RiskLevel
    confidence: float | None
    """Of the rule, rising with the samples seen; it was never calibrated."""
    growth_mib_per_s: float | None
    time_to_full_s: float | None
    """Free bytes over growth: when the device would be full, not when a job would fail."""

    @property
    def recommendation(self) -> str:
        """What to do, in one sentence."""
        return _RECOMMENDATIONS[self.level]


class Thresholds(NamedTuple):
    """Shares of the device's memory at which the rule changes its word, in percent."""

    warning_percent: float = 85.0
    critical_percent: float = 95.0
    window: int = 30
    """Snapshots that the growth is fitted to, and from which on the rule has its full confidence."""
    is_given: bool = False
    """Whether the user gave them: then usage above them counts, whatever a forecast says."""


def judge_usage(device: DeviceLog, thresholds: Thresholds) -> ThresholdRisk:
    """Return what usage alone says of a device.

    At the critical threshold critical; at the warning threshold medium, or high where it would be full
    within a minute; below it medium where it grows by more than 10 MiB/s, else low. The rule is that of the
    tool whose report this is; growth is the least-squares slope of the window.
    """
    last = device.last
    usage = None if last is None else last.utilization_percent
    growth = fit_growth(device, thresholds.window)
    if last is None or usage is None:
        return ThresholdRisk("unknown", None, growth, None)
    to_full_s = None
    if growth is not None and growth > 0 and last.free_bytes is not None:
        to_full_s = last.free_bytes / (growth * MIB)
    level, base = _judge(
        usage, growth if _is_telling(device, thresholds.window) else None, to_full_s, thresholds
    )
    return ThresholdRisk(level, base * min(1.0, device.count / thresholds.window), growth, to_full_s)


def fit_growth(device: DeviceLog, window: int) -> float | None:
    """Return the growth of what is taken over the newest snapshots, in MiB/s; None for fewer than three.

    Args:
        device: The device.
        window: Most snapshots to fit.
    """
    newest = list(device.snapshots)[-window:]
    slope = fit_slope(known_points((it.time_s, it.load_bytes) for it in newest))
    return None if slope is None else slope / MIB


def _is_telling(device: DeviceLog, window: int) -> bool:
    """Return whether growth is more than what every step allocates and frees again.

    Live bytes rise and fall within each step; what the device or the allocator holds does not.
    """
    newest = list(device.snapshots)[-window:]
    return device.utilization_of != "allocated" and newest[-1].time_s - newest[0].time_s >= LEAST_SPAN_S


def _judge(
    usage: float, growth: float | None, to_full_s: float | None, thresholds: Thresholds
) -> tuple[RiskLevel, float]:
    if usage >= thresholds.critical_percent:
        return "critical", _CONFIDENCE["critical"]
    if usage >= thresholds.warning_percent:
        is_soon = to_full_s is not None and to_full_s < SOON_S
        return ("high", _CONFIDENCE["high"]) if is_soon else ("medium", _CONFIDENCE["medium"])
    if growth is not None and growth > FAST_MIB_PER_S:
        return "medium", 0.5
    return "low", _CONFIDENCE["low"]
