"""What all plain text shares: rows in columns, sentences in lines, sparklines, marks of risk."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

import msgspec

from ..analyzers.sentence import count_cells
from ..engine.model import RiskLevel
from ..engine.text import make_printable
from ..engine.units import format_bytes

# Rows in aligned columns and sentences in lines, as plain text of a given width in cells.

INDENT = "  "
UNKNOWN = "—"
"""Replaces a number that was not measured."""


class PipeWidth(int):
    """Cells of a line of prose where no terminal is; tables there are as wide as their cells."""


class TableStyle(msgspec.Struct, frozen=True):
    width: int = 80
    has_color: bool = False
    is_ascii: bool = False

    @property
    def marks(self) -> "Marks":
        return ASCII_MARKS if self.is_ascii else MARKS


NOTEBOOK_WIDTH = PipeWidth(110)
"""Cells of a line of prose in a notebook."""


def format_html(text: str) -> str:
    """Return a text as HTML in which a notebook keeps its lines and columns."""
    return f'<pre style="white-space: pre; overflow-x: auto">{escape(text)}</pre>'


def format_rows(rows: Sequence[Sequence[str]], alignment: str, width: int) -> list[str]:
    """Return rows as lines, two cells apart, without blanks at the end; cells are made printable.

    Args:
        alignment: `l` or `r` for each column.
        width: Cells of a line; the last columns are left out where they do not fit a terminal.
    """
    if not rows:
        return []
    rows = [[make_printable(cell) for cell in row] for row in rows]
    widths = [max(count_cells(row[column]) for row in rows) for column in range(len(alignment))]
    is_narrow = not isinstance(width, PipeWidth)
    while is_narrow and len(widths) > 1 and sum(widths) + len(INDENT) * len(widths) > width:
        widths.pop()
    return [INDENT + _format_row(row, widths, alignment) for row in rows]


def _format_row(row: Sequence[str], widths: Sequence[int], alignment: str) -> str:
    cells = []
    for cell, width, side in zip(row, widths, alignment, strict=False):
        blanks = " " * (width - count_cells(cell))
        cells.append(blanks + cell if side == "r" else cell + blanks)
    return "  ".join(cells).rstrip()


def show_number(value: float | None, form: str = ",", unit: str = "", *, per: int = 1) -> str:
    """Return a number, counted in `per` such as `MIB` for bytes, as text; `—` where it was not measured."""
    if value is None:
        return UNKNOWN
    return f"{value if per == 1 else value / per:{form}}{unit}"


def show_bytes(size_bytes: int | None) -> str:
    return "unmeasured" if size_bytes is None else format_bytes(size_bytes)


def format_range(least_bytes: int, most_bytes: int) -> str:
    least = format_bytes(least_bytes)
    most = format_bytes(most_bytes)
    return least if least == most else f"{least} to {most}"


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Return a sentence, made printable, in lines of a width; those after the first are indented by two more.

    A word that only a line without those two holds has one of its own; a wider one is broken.
    """
    lines: list[str] = []
    line = indent
    for word in make_printable(text).split():
        for part in _break_word(word, width - len(indent)):
            blank = " " if line.strip() else ""
            if blank and count_cells(f"{line} {part}") > width:
                lines.append(line)
                is_wide = count_cells(indent + INDENT + part) > width
                line = indent if is_wide else indent + INDENT
                blank = ""
            line += blank + part
    return [*lines, line] if line.strip() else lines


def describe_assumptions(assumptions: Sequence[str]) -> str:
    if not assumptions:
        return "Nothing was assumed: flags and file say everything that changes memory."
    return f"Assumed, since neither flags nor file say it: {', '.join(assumptions)}."


def _break_word(word: str, width: int) -> Iterator[str]:
    while word and count_cells(word) > width:
        end = width
        if not word.isascii():  # a character may take two cells, or no cell
            end = next(at for at in range(len(word)) if count_cells(word[: at + 1]) > width)
        end = max(1, end)
        yield word[:end]
        word = word[end:]
    yield word


# A small graph in one line of text, on a scale that starts at 0 and is written next to it.

_BARS = " ▁▂▃▄▅▆▇█"
UNMEASURED_MARK = "·"


def draw_sparkline(values: Sequence[float | None], top: float, width: int) -> str:
    """Return values, oldest first, as bars of eighths of `top`, the most of each part; None as a dot."""
    cells = max(1, min(width, len(values)))
    parts = [values[len(values) * cell // cells : len(values) * (cell + 1) // cells] for cell in range(cells)]
    return "".join(_draw_bar([value for value in part if value is not None], top) for part in parts)


def _draw_bar(values: Sequence[float], top: float) -> str:
    if not values:
        return UNMEASURED_MARK
    most = max(values)
    if most <= 0 or top <= 0:
        return _BARS[0]
    # A little is shown as the least bar, not as nothing.
    return _BARS[max(1, min(len(_BARS) - 1, round((len(_BARS) - 1) * most / top)))]


# Severity on screens and in print: a glyph and a style, so that colour is never the only carrier of meaning.


class Marks(msgspec.Struct, frozen=True):
    """One character for each level of risk and for each trend of used memory."""

    risks: Mapping[str, str]
    trends: Mapping[str, str]


MARKS = Marks(
    {"unknown": "?", "low": "·", "medium": "▲", "high": "◆", "critical": "✖"},
    {"steady": "→", "rising": "↗", "filling": "↑", "full": "■"},
)
ASCII_MARKS = Marks(
    {"unknown": "?", "low": ".", "medium": "^", "high": "*", "critical": "X"},
    {"steady": "=", "rising": "/", "filling": "!", "full": "#"},
)

STYLES: dict[RiskLevel, str] = {
    "unknown": "bold",
    "low": "green",
    "medium": "yellow",
    "high": "bold yellow",
    "critical": "bold red",
}
"""Rich styles that light and dark terminals both show."""
