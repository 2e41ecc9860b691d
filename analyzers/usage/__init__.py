"""How much of each device is used: current, peak and average, and memory that idle processes hold."""

from .analyzer import UsageAnalyzer
from .idle_track import KIND as IDLE_HELD
from .summary import UsageSummary

__all__ = ["IDLE_HELD", "UsageAnalyzer", "UsageSummary"]
