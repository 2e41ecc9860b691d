"""Lines as spans: text with its role; a theme gives each role its look."""

from collections.abc import Iterable, Sequence
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


# Marks where words are lost.
ELLIPSIS = "…"


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
    return set_cell_size(text, width - cell_len(ellipsis)) + ellipsis


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


def fit_line(line: Sequence[Span], width: int, *, is_ascii: bool = False) -> Line:
    """Return a line of exactly `width` cells: cleaned (`is_ascii`: to seven bits), padded with blanks
    or cut, which an ellipsis marks where words are lost.
    """
    fitted: Line = []
    left = width
    for at, span in enumerate(line):
        raw, role = span
        text, taken = _measure(raw, is_ascii)
        if taken > left:
            goes_on = any(later.text.strip() for later in line[at + 1 :])
            ellipsis = to_ascii(ELLIPSIS) if is_ascii else ELLIPSIS
            return _cut(fitted, text, role, left, goes_on=goes_on, ellipsis=ellipsis)
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


def _cut(fitted: Line, text: str, role: Role, left: int, *, goes_on: bool, ellipsis: str) -> Line:
    """Return a line with what fits of the next text, and a mark where words are lost.

    Where no cell is left, the mark takes the last one of the span before. In one cell there is no mark.
    """
    is_whole = not goes_on and cell_len(text.rstrip()) <= left
    if is_whole or left + line_width(fitted) <= 1:
        return [*fitted, Span(set_cell_size(text, left), role)] if left > 0 else fitted
    if left > 0:
        return [*fitted, Span(fit_text(text, left, ellipsis), role)]
    *before, last = [span for span in fitted if span.text]
    return [*before, Span(set_cell_size(last.text, cell_len(last.text) - 1) + ellipsis, last.role)]


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
