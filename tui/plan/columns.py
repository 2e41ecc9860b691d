"""Columns of text that share their widths, so far as a line has room: the last ones are left out."""

from collections.abc import Sequence

from rich.cells import cell_len

from ..draw.spans import fit_text, right_text

GAP = 1
"""Blank cells between two columns."""


def measure_columns(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Return the cells that each column needs."""
    widths = [cell_len(title) for title in heading]
    for row in rows:
        widths = [max(width, cell_len(text)) for width, text in zip(widths, row, strict=True)]
    return tuple(widths)


def lay_out(texts: Sequence[str], widths: Sequence[int], alignment: str, room: int, ellipsis: str) -> str:
    """Return one line of columns; the one that has room for a part only is cut if its texts are at the left.

    Args:
        texts: By column.
        widths: Cells of each column.
        alignment: `l` or `r` for each.
        room: Cells of the line.
        ellipsis: What stands where a text was cut.
    """
    pieces: list[str] = []
    left = room
    for text, width, side in zip(texts, widths, alignment, strict=True):
        if width > left:
            if side == "l" and left >= min(width, 6):
                pieces.append(fit_text(text, left, ellipsis))
            break
        make = right_text if side == "r" else fit_text
        pieces.append(make(text, width, ellipsis))
        left -= width + GAP
    return (" " * GAP).join(pieces)
