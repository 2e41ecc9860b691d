"""The numbers behind a finding, as people read them."""

from ...engine.model import Evidence
from ...engine.units import format_age, format_bytes
from .title_line import format_time

LATEST_SPAN_S = 1e9
"""Seconds beyond this are a moment, not a span."""
AGE_FROM_S = 120.0
"""Spans from here on are said in minutes, hours or days."""
PROCESS_NAMES = ("process", "pid")
"""Evidence that is the number of a process: a name of digits, and no quantity."""


def tell_value(evidence: Evidence, clock: str) -> str:
    """Return one number with its unit; bytes in the unit that suits them, moments as the time of day.

    Args:
        evidence: The number.
        clock: Clock of the samples that it is about.
    """
    value, unit = evidence.value, evidence.unit
    if value is None:
        return "—"
    if isinstance(value, int | float) and unit == "s" and value > LATEST_SPAN_S:
        return format_time(value, clock)
    if isinstance(value, int | float) and unit == "s" and value >= AGE_FROM_S:
        return format_age(value)
    if isinstance(value, int | float) and unit.startswith("bytes"):
        return format_bytes(int(value)) + unit.removeprefix("bytes")
    if evidence.name in PROCESS_NAMES:
        return str(value)
    number = f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else value
    return f"{number} {unit}" if unit else number
