"""Lines as spans: text with its role; a theme gives each role its look."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from rich.cells import cell_len, set_cell_size

from ...engine.text import ASCII_FORMS, make_printable

# What a piece of text is for; `tui/draw/palettes.py` has the look of each role.
Role = Literal[
    "text",
    "strong",
    "muted",
    "faint",
    "accent",
    "cursor",
    "fill",
    "fill-medium",
    "fill-high",
    "fill-critical",
    "fill-nearly",
    "fill-full",
    "band",
    "activity",
    "low",
    "medium",
    "high",
    "critical",
    "unknown",
]

# In the order of its definition.
ROLES: tuple[Role, ...] = get_args(Role)


class Span(NamedTuple):
    text: str
    role: Role = "text"


# One row, left to right.
Line = list[Span]


def line_width(line: Iterable[Span]) -> int:
    return sum(cell_len(text) for text, _ in line)


def line_text(line: Iterable[Span]) -> str:
    return "".join(text for text, _ in line)


def shorten_middle(text: str, cells: int, ellipsis: str) -> str:
    """Return a name that fits, without its middle where it is too long: replicas differ at their end."""
    if cell_len(text) <= cells or cells <= 2 * len(ellipsis):
        return text
    head = (cells - len(ellipsis)) // 3
    return f"{text[:head]}{ellipsis}{text[head + len(ellipsis) - cells :]}"


def fit_text(text: str, width: int, ellipsis: str) -> str:
    """Return text in exactly `width` cells: padded on the right, or cut with an ellipsis."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + ellipsis


def right_text(text: str, width: int, ellipsis: str) -> str:
    """Return text in exactly `width` cells: padded on the left, or cut with an ellipsis."""
    missing = width - cell_len(text)
    return " " * missing + text if missing >= 0 else fit_text(text, width, ellipsis)


def clean_text(text: str, *, is_ascii: bool) -> str:
    """Return text that is safe to write: no control characters, and seven bits only where asked for.

    What has no ASCII look-alike becomes a question mark for each cell it would take.
    """
    text = make_printable(text)
    return to_ascii(text) if is_ascii else text


def fit_line(line: Iterable[Span], width: int, *, is_ascii: bool = False, ellipsis: str = "") -> Line:
    """Return a line of exactly `width` cells: cleaned (`is_ascii`: to seven bits), padded with blanks
    or cut.
    """
    fitted: Line = []
    left = width
    for span in line:
        raw, role = span
        text, taken = _measure(raw, is_ascii)
        if taken > left:
            return fitted + _cut(text, role, left, ellipsis)
        fitted.append(span if text is raw else Span(text, role))
        left -= taken
    if left > 0:
        fitted.append(Span(" " * left))
    return fitted


@lru_cache(maxsize=2048)
def _measure(raw: str, is_ascii: bool) -> tuple[str, int]:
    """Return text that is safe to write, and its cells."""
    text = clean_text(raw, is_ascii=is_ascii)
    return text, cell_len(text)


def _cut(text: str, role: Role, width: int, ellipsis: str) -> Line:
    if width <= 0:
        return []
    return [Span(fit_text(text, width, ellipsis) if ellipsis else set_cell_size(text, width), role)]


# Text in seven bits: a look-alike for each character that the screens draw.


@lru_cache(maxsize=1024)
def to_ascii(text: str) -> str:
    """Return text in ASCII that takes the same cells; characters without a look-alike become `?`."""
    if text.isascii():
        return text
    translated = text.translate(ASCII_FORMS)
    if translated.isascii():
        return translated
    return "".join(c if c.isascii() else "?" * cell_len(c) for c in translated)
