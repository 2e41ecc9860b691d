"""Text of others made safe to show: it cannot steer a terminal, hide, or reorder what is read.

Whatever a name, a reason or a path holds, `make_printable` leaves one line of characters that a terminal
draws. It is applied where text arrives (messages of nodes and probes, answers of servers and commands) and
again where it is printed or drawn.
"""

import os
import re
import typing
from collections.abc import Iterable, Mapping
from typing import TextIO, TypeVar

import msgspec

# For a character that is not shown.
REPLACEMENT = "�"
_BLANKS = frozenset("\t\n\v\f\r\x85\u2028\u2029")
# A look-alike in ASCII, of one cell, for each character that texts and screens draw.
ASCII_FORMS = {
    ord(character): form
    for form, characters in {
        "-": "·—–─━┄╌╍═▔‐‑−▄",
        "|": "│┃║╎╏▏▎▍▌▐▕▊▋•",
        "+": "▒┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝┏┓┗┛▆",
        "#": "█■▉▓▀▛▜▙▟▗▖▝▘",
        "*": "◆●○✓☐☑□▇",
        "_": "▁",
        ".": "░▂",
        ":": "▃",
        "=": "▅",
        "/": "↗",
        "~": "…",
        "^": "▲△⇧",
        "!": "↑",
        "v": "▼▽↓",
        ">": "→▶▸▷›≥",
        "<": "←◀◂◁‹",
        "X": "✖✗",
        "x": "×",
        "'": "’‘′",
        '"': "“”″",
        "u": "µ",
        " ": "\u00a0\u2009\u202f⠀°",
    }.items()
    for character in characters
}
# What JSON writes for a control character; a text with a backslash may look so, which only costs time.
_ESCAPED = re.compile(rb"\\[bfnrtu]")
_PLAIN = (int, float, bytes, type(None), msgspec.Raw)
_Value = TypeVar("_Value")


def make_printable(text: str, most: int | None = None) -> str:
    """Return text on one line, of characters that a terminal draws and nothing else.

    Tabs and line breaks become blanks. Control characters (C0, C1, DEL), marks of direction, characters
    without a width, tags, private and unassigned ones and halves of surrogate pairs become `�`, one for one;
    so does the joiner within some emoji, whose width terminals disagree on.

    Args:
        most: Characters to keep; a longer text is cut and ends in `…`. None for all.
    """
    if most is not None and len(text) > most:
        text = f"{text[: most - 1]}…"
    if text.isprintable():
        return text
    return "".join(map(_replace_character, text))


def last_printable_line(output: bytes, most: int | None = None) -> str:
    """Return the last line of a program's output that is not blank, made printable, or an empty text."""
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    return make_printable(lines[-1], most) if lines else ""


def make_printable_lines(text: str) -> str:
    """Make every line printable; line breaks and tabs stay."""
    lines = text.split("\n")
    if all(map(str.isprintable, lines)):
        return text
    return "".join(it if it in "\n\t" else _replace_character(it) for it in text)


def make_ascii(text: str) -> str:
    """Return text in ASCII of the same width; characters without a likeness become a question mark."""
    if text.isascii():
        return text
    return text.translate(ASCII_FORMS).encode("ascii", "replace").decode("ascii")


def fit_to_reader(text: str, stream: TextIO) -> str:
    """Return text as it may be written to a stream: printable lines, in ASCII if its reader has only that."""
    shown = make_printable_lines(text)
    return shown if shown.isascii() or shows_unicode(stream) else make_ascii(shown)


def make_csv_cell(text: str) -> str:
    """Return text as a cell of CSV: printable, with an apostrophe before what a spreadsheet would compute."""
    shown = make_printable(text)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown


def shows_unicode(stream: TextIO) -> bool:
    """Return whether the reader of a stream has more than ASCII, as its encoding and the locale say."""
    if (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "") != "utf8":
        return False
    # Python writes UTF-8 in the locale C too (PEP 540): the locale says what the terminal shows.
    is_chosen = bool(os.environ.get("PYTHONIOENCODING")) or os.environ.get("PYTHONUTF8") == "1"
    return is_chosen or names_utf8(os.environ)


def names_utf8(environ: Mapping[str, str]) -> bool:
    """Return whether the locale is UTF-8; without any, a UTF-8 terminal is by far the likelier one."""
    name = name_locale(environ)
    return name == "" or "utf8" in name.lower().replace("-", "")


def name_locale(environ: Mapping[str, str]) -> str:
    """Return the locale that decides the character set; "" without any.

    Python itself sets LC_CTYPE=C.UTF-8 if LANG is C or is not installed (PEP 538), so that value says nothing
    about the terminal as long as LANG says something.
    """
    if not environ.get("LC_ALL") and environ.get("LC_CTYPE") == "C.UTF-8" and environ.get("LANG"):
        return environ["LANG"]
    return environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""


def find_nearest(word: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the names most like the first 64 characters of an unknown word, the nearest first."""
    from difflib import get_close_matches  # loaded by who errs alone

    return get_close_matches(word[:64], list(known), n=most, cutoff=cutoff)


def suggest(word: str, known: Iterable[str], otherwise: str, *, most: int = 1, cutoff: float = 0.6) -> str:
    """Ask whether the nearest names were meant, or return `otherwise` if none is near."""
    near = find_nearest(word, known, most=most, cutoff=cutoff)
    return f"did you mean {' or '.join(near)}?" if near else otherwise


def _replace_character(character: str) -> str:
    if character.isprintable():
        return character
    if character in _BLANKS:
        return " "
    # Blanks of other widths, such as the no-break space, are what they seem.
    return character if character.isspace() and character > "\x9f" else REPLACEMENT


def escape_json(data: bytes) -> bytes:
    """Return JSON in which every character that is not to reach a terminal is written as `\\uXXXX`.

    JSON itself asks that of U+0000 to U+001F alone; its meaning stays the same.
    """
    if data.isascii() and b"\x7f" not in data:
        return data
    return escape_lines(data.decode()).encode()


def escape_lines(text: str) -> str:
    """Return text with every character that is not to reach a terminal as `\\uXXXX`; line breaks stay."""
    lines = text.split("\n")
    return "\n".join(line if line.isprintable() else "".join(map(_escape, line)) for line in lines)


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def clean_texts(value: _Value, *, is_large: bool = False) -> _Value:
    """Return a decoded message with every text made printable: the very same one if all are.

    Args:
        is_large: It may hold megabytes of binary data, which are not checked.
    """
    if not is_large and _is_clean(value):
        return value
    return typing.cast("_Value", _clean(value))


def _is_clean(value: object) -> bool:
    """Return whether all texts are printable; writing JSON, which marks what is not, is the fastest way."""
    try:
        data = msgspec.json.encode(value)
        if b"\x7f" in data or (b"\\" in data and _ESCAPED.search(data) is not None):
            return False
        return data.isascii() or data.decode().isprintable()
    except (UnicodeError, msgspec.MsgspecError):  # half of a surrogate pair; a part that was not decoded
        return False


def _clean(value: object) -> object:
    if isinstance(value, str):
        return make_printable(value)
    if type(value) is tuple or type(value) is list:
        return type(value)(map(_clean, value))
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        changed = {name: _clean(item) for name, item in fields.items() if not isinstance(item, _PLAIN)}
        return msgspec.structs.replace(value, **changed)
    return value
