"""Numbers in flags of verbs about sweeps."""

from vramscope.engine.errors import UsageError


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
