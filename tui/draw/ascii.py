"""Text in seven bits: a look-alike for each character that the screens draw."""

from functools import lru_cache

from rich.cells import cell_len

_STAND_INS = {
    "-": "—–─━┄╌╍═▔▁▂▃━‐‑−",
    "|": "│┃║╎╏▏▎▍▌▐▕▊▋·•",
    "+": "┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝┏┓┗┛",
    "#": "█▉▇▆▅▓▀▄▛▜▙▟▗▖▝▘",
    "=": "▒",
    ".": "░",
    "/": "↗",
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
