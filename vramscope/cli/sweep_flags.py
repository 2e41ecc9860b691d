"""Flags that verbs about sweeps share."""

from argparse import Namespace
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError
from vramscope.engine.units import GIB

from .frame.flag_words import add_old_flag
from .frame.parser_flags import read_capacity

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

DEFAULT_CAPACITY_GIB = 80.0
LEAST_CAPACITY_GIB = 0.0009
MOST_CAPACITY_GIB = 1e6

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


def add_sweep_capacity_flag(group: "_ArgumentGroup") -> None:
    """Add the flag that says how much memory a card has; the old one counted GiB."""
    group.add_argument(
        "--capacity", metavar="SIZE", help=f"memory of each card (default {DEFAULT_CAPACITY_GIB:g}GiB)"
    )
    add_old_flag(group, "--max-memory", use="--capacity SIZE, for example 80GiB", dest="max_memory")


def read_sweep_capacity(arguments: Namespace) -> float:
    """Return the memory of each card in GiB.

    Raises:
        UsageError: It is no size, out of range, or given twice.
    """
    text: str | None = getattr(arguments, "max_memory", None)
    if text is not None and arguments.capacity is not None:
        raise UsageError("--max-memory does not go with --capacity: give --capacity alone")
    if text is not None:
        return read_number("--max-memory", text, LEAST_CAPACITY_GIB, MOST_CAPACITY_GIB)
    capacity_bytes = read_capacity(arguments)
    if capacity_bytes is None:
        return DEFAULT_CAPACITY_GIB
    capacity_gib = capacity_bytes / GIB
    if not LEAST_CAPACITY_GIB <= capacity_gib <= MOST_CAPACITY_GIB:
        raise UsageError(
            f"--capacity {arguments.capacity}: expected 1MiB to {MOST_CAPACITY_GIB:,.0f}GiB, as 80GiB"
        )
    return capacity_gib


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
