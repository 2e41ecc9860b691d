"""A name that is looked up in a table, and the nearest ones where it is not there."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

from ...engine.errors import UsageError

Value = TypeVar("Value")


def find_by_name(table: Mapping[str, Value], name: str, what: str, example: str) -> Value:
    """Return what a name stands for, whatever its case; `_` and blanks count as `-`.

    Args:
        table: By name, in lower case.
        name: As a person wrote it.
        what: What the table holds, for the error.
        example: What else could be written instead, for the error.

    Raises:
        UsageError: No such name; the text has the nearest ones.
    """
    plain = "-".join(name.strip().lower().replace("_", " ").split())
    if plain in table:
        return table[plain]
    containing = [known for known in table if plain and plain in known]
    near = containing[:3] or get_close_matches(plain, table, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(table)}"
    raise UsageError(f"{what} {name[:60]!r} is not known: {hint} {example}")
