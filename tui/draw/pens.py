"""Pens: how cells are written, and the escape sequences that change from one pen to another."""

from functools import lru_cache
from typing import NamedTuple

# Codes are those of ECMA-48, section 8.3.117 (SGR). Links are not written: we have none.
ON = ("1", "2", "3", "4", "5", "6", "7", "8", "9", "21", "51", "52", "53")
_OFF = ("22", "22", "23", "24", "25", "25", "27", "28", "29", "24", "54", "54", "55")

# Indexes into this table of the words of a style.
ATTRIBUTES = {"bold": 0, "dim": 1, "underline": 3, "reverse": 6}


class Pen(NamedTuple):
    """How cells are written."""

    # Indexes into the table of attributes, in Rich's order.
    attributes: tuple[int, ...] = ()
    foreground: str = ""
    background: str = ""


# The terminal's own colours, no attribute.
PLAIN = Pen()


@lru_cache(maxsize=4096)
def change_pen(old: Pen, new: Pen) -> str:
    """Return the shortest escape sequence that changes the pen from `old` to `new`."""
    return f"\x1b[{min(_difference(old, new), _from_scratch(new), key=len)}m" if old != new else ""


def _from_scratch(new: Pen) -> str:
    parts = ["", *(ON[index] for index in new.attributes), new.foreground, new.background]
    return ";".join(part for number, part in enumerate(parts) if part or number == 0)


def _difference(old: Pen, new: Pen) -> str:
    gone = {_OFF[index] for index in old.attributes if index not in new.attributes}
    kept = [index for index in new.attributes if index in old.attributes and _OFF[index] not in gone]
    parts = sorted(gone) + [ON[index] for index in new.attributes if index not in kept]
    if old.foreground != new.foreground:
        parts.append(new.foreground or "39")
    if old.background != new.background:
        parts.append(new.background or "49")
    return ";".join(parts)
