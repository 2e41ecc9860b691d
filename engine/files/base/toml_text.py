"""TOML that a person wrote, parsed within bounds: `tomllib` alone has none.

`tomllib` needs the square of the number of dots for a key of many, fails with a RecursionError on nesting,
and with a ValueError that is no TOMLDecodeError on a number of thousands of digits.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ...errors import InputFileError
from .input_file import show_path, show_text

MOST_DEPTH = 32
MOST_PARTS = 16
_TOKEN = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:""")?'
    r"|'''(?:[^']++|'(?!''))*+(?:''')?"
    r'|"(?:[^"\\\n]++|\\.)*+"?'
    r"|'[^'\n]*+'?|#[^\n]*+|[\[\]{}.=,\n]",
    re.DOTALL,
)
_HEADER = re.compile(r"^\s*\[(\[?)\s*([\w-]+)\s*\]")
_TOML_KEY = re.compile(r"^\s*([\w-]+)\s*=")
# More than `int` reads.
_DIGITS = re.compile(r"[0-9_]{4301,}")


def parse_toml(text: str, path: Path) -> dict[str, object]:
    import tomllib

    _check_nesting(text, path)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputFileError(f"{show_path(path)}: not TOML: {show_text(str(error), 200)}") from None
    except (ValueError, RecursionError):
        digits = _DIGITS.search(text)
        place = "" if digits is None else f":{text.count(chr(10), 0, digits.start()) + 1}"
        raise InputFileError(f"{show_path(path)}{place}: a number with thousands of digits") from None


def _check_nesting(text: str, path: Path) -> None:
    """Refuse deep brackets and keys of many parts; strings and comments are passed over."""
    line = 1
    depth = 0
    parts = 1
    for found in _TOKEN.finditer(text):
        mark = found.group()
        if mark == ".":
            parts += 1
            if parts > MOST_PARTS:
                raise InputFileError(
                    f"{show_path(path)}:{line}: a key of more than {MOST_PARTS} parts; expected a "
                    "name, or a few joined by dots"
                )
        elif mark in ("[", "{"):
            depth = depth + 1
            parts = 1
            if depth > MOST_DEPTH:
                raise InputFileError(f"{show_path(path)}:{line}: nested deeper than {MOST_DEPTH} levels")
        elif mark in ("]", "}"):
            depth = max(0, depth - 1)
        elif mark in ("=", ",", "\n"):
            parts = 1
        line += mark.count("\n")


# `tomllib` does not say on which line a key stands. Two levels are looked at, `nodes[1].count`: people err
# there. A key within brackets on one line is on that line.
class KeyLines(NamedTuple):
    """A file as errors name it, and the lines of its keys."""

    shown: str
    lines: Mapping[str, int] = {}

    def place(self, key: str, inner: str = "") -> str:
        """Return the file, the line if it is known, and the key, as the beginning of an error.

        Args:
            key: For example `nodes[1].count`.
            inner: A key of that table, for its line.
        """
        probe = f"{key}.{inner}" if inner else key
        while probe and probe not in self.lines:
            probe = probe[: max(probe.rfind("."), probe.rfind("["), 0)]
        line = f", line {self.lines[probe]}" if probe else ""
        return f"{self.shown}{line}: {key or 'the file'}"


def locate_toml_keys(text: str) -> dict[str, int]:
    """Return the lines of the keys, from 1."""
    found: dict[str, int] = {}
    counts: dict[str, int] = {}
    prefix = ""
    for number, line in enumerate(text.splitlines(), 1):
        if (header := _HEADER.match(line)) is not None:
            name = header.group(2)
            if header.group(1):
                counts[name] = counts.get(name, -1) + 1
                name = f"{name}[{counts[name]}]"
            found.setdefault(name, number)
            prefix = f"{name}."
        elif (key := _TOML_KEY.match(line)) is not None:
            found.setdefault(prefix + key.group(1), number)
    return found
