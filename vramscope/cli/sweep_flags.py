"""Flags that verbs about sweeps share."""

from vramscope.engine.errors import UsageError

ITERATION_HELP = "take the peak of iteration N, counted from 0 (default: the highest of all iterations)"


def read_iteration(text: str | None) -> int | None:
    """Return the number that `--iteration` was given, None without it.

    Raises:
        UsageError: It is no whole number from 0 on.
    """
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise UsageError(f"--iteration {text}: expected a whole number from 0 on")
    return int(text)


def read_number(flag: str, text: str, least: float, most: float) -> float:
    """Return the number that a flag was given.

    Raises:
        UsageError: It is none, or out of range.
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise UsageError(f"{flag} {text}: expected a number from {least:g} to {most:g}")
    return value
