"""Filters between the widgets and the terminal: printable text, and seven bits where asked for."""

from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from ...engine.text import make_printable

_STAND_INS = {
    "-": "—–─━┄╌╍═▔▁▂▃━‐‑−",
    "|": "│┃║╎╏▏▎▍▌▐▕▊▋·•",
    "+": "┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝┏┓┗┛",
    "#": "█▉▇▆▅▓▀▄▛▜▙▟▗▖▝▘",
    "=": "▒",
    ".": "░",
    "~": "…",
    "^": "▲△↑⇧",
    "v": "▼▽↓",
    ">": "→▶▸▷›",
    "<": "←◀◂◁‹",
    "X": "✖✗",
    "x": "×",
    "*": "◆●○✓☐☑■□",
    "'": "’‘′",
    '"': "“”″",
    "u": "µ",
    " ": "\u00a0\u2009\u202f⠀°",
}
_TABLE = {ord(character): stand_in for stand_in, characters in _STAND_INS.items() for character in characters}


@lru_cache(maxsize=1024)
def to_ascii(text: str) -> str:
    """Return text in ASCII that takes the same cells; characters without a look-alike become `?`."""
    if text.isascii():
        return text
    translated = text.translate(_TABLE)
    if translated.isascii():
        return translated
    return "".join(c if c.isascii() else "?" * cell_len(c) for c in translated)


class PrintableFilter(LineFilter):
    """Makes every line that any widget draws printable: lists, titles, the palette and notices too."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments, unchanged where nothing in them would control the terminal."""
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [segment._replace(text=make_printable(segment.text)) for segment in segments]


class AsciiFilter(LineFilter):
    """Rewrites every line that any widget draws: borders, scroll bars, palette and notices too."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment
            if segment.text.isascii()
            else Segment(to_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]
