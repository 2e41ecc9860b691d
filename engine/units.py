"""Sizes and durations: read as people write them, printed in binary units with fixed places."""

import math
import re

from .errors import UsageError

KIB = 1024
MIB = 1024**2
GIB = 1024**3
TIB = 1024**4

LARGEST_BYTES = (1 << 53) - 1
"""Every smaller whole number is a float too."""

_DECIMAL_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_UNITS = _DECIMAL_UNITS | {"ki": KIB, "mi": MIB, "gi": GIB, "ti": TIB}
_SIZE = re.compile(r"^\s*(\d+(?:,\d{3})*(?:\.\d+)?)\s*([kmgt]?i?)b?\s*$", re.IGNORECASE)
_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?\s*$", re.IGNORECASE)
_SECONDS = {None: 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_bytes(text: str) -> int:
    """Parse a size such as `24GiB`, `500 MB` or `1073741824`; raises `UsageError`."""
    match = _SIZE.match(text)
    unit = match.group(2).lower() if match else ""
    if match is None or unit not in _UNITS:
        raise UsageError(f"not a size: {text!r}; expected a number with a unit, for example 24GiB or 500MB")
    size = float(match.group(1).replace(",", "")) * _UNITS[unit]
    if size > LARGEST_BYTES:
        raise UsageError(f"too large for a size: {_shorten(text)}; expected at most {LARGEST_BYTES:,} bytes")
    return round(size)


def parse_device_bytes(text: str) -> int:
    """Parse a size of device memory; raises `UsageError`, also for a bare number that lacks its unit."""
    size = parse_bytes(text)
    number = text.strip()
    if 0 < size < MIB and number[-1].isdigit():
        likely = f"{number[:20]}{'GiB' if size < 1000 else 'MiB'}" if size < 200_000 else "another unit"
        raise UsageError(f"a number without a unit is in bytes; {likely} is likely meant")
    return size


def parse_duration(text: str) -> float:
    """Parse a duration such as `0.5`, `90s`, `10m` or `2h` to seconds; raises `UsageError`."""
    match = _DURATION.match(text)
    if match is None:
        raise UsageError(f"not a duration: {text!r}; expected for example 0.5, 90s, 10m or 2h")
    unit = match.group(2)
    seconds = float(match.group(1)) * _SECONDS[unit.lower() if unit else None]
    if seconds == math.inf:
        raise UsageError(f"too long for a duration: {_shorten(text)}")
    return seconds


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 20 else f"{text[:19]}…")


def format_gib(value_bytes: int | None, places: int = 1) -> str:
    """A plain number of GiB (`61.2`), or `—` if unmeasured."""
    return "—" if value_bytes is None else f"{value_bytes / GIB:.{places}f}"


def format_bytes(value_bytes: int | None) -> str:
    """With the binary unit that suits them (`512 MiB`, `61.2 GiB`), or `—` if unmeasured."""
    if value_bytes is None:
        return "—"
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(value_bytes) >= unit:
            value = value_bytes / unit
            return f"{value:,.0f} {name}" if abs(value) >= 1000 or unit <= MIB else f"{value:.1f} {name}"
    return f"{value_bytes:,} B"


def share_percent(part: float | None, whole: float | None) -> float | None:
    """Return how much of `whole` `part` is, in percent; None where either is unmeasured."""
    return None if part is None or not whole else 100.0 * part / whole


def format_share(share: float | None, places: int = 0) -> str:
    """A share of one in percent (`75 %`), or `—` if unmeasured."""
    return "—" if share is None else f"{100 * share:.{places}f} %"


def format_seconds(time_s: float, places: int = 1) -> str:
    """A moment or a span in seconds (`1,199.0 s`), the same on axes, in titles and in sentences."""
    return f"{time_s:,.{places}f} s"


def format_left(left_s: float) -> str:
    """A time that is left, to the nearest second, the same in every sentence and column; never below 0."""
    return format_age(max(0, round(left_s)))


def format_age(age_s: float) -> str:
    """A time span in its largest fitting unit, as people say it: `7 s`, `3 m 20 s`, `2 h 05 m`."""
    seconds = int(age_s)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} m {seconds % 60:02d} s"
    if seconds < 86400:
        return f"{seconds // 3600} h {seconds % 3600 // 60:02d} m"
    return f"{seconds // 86400} d {seconds % 86400 // 3600:02d} h"
