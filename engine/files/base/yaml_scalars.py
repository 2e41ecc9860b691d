"""Values of YAML on one line: scalars, and lists and mappings in brackets."""

import re
from collections import deque

_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_INTEGER = re.compile(r"^[-+]?\d{1,40}$")
_NUMBER = re.compile(r"^[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?$")
_TOKEN = re.compile(
    r"\s*(\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|[\[\]{},]|:(?=\s|$)|(?:[^\[\]{},:]|:(?!\s|$))+)"
)
_ESCAPES = {'\\"': '"', "\\\\": "\\", "\\n": "\n", "\\t": "\t", "\\/": "/"}
_MOST_DEPTH = 50


class YamlError(ValueError):
    """A text that is not the part of YAML that is read; the text says which line and why."""


def strip_comment(line: str) -> str:
    """Return a line without its comment: a `#` at its start or behind a blank, outside quotes, and on."""
    quote = ""
    for at, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and (at == 0 or line[at - 1] in " [{,:-"):
            quote = letter
        elif letter == "#" and (at == 0 or line[at - 1] in " \t"):
            return line[:at]
    return line


def read_value(text: str, line: int) -> object:
    """Return the value of one line.

    Raises:
        YamlError: It is of a kind that is not read.
    """
    text = text.strip()
    if text[:1] in ("[", "{"):
        tokens = deque(_TOKEN.findall(text))
        value = _take(tokens, line, 0)
        if tokens:
            raise YamlError(f"line {line}: {tokens[0][:40]!r} behind the closing bracket")
        return value
    return _read_scalar(text, line)


def _read_scalar(text: str, line: int) -> object:
    text = text.strip()
    if text[:1] in ("&", "*", "!", "|", ">", "%", "@", "`"):
        raise YamlError(f"line {line}: {text[:40]!r} is YAML that is not read; write the value itself")
    if text[:1] in ("'", '"'):
        return _read_quoted(text, line)
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.match(text):
        return int(text)
    return float(text) if _NUMBER.match(text) else text


def _read_quoted(text: str, line: int) -> str:
    quote = text[0]
    if len(text) < 2 or text[-1] != quote:
        raise YamlError(f"line {line}: {text[:40]!r} has no closing quote")
    inner = text[1:-1]
    if quote == "'":
        return inner.replace("''", "'")
    return re.sub(r"\\.", lambda match: _ESCAPES.get(match.group(), match.group()), inner)


def _take(tokens: deque[str], line: int, depth: int) -> object:
    """Take one value off the front of the tokens."""
    first = tokens.popleft() if tokens else ""
    if depth > _MOST_DEPTH:
        raise YamlError(f"line {line}: nested deeper than {_MOST_DEPTH} levels")
    if first == "[":
        items: list[object] = []
        while _next(tokens, line) != "]":
            items.append(_take(tokens, line, depth + 1))
            _take_comma(tokens, line, "]")
        tokens.popleft()
        return items
    return _take_mapping(tokens, line, depth) if first == "{" else _read_scalar(first, line)


def _take_mapping(tokens: deque[str], line: int, depth: int) -> dict[str, object]:
    values: dict[str, object] = {}
    while _next(tokens, line) != "}":
        key = str(_read_scalar(tokens.popleft(), line))
        if _next(tokens, line) != ":":
            raise YamlError(f"line {line}: no colon behind {key[:40]!r}")
        tokens.popleft()
        values[key] = _take(tokens, line, depth + 1)
        _take_comma(tokens, line, "}")
    tokens.popleft()
    return values


def _next(tokens: deque[str], line: int) -> str:
    if not tokens:
        raise YamlError(f"line {line}: a bracket is not closed on its line")
    return tokens[0]


def _take_comma(tokens: deque[str], line: int, closing: str) -> None:
    following = _next(tokens, line)
    if following == ",":
        tokens.popleft()
    elif following != closing:
        raise YamlError(f"line {line}: expected a comma or {closing} before {following[:40]!r}")
