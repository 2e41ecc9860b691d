"""The part of YAML that configuration files are written in: blocks of mappings and lists, and scalars.

Also lists and mappings in brackets on one line, quoted texts and comments. Not anchors, tags, several
documents or texts of several lines: those are refused with their line. A whole parser would be one more
dependency.
"""

import re
from typing import NamedTuple

from .yaml_scalars import YamlError, read_value, strip_comment

_KEY = re.compile(r"^(?:\"([^\"]*)\"|'([^']*)'|([^\s:\[\]{},#&*!|>'\"%@`-][^:#\[\]{}]*+))\s*:(?:\s+(.*))?$")
_MOST_DEPTH = 50


class _Line(NamedTuple):
    number: int
    indent: int
    text: str


def read_yaml(text: str) -> object:
    """Return the mapping, list or scalar that a text holds; None where it holds nothing.

    Raises:
        YamlError: It is not this part of YAML; the text says which line.
    """
    lines = [line for number, raw in enumerate(text.splitlines(), 1) if (line := _read_line(number, raw))]
    if not lines:
        return None
    value, end = _read_block(lines, 0, lines[0].indent, 0)
    if end < len(lines):
        raise YamlError(f"line {lines[end].number}: indented otherwise than the lines before it")
    return value


def _read_line(number: int, raw: str) -> _Line | None:
    text = strip_comment(raw).rstrip()
    bare = text.lstrip(" ")
    if not bare or (bare in ("---", "...") and text == bare):
        return None
    if bare.startswith("\t"):
        raise YamlError(f"line {number}: a tab in the indentation; expected blanks")
    return _Line(number, len(text) - len(bare), bare)


def _read_block(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[object, int]:
    """Return the value that begins at a line, and the first line behind it."""
    if depth > _MOST_DEPTH:
        raise YamlError(f"line {lines[at].number}: nested deeper than {_MOST_DEPTH} levels")
    if _is_item(lines[at].text):
        return _read_list(lines, at, indent, depth)
    if _KEY.match(lines[at].text):
        return _read_mapping(lines, at, indent, depth)
    return read_value(lines[at].text, lines[at].number), at + 1


def _read_list(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[list[object], int]:
    items: list[object] = []
    while at < len(lines) and lines[at].indent == indent and _is_item(lines[at].text):
        line = lines[at]
        inner = line.text[1:].lstrip(" ")
        if not inner:
            item, at = _read_below(lines, at, indent, depth)
        else:
            moved = indent + len(line.text) - len(inner)
            lines[at] = _Line(line.number, moved, inner)
            item, at = _read_block(lines, at, moved, depth + 1)
        items.append(item)
    return items, at


def _read_mapping(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[dict[str, object], int]:
    values: dict[str, object] = {}
    while at < len(lines) and lines[at].indent == indent and not _is_item(lines[at].text):
        line = lines[at]
        match = _KEY.match(line.text)
        if match is None:
            raise YamlError(f"line {line.number}: {line.text[:60]!r} is not `key: value`")
        key = match.group(3).rstrip() if match.group(3) else match.group(1) or match.group(2) or ""
        if key in values:
            raise YamlError(f"line {line.number}: {key} is there twice")
        if match.group(4):
            values[key], at = read_value(match.group(4), line.number), at + 1
        else:
            values[key], at = _read_below(lines, at, indent, depth)
    return values, at


def _read_below(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[object, int]:
    """Return what is indented below a line; a list may stand as far left as its key."""
    below = at + 1
    if below == len(lines):
        return None, below
    line = lines[below]
    if line.indent > indent or (
        line.indent == indent and _is_item(line.text) and not _is_item(lines[at].text)
    ):
        return _read_block(lines, below, line.indent, depth + 1)
    return None, below


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")
