"""A law in words: `1.9 MiB + 0.81 MiB/token`."""

from collections.abc import Sequence

from ....engine.units import GIB, KIB, MIB
from .law import LengthLaw
from .peaks import PhaseLaw
from .series import LengthSeries

_UNITS = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "B"))


def say_law(law: LengthLaw | None, points: int) -> str:
    """Return a law in words, or that there is none.

    Args:
        law: The law, or None.
        points: How many there were to find it from.
    """
    if law is None:
        return "1 point, no law" if points == 1 else f"{points} points, no law"
    terms = [
        (law.constant_bytes, ""),
        (law.bytes_per_token, "/token"),
        (law.bytes_per_token_squared, "/token^2"),
    ]
    said = [(value < 0, say_size(abs(value)) + per) for value, per in terms if say_size(abs(value)) != "0 B"]
    return _join(said) or "0 B"


def say_series(series: LengthSeries) -> str:
    """Return the law of a series in words, or those that a peak is the largest of, or that there is none."""
    if not series.largest_of:
        return say_law(series.law, series.points)
    told = [f"{say_law(each.law, each.law.points)} ({_say_phase(each)})" for each in series.largest_of]
    return told[0] if len(told) == 1 else f"the largest of {', '.join(told)}"


def say_residual(residual_bytes: float | None) -> str:
    """Return what laws leave over, as `residual 0 B`; nothing without laws."""
    return "" if residual_bytes is None else f"residual {say_size(residual_bytes)}"


def say_size(value_bytes: float) -> str:
    """Return bytes to three figures in a binary unit: `1.25 GiB`, `829 KiB`, a third of a byte `0.333 B`."""
    size, unit = next(((size, unit) for size, unit in _UNITS if abs(value_bytes) >= size), _UNITS[-1])
    value = value_bytes / size
    if abs(value) < 0.0005:
        return "0 B"
    # Three figures, without turning 1,023 KiB into an exponent.
    places = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2 if abs(value) >= 0.9995 else 3
    told = f"{value:.{places}f}"
    return f"{told.rstrip('0').rstrip('.') if '.' in told else told} {unit}"


def _say_phase(law: PhaseLaw) -> str:
    return law.phase if law.step is None else f"{law.phase} of step {law.step}"


def _join(terms: Sequence[tuple[bool, str]]) -> str:
    text = ""
    for is_negative, term in terms:
        sign = (" - " if is_negative else " + ") if text else ("-" if is_negative else "")
        text += sign + term
    return text
