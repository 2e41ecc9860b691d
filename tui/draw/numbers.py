"""Numbers as text of a fixed width, so that nothing jumps when they change."""

import time

from ...engine.units import GIB, format_age, format_seconds
from .glyphs import Glyphs

PERCENT_WIDTH = 5
CELSIUS_WIDTH = 6
WATTS_WIDTH = 6
DURATION_WIDTH = 6


def gib_text(value_bytes: float | None, glyphs: Glyphs) -> str:
    """Return bytes as a number of GiB with one place (`61.2`)."""
    return glyphs.unmeasured if value_bytes is None else f"{value_bytes / GIB:.1f}"


def percent_text(value: float | None, glyphs: Glyphs) -> str:
    """Return a percentage in five cells (` 77 %`)."""
    text = glyphs.unmeasured if value is None else f"{min(999.0, max(0.0, value)):.0f} %"
    return text.rjust(PERCENT_WIDTH)


def celsius_text(value: float | None, glyphs: Glyphs) -> str:
    """Return a temperature in six cells (` 64 °C`)."""
    text = glyphs.unmeasured if value is None else f"{value:.0f} {glyphs.degree}"
    return text.rjust(CELSIUS_WIDTH)


def watts_text(value: float | None, glyphs: Glyphs, *, limit_w: float | None = None) -> str:
    """Return a power in six cells (` 612 W`), or in more with its limit (` 612/700 W`)."""
    if value is not None and limit_w is not None:
        return f"{value:.0f}/{limit_w:.0f} W".rjust(WATTS_WIDTH)
    text = glyphs.unmeasured if value is None else f"{value:.0f} W"
    return text.rjust(WATTS_WIDTH)


def moment_text(time_s: float, clock: str) -> str:
    """Return a moment as people say it: the time of day, or the age of a trace at that moment."""
    if clock == "trace":
        return format_seconds(time_s)
    return time.strftime("%H:%M:%S", time.localtime(time_s))


def span_text(span_s: float) -> str:
    """Return a round span of time in one unit: `90 s`, `10 min`, `2 h`."""
    if span_s < 120:
        return f"{span_s:.0f} s"
    return f"{span_s / 60:.0f} min" if span_s < 7200 else f"{span_s / 3600:.0f} h"


def duration_text(duration_s: float | None, glyphs: Glyphs) -> str:
    """Return how long a step took, in six cells: `  8 ms`, `1.04 s`, ` 214 s`."""
    if duration_s is None:
        text = glyphs.unmeasured
    elif duration_s < 0.9995:
        text = f"{1000 * duration_s:.0f} ms"
    else:
        text = f"{duration_s:.{2 if duration_s < 10 else 1 if duration_s < 100 else 0}f} s"
    return text.rjust(DURATION_WIDTH)


def age_text(age_s: float | None) -> str:
    """Return an age after a word (`stale 7 s`): a blank and the span, or nothing where it is unmeasured."""
    return "" if age_s is None else f" {format_age(max(0.0, age_s))}"


def brief_span_text(span_s: float) -> str:
    """Return a span of time in as few cells as it takes: `7s`, `1m16s`, `2h05m`."""
    return format_age(span_s).replace(" ", "")


def count_text(count: int, noun: str, plural: str) -> str:
    """Return a number of things with the noun that fits it."""
    return f"{count:,} {noun if count == 1 else plural}"
