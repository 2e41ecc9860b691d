"""The trend of used memory in words: they never say that memory runs out, which it alone cannot know."""

from ..engine.model import DeviceTrend, RiskLevel, TrendWord
from ..engine.units import MIB, format_bytes

# Why the risk is unknown of a device whose processes have no probe.
NO_ALLOCATOR_DATA = "no allocator data"
NO_FORECAST = "device memory only, may be cache"
IF_IT_GOES_ON = "if that goes on"
# Units of time with their seconds, and from how many of the unit before they are used.
_UNITS = (("s", 1.0, 0.0), ("min", 60.0, 90.0), ("h", 3600.0, 90.0), ("d", 86_400.0, 36.0))


def grade_trend(word: TrendWord | None) -> RiskLevel | None:
    """Return the level of risk that a trend looks like everywhere; None if it looks like any text."""
    return "medium" if word == "filling" else None


def word_trend(trend: DeviceTrend, now_s: float) -> tuple[str, ...]:
    """Return the word with what is known of it, as of now, from the complete form to the word alone.

    First goes how long it has grown, then that no error is forecast, then the rate, then the time.
    """
    growth = word_growth(trend, now_s)
    if growth is None or trend.rate_bytes_per_s is None:
        return (trend.word,)
    rate = f"{trend.word}, {word_rate(trend.rate_bytes_per_s)}"
    end = word_full_in(trend, now_s)
    if end is None:
        return f"{trend.word}, {growth}", rate, trend.word
    end = f"{end} {IF_IT_GOES_ON}"
    return (
        f"{trend.word}, {growth}, {end} ({NO_FORECAST})",
        f"{rate}, {end} ({NO_FORECAST})",
        f"{rate}, {end}",
        f"{trend.word}, {end}",
        f"{trend.word}, {end.removesuffix(f' {IF_IT_GOES_ON}')}",
        trend.word,
    )


def word_rate(bytes_per_s: float) -> str:
    """Return a rate for people: `+7.2 GiB/min`, `+310 MiB/h`."""
    per_minute = bytes_per_s * 60
    if per_minute >= MIB:
        return f"+{format_bytes(round(per_minute))}/min"
    return f"+{format_bytes(round(per_minute * 60))}/h"


def word_growth(trend: DeviceTrend, now_s: float) -> str | None:
    """Return how fast used memory grows and for how long: `+7.2 GiB/min for 4 min`; None without growth."""
    if trend.rate_bytes_per_s is None:
        return None
    value, unit, _ = _choose_unit(now_s - trend.since_s)
    return f"{word_rate(trend.rate_bytes_per_s)} for {value} {unit}"


def word_full_in(trend: DeviceTrend, now_s: float) -> str | None:
    """Return when the device would be full, as of now: `full in 2–3 min`; None where it does not fill."""
    if trend.full_in_low_s is None or trend.full_in_high_s is None:
        return None
    passed_s = now_s - trend.time_s
    last, unit, unit_s = _choose_unit(trend.full_in_high_s - passed_s)
    first = max(0, round((trend.full_in_low_s - passed_s) / unit_s))
    if first >= last:
        return f"full in {last} {unit}"
    return f"full in {first}–{last} {unit}" if first else f"full in under {last} {unit}"


def _choose_unit(seconds: float) -> tuple[int, str, float]:
    """Return a time as a whole number of a fitting unit, at least 1, with the seconds of that unit."""
    name, unit_s = _UNITS[0][:2]
    for longer, longer_s, least in _UNITS[1:]:
        if seconds < least * unit_s:
            break
        name = longer
        unit_s = longer_s
    return max(1, round(seconds / unit_s)), name, unit_s
