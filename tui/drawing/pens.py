"""Pens: a style as the escape codes of one terminal, and the shortest way from one pen to the next.

Codes are those of ECMA-48, section 8.3.117 (SGR). Links are not written: none is ours.
"""

from functools import lru_cache
from typing import NamedTuple

from rich.color import ColorSystem
from rich.style import Style

_ON = ("1", "2", "3", "4", "5", "6", "7", "8", "9", "21", "51", "52", "53")
_OFF = ("22", "22", "23", "24", "25", "25", "27", "28", "29", "24", "54", "54", "55")


class Pen(NamedTuple):
    """How cells are written; equal pens are one and the same object."""

    attributes: tuple[int, ...] = ()
    """Indexes into the table of attributes, in Rich's order."""
    foreground: str = ""
    background: str = ""


PLAIN = Pen()
"""The terminal's own colours, no attribute."""

_known: dict[Pen, Pen] = {PLAIN: PLAIN}


@lru_cache(maxsize=4096)
def pen_of(style: Style, color_system: ColorSystem) -> Pen:
    """Return the pen that writes a style on a terminal of so many colours."""
    attributes = style._attributes & style._set_attributes
    pen = Pen(
        tuple(bit for bit in range(len(_ON)) if attributes & (1 << bit)),
        ";".join(style.color.downgrade(color_system).get_ansi_codes()) if style.color else "",
        ";".join(style.bgcolor.downgrade(color_system).get_ansi_codes(False)) if style.bgcolor else "",
    )
    return _known.setdefault(pen, pen)


@lru_cache(maxsize=16384)
def change_pen(old: Pen, new: Pen) -> str:
    """Return the shortest escape sequence that makes the terminal write with `new` after `old`."""
    return f"\x1b[{min(_difference(old, new), _from_scratch(new), key=len)}m" if old != new else ""


def _from_scratch(new: Pen) -> str:
    """Return the codes that reset everything and set the pen."""
    parts = ["", *(_ON[index] for index in new.attributes), new.foreground, new.background]
    return ";".join(part for number, part in enumerate(parts) if part or number == 0)


def _difference(old: Pen, new: Pen) -> str:
    """Return the codes that change only what differs."""
    gone = {_OFF[index] for index in old.attributes if index not in new.attributes}
    kept = [index for index in new.attributes if index in old.attributes and _OFF[index] not in gone]
    parts = sorted(gone) + [_ON[index] for index in new.attributes if index not in kept]
    if old.foreground != new.foreground:
        parts.append(new.foreground or "39")
    if old.background != new.background:
        parts.append(new.background or "49")
    return ";".join(parts)
